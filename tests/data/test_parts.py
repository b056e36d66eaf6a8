"""Covariates in parts: what becomes of arrays and tables, and every refusal."""

import numpy as np
import pandas as pd
import pytest
import torch

from neuralsurv.data.features import Encoding
from neuralsurv.data.frames import as_frame
from neuralsurv.data.parts import container_of
from neuralsurv.errors import InputError

COUNT = 5
RNG = np.random.default_rng(0)


def parts() -> dict:
    return {
        "image": RNG.random((COUNT, 1, 2, 3)),
        "table": pd.DataFrame({"age": RNG.random(COUNT), "sex": list("mfmfm")}, index=list("abcde")),
        "words": RNG.integers(0, 9, (COUNT, 4)),
        "dose": RNG.random((COUNT, 2)),
    }


def encode(X):
    encoding = Encoding.fit(X, np.ones(COUNT))
    return encoding, encoding.layout.unpack(torch.from_numpy(encoding.transform(X)))


def test_every_part_comes_back_in_its_shape_and_arrays_as_they_were():
    X = parts()
    encoding, out = encode(X)
    assert list(out) == ["image", "table", "words", "dose"]
    assert np.array_equal(out["image"], X["image"])
    assert np.array_equal(out["words"], X["words"])
    assert out["words"].dtype == torch.int64
    age = X["table"]["age"].to_numpy()
    expected = np.column_stack([(age - age.mean()) / age.std(), (np.array([1, 0, 1, 0, 1]) - 0.6) / np.sqrt(0.24)])
    assert np.allclose(out["table"], expected)
    assert np.allclose(out["dose"], (X["dose"] - X["dose"].mean(0)) / X["dose"].std(0))
    # The linear path takes the first columns: those of the tables.
    assert encoding.layout.tabular == 4
    assert encoding.outputs[:4] == ("table.age", "table.sex=m", "dose[0]", "dose[1]")


def test_people_are_named_by_the_index_of_a_table():
    assert list(as_frame(parts()).index) == list("abcde")


def test_bytes_are_pixels_and_longer_whole_numbers_are_codes():
    pixels = np.arange(COUNT * 4, dtype=np.uint8).reshape(COUNT, 2, 2)
    assert encode({"p": pixels})[1]["p"].dtype == torch.float64
    assert encode({"p": pixels.astype(np.int32)})[1]["p"].dtype == torch.int64


@pytest.mark.parametrize(
    ("X", "container"),
    [
        (np.ones((4, 2)), "table"),
        ([[1.0, 2.0]], "table"),
        (pd.DataFrame({"a": [1.0]}), "table"),
        (((1.0, 2.0), (3.0, 4.0)), "table"),
        ((np.ones(2), np.ones(2)), "table"),
        ((np.ones((2, 2)), np.ones(2)), "tuple"),
        ((np.ones((2, 2)), pd.DataFrame({"a": [1.0, 2.0]})), "tuple"),
        (np.ones((2, 2, 2)), "array"),
        (torch.ones(2, 2, 2), "array"),
        ({"a": np.ones(2)}, "dict"),
    ],
)
def test_what_counts_as_parts(X, container):
    assert container_of(X) == container


def test_an_array_alone_and_a_tuple():
    images = RNG.random((COUNT, 2, 2))
    assert np.array_equal(encode(torch.from_numpy(images))[1], images)
    first, second = encode((images, RNG.random((COUNT, 3))))[1]
    assert np.array_equal(first, images)
    assert second.shape == (COUNT, 3)


def test_a_table_made_of_parts_is_encoded_like_the_parts():
    X = parts()
    encoding = Encoding.fit(as_frame(X), np.ones(COUNT), like=X)
    assert np.array_equal(encoding.transform(as_frame(X)), encoding.transform(X))
    assert np.array_equal(encoding.transform(X), Encoding.fit(X, np.ones(COUNT)).transform(X))


NAN = np.where(np.arange(COUNT * 4).reshape(COUNT, 2, 2) == 5, np.nan, 1.0)


@pytest.mark.parametrize(
    ("X", "words"),
    [
        ({}, "X is a dict without parts"),
        ({3: np.ones((2, 2))}, "the part 3 of X has a name that is not text; call it '3'"),
        ({"a": np.ones((2, 2, 2)), "b": np.ones((3, 2))}, "part 'b' of X has 3 rows and part 'a' has 2"),
        (
            {"a": NAN},
            r"part 'a' of X is missing \(NaN\) or infinite in 1 row \(row 1, counting from 0\); correct or drop",
        ),
        ({"a": np.full((2, 2, 2), "x")}, "part 'a' of X is of type <U1; give numbers"),
        ({"a": np.ones((2, 0, 2))}, r"part 'a' of X has shape \(2, 0, 2\); give one row, not empty"),
        ({"a": RNG.random((2, 2)), "a[0]": RNG.random((2, 2, 2))}, r"part 'a\[0\]' of X makes a second column"),
    ],
)
def test_refusals_at_the_door(X, words):
    with pytest.raises(InputError, match=words):
        Encoding.fit(X, np.ones(2)).transform(X)


def test_arrays_of_different_shapes_in_one_column():
    cells = np.empty(2, dtype=object)
    cells[:] = [np.ones((2, 2)), np.ones((3, 2))]
    frame = pd.DataFrame({"a": cells})
    with pytest.raises(InputError, match=r"column 'a' holds arrays of different shapes, \(2, 2\) and \(3, 2\)"):
        Encoding.fit(frame, np.ones(2))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda X: X["table"], r"comes as one table, but came as a dict of 4 parts \(image, table, words, dose\)"),
        (lambda X: tuple(X.values()), r"comes as a tuple of 4 parts \(0, 1, 2, 3\), but came as a dict"),
        (lambda X: {"image": X["image"]}, "a dict of 1 part .* part 'table' is missing"),
        (
            lambda X: X | {"image": X["image"][:, :, :1]},
            r"part 'image' .* rows of shape \(1, 1, 3\), but \(1, 2, 3\) when",
        ),
        (lambda X: X | {"image": RNG.random((COUNT, 2))}, "column 'image' is missing"),
    ],
)
def test_refusals_of_other_parts_than_in_training(change, words):
    X = parts()
    encoding = Encoding.fit(X, np.ones(COUNT))
    with pytest.raises(InputError, match=words):
        encoding.transform(change(X))


def test_a_table_in_training_and_parts_later():
    encoding = Encoding.fit(RNG.random((COUNT, 2)), np.ones(COUNT))
    with pytest.raises(InputError, match="comes as one array, but came as one table when the model was fitted"):
        encoding.transform(np.ones((COUNT, 2, 2)))


def test_more_parts_than_in_training_do_no_harm_in_a_dict():
    X = parts()
    encoding = Encoding.fit(X, np.ones(COUNT))
    more = encoding.transform(X | {"extra": np.ones((COUNT, 2))})
    assert np.array_equal(more, encoding.transform(X))


def test_a_part_whose_only_column_is_the_outcome():
    X = {"image": RNG.random((COUNT, 2, 2)), "t": RNG.random(COUNT)}
    encoding = Encoding.fit(as_frame(X).drop(columns="t"), np.ones(COUNT), like=X)
    with pytest.raises(InputError, match="part 't' of X has no column left that is a covariate"):
        _ = encoding.layout


def test_arrays_need_a_network():
    with pytest.raises(InputError, match=r"X has rows of shape \(2, 2\), which the built-in network cannot read"):
        Encoding.fit(RNG.random((COUNT, 2, 2)), np.ones(COUNT)).check_flat()
    frame = pd.DataFrame({"scan": list(RNG.random((COUNT, 2)))})
    with pytest.raises(InputError, match=r"column 'scan' holds arrays of shape \(2,\), which the built-in network"):
        Encoding.fit(frame, np.ones(COUNT)).check_flat()
    with pytest.raises(InputError, match=r"part 'image' of X has rows of shape \(1, 2, 3\), which the built-in"):
        Encoding.fit(parts(), np.ones(COUNT)).check_flat()


def test_arrays_of_words_in_the_cells_of_a_column_are_refused_by_name():
    frame = pd.DataFrame({"tags": [np.array(["a", "b"])] * 3})
    with pytest.raises(InputError, match=r"column 'tags' holds arrays of type <U1; give numbers\."):
        Encoding.fit(frame, np.ones(3))
