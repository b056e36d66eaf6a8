"""An encoding applied to new rows."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from data.encodings import as_object, fit, frame
from neuralsurv.data.columns import Column
from neuralsurv.data.features import Encoding
from neuralsurv.errors import InputError


def test_width_without_names():
    table = fit(frame(sex=["f", "m", "f"], site=["a", "b", "c"], age=[1.0, 2.0, np.nan]))
    assert [column.width for column in table.columns] == [len(column.outputs) for column in table.columns] == [1, 3, 2]
    array = Column("image", "array", (), False, shape=(2, 3, 4))
    assert array.width == len(array.outputs) == 24


class TestTransform:
    def test_new_rows_use_what_was_learned(self, training, encoding):
        row = encoding.transform(frame(age=[70.0], dose=[0], site=["bonn"], sex=["f"], smoker=[False]))
        values = pd.Series(row[0] * encoding.scale + encoding.center, index=encoding.outputs)
        wanted = {"age": 70, "dose": 0, "site=bonn": 1, "site=rome": 0, "sex=m": 0, "sex missing": 0, "smoker=True": 0}
        for name, value in wanted.items():
            assert values[name] == pytest.approx(value, abs=1e-12), name

    def test_rows_are_encoded_one_by_one(self, training, encoding):
        whole = encoding.transform(training)
        for k in range(4):
            np.testing.assert_array_equal(encoding.transform(training.iloc[[k]]), whole[[k]])

    def test_order_of_columns_does_not_matter_in_a_frame(self, training, encoding):
        reordered = training[["smoker", "dose", "sex", "age", "site"]]
        np.testing.assert_array_equal(encoding.transform(reordered), encoding.transform(training))

    def test_other_columns_of_a_frame_are_ignored(self, training, encoding):
        wide = training.assign(id=range(4), date=pd.Timestamp("2020-01-01"), empty=None)
        np.testing.assert_array_equal(encoding.transform(wide), encoding.transform(training))
        twice = pd.concat([wide, wide[["id"]]], axis=1)
        np.testing.assert_array_equal(encoding.transform(twice), encoding.transform(training))

    def test_matrix_goes_by_position(self):
        matrix = np.arange(12.0).reshape(4, 3) ** 1.5
        wanted = fit(matrix).transform(matrix)
        for names in (["a", "b", "c"], ["x1", "x0", "x2"]):
            np.testing.assert_array_equal(fit(pd.DataFrame(matrix, columns=names)).transform(matrix), wanted)

    def test_text_in_another_type(self, training, encoding):
        other = training.astype({"site": "category", "sex": "string", "smoker": object})
        np.testing.assert_array_equal(encoding.transform(other), encoding.transform(training))

    def test_numbers_in_another_type(self, training, encoding):
        other = training.astype({"age": "Float64", "dose": np.int8}).astype({"age": object})
        np.testing.assert_array_equal(encoding.transform(other), encoding.transform(training))

    @pytest.mark.parametrize("gap", [None, np.nan, pd.NA])
    @pytest.mark.parametrize("name", ["age", "sex"])
    def test_a_column_with_nothing_but_gaps(self, training, encoding, name, gap):
        values = pd.DataFrame(encoding.transform(training.assign(**{name: gap})), columns=encoding.outputs)
        assert (values[{"age": "age", "sex": "sex=m"}[name]] == 0).all()
        assert (values[f"{name} missing"] > 1).all()

    @pytest.mark.parametrize("X", [pd.DataFrame(columns=["age", "dose", "site", "sex", "smoker"]), np.zeros((0, 5))])
    def test_no_rows(self, encoding, X):
        assert encoding.transform(X).shape == (0, 9)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (
                {"site": "paris"},
                r"column 'site' has the value 'paris' in 4 rows \(rows 0, 1, 2, 3, counting from 0\), which was not",
            ),
            (
                {"site": ["rome", "x", "y", "rome"]},
                r"'x' in 2 rows \(rows 1, 2, counting from 0\), .* known are bonn, oslo, rome\.",
            ),
            ({"smoker": ["yes"] * 4}, r"column 'smoker' has the value 'yes' .* known are False, True"),
            ({"dose": ["1"] * 4}, r"column 'dose' is of type (object|str), but was a number when the model was fitted"),
            ({"dose": [True] * 4}, r"column 'dose' is of type bool, but was a number when the model was fitted"),
            ({"site": 1.5}, r"column 'site' is of type float64, but was a category .*; convert it to the same type"),
            ({"smoker": 1}, r"column 'smoker' is of type int64, but was a category when the model was fitted"),
            ({"dose": [1, np.inf, 2, 3]}, r"column 'dose' is infinite in 1 row \(row 1, counting from 0\)"),
            ({"site": as_object(["rome", 1, 2, 3])}, r"column 'site' holds values of type int, str"),
            ({"age": pd.Timestamp("2020-01-01")}, r"column 'age' holds dates"),
        ],
    )
    def test_refusals(self, training, encoding, change, message):
        with pytest.raises(InputError, match=message):
            encoding.transform(training.assign(**change))

    def test_missing_columns(self, training, encoding):
        message = (
            r"column 'dose' is missing \(2 of 5 columns are\); the model was fitted with age, dose, site, sex, smoker\."
        )
        for X in (training.drop(columns=["dose", "sex"]), training.rename(columns={"dose": "x", "sex": "y"})):
            with pytest.raises(InputError, match=message):
                encoding.transform(X)
            with pytest.raises(InputError, match=message):
                encoding.transform(pa.Table.from_pandas(X, preserve_index=False))

    @pytest.mark.parametrize("width", [1, 2, 4, 6])
    def test_matrix_of_another_width(self, width):
        encoding = fit(np.arange(12.0).reshape(4, 3))
        message = rf"X has {width} features, but this model is expecting 3 features as input"
        with pytest.raises(InputError, match=message):
            encoding.transform(np.ones((2, width)))

    def test_repeated_name(self, training, encoding):
        with pytest.raises(InputError, match=r"column 'dose' occurs more than once; give every column its own name"):
            encoding.transform(pd.concat([training, training[["dose"]]], axis=1))

    def test_value_too_far_from_training(self):
        encoding = fit(frame(a=[1.0, 2.0], b=[1e-300, 3e-300]))
        message = (
            r"'b' is too far from the training data to be scaled in 1 row \(row 1, counting from 0\); correct these"
        )
        with pytest.raises(InputError, match=message):
            encoding.transform(frame(a=[1.0, 2.0], b=[1e-300, 1e20]))


def test_imputations_are_spread_like_the_training_values():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "age": rng.normal(60, 10, 4000),
            "count": rng.poisson(0.3, 4000),
            "flag": rng.choice([2.0, 5.0], 4000, p=[0.8, 0.2]),
            "sex": rng.choice(["f", "m"], 4000, p=[0.25, 0.75]),
            "site": rng.choice(list("abc"), 4000, p=[0.5, 0.3, 0.2]),
        }
    )
    encoding = Encoding.fit(frame, np.ones(4000), standardise=False)
    values = pd.DataFrame(encoding.imputations(), columns=encoding.outputs)
    assert abs(values.age.mean() - 60) < 1
    assert abs(values.age.std() - 10) < 1
    assert values["count"].between(0, frame["count"].max()).all()
    assert sorted(values.flag) == [2.0] * 16 + [5.0] * 4
    assert values["sex=m"].sum() == 15
    assert values[["site=a", "site=b", "site=c"]].sum().tolist() == [10, 6, 4]
    # Several gaps vary independently of each other.
    correlations = values[["age", "flag", "sex=m", "site=a"]].corr().to_numpy()[np.triu_indices(4, 1)]
    assert np.abs(correlations).max() < 0.6
    scaled = Encoding.fit(frame, np.ones(4000))
    np.testing.assert_allclose(scaled.imputations() * scaled.scale + scaled.center, values, atol=1e-9)
