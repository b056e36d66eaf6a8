import numpy as np
import pandas as pd
import pytest

from neuralsurv.data.features import Encoding
from neuralsurv.errors import ColumnError
from neuralsurv.service.covariates import covariates_of, outside_training, people_columns
from neuralsurv.service.openapi import person_schema


def fit(**columns):
    frame = pd.DataFrame(columns)
    return Encoding.fit(frame, np.ones(len(frame)))


@pytest.mark.parametrize(
    ("values", "typical"),
    [
        ([1, 2, 6], 3.0),
        ([0.123, 0.456, 0.789], 0.46),
        ([1e-300, 2e-300, 4e-300], 2.3e-300),
        ([1e300, 2e300, 4e300], 2e300),
        (["a", "b", "b"], "b"),
        (["b", "a", "a"], "a"),
        (["c", "a", "b", "b"], "b"),
        ([True, False, False], "False"),
        (["b", None, None, "a", "b"], "b"),
    ],
)
def test_typical_values(values, typical):
    (covariate,) = covariates_of(fit(x=values))
    assert covariate.typical == (pytest.approx(typical, rel=0.2) if isinstance(typical, float) else typical)
    if isinstance(typical, float):
        assert min(values) <= covariate.typical <= max(values)


def test_features_keep_their_place_behind_gaps_and_levels():
    covariates = covariates_of(
        fit(site=["a", "b", "c", None], age=[50.0, 60.0, np.nan, 70.0], dose=[1.0, 2.0, 3.0, 6.0])
    )
    assert [covariate.typical for covariate in covariates][1:] == [60.0, 3.0]
    assert [round(covariate.mean, 6) for covariate in covariates] == [0.0, 60.0, 3.0]


def test_schema_of_a_person():
    covariates = covariates_of(fit(age=[1, 2, None], stage=["a", "b", "a"], smoker=[True, False, True]))
    assert person_schema(covariates) == {
        "type": "object",
        "additionalProperties": False,
        "required": ["stage", "smoker"],
        "properties": {
            "age": {"type": ["number", "null"], "description": "1 to 2 in training"},
            "stage": {"type": ["string", "null"], "enum": ["a", "b", None]},
            "smoker": {"type": ["boolean", "null"], "enum": [False, True, None]},
        },
    }


def test_nobody_has_to_give_anything_that_may_be_missing():
    schema = person_schema(covariates_of(fit(sex=["f", "m", None])))
    assert "required" not in schema
    assert schema["properties"]["sex"]["enum"] == ["f", "m", None]


def test_a_table_of_people_encodes_as_that_of_a_user():
    frame = pd.DataFrame({"age": [1.5, 2.0, None], "sex": ["f", "m", None], "smoker": [True, False, True]})
    encoding = Encoding.fit(frame, np.ones(3))
    people = [{"age": 2, "sex": None, "smoker": False}, {"sex": "m", "smoker": True}]
    found = people_columns(people, covariates_of(encoding))
    expected = pd.DataFrame({"age": [2.0, np.nan], "sex": [None, "m"], "smoker": [False, True]})
    np.testing.assert_array_equal(encoding.of_columns(found), encoding.with_gaps(expected))


def test_ends_of_the_range_and_gaps_are_inside():
    covariates = covariates_of(fit(age=[1.0, 2.0, np.nan]))
    table = people_columns([{"age": 1.0}, {"age": 2.0}, {"age": None}, {"age": 0.999}], covariates)
    assert [len(found) for found in outside_training(table, covariates)] == [0, 0, 0, 1]


def test_a_long_value_is_not_sent_back_whole():
    with pytest.raises(ColumnError, match=r"^covariate 'sex' has the value 'f{100}…' in 1 row") as caught:
        people_columns([{"sex": "f" * 10**6}], covariates_of(fit(sex=["f", "m"])))
    assert len(str(caught.value)) < 500


def test_what_was_always_known_in_training_may_be_null_but_not_left_out():
    covariates = covariates_of(fit(age=[1, 2, 3], sex=["f", "m", "f"]))
    found = people_columns([{"age": None, "sex": "f"}], covariates)
    assert np.isnan(found[0][0])
    with pytest.raises(
        ColumnError, match=r"'age' is missing in 1 row \(row 1, counting from 0\); give a value, or null if"
    ):
        people_columns([{"age": 2, "sex": "f"}, {"sex": "f"}], covariates)
