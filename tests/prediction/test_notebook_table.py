import html
import re

import numpy as np
import pandas as pd
import pytest

from neuralsurv.prediction.prediction import Prediction
from posteriors import covariates, small_predictor


def prediction_of(cube, columns=None, label="time", name="survival", index=None, extrapolated=None):
    cube = np.asarray(cube, dtype=float)
    people = pd.Index(range(cube.shape[1])) if index is None else pd.Index(index)
    beyond = np.zeros(cube.shape[2], dtype=bool) if extrapolated is None else np.asarray(extrapolated)
    named = None if columns is None else pd.Index(columns, name=label)
    return Prediction(name, people, named, beyond, len(cube), lambda: iter([cube]))


def rows_of(text):
    """Return the cells of the table, row by row, the head first."""
    rows = re.findall(r"<tr.*?</tr>", text, re.DOTALL)
    return [[html.unescape(cell) for cell in re.findall(r"<t[hd]>(.*?)</t[hd]>", row)] for row in rows]


def refuse():
    raise AssertionError("the draws were computed")


@pytest.mark.parametrize(
    ("shape", "columns", "label", "words"),
    [
        ((1000, 137, 3), [300.0, 50.0, 100.0], "time", "survival of 137 people at 3 times (50 to 300), 1,000 draws"),
        ((1, 1, 1), [50.0], "time", "survival of 1 person at 1 time (50), 1 draw"),
        ((7, 2, 1), None, None, "survival of 2 people, 7 draws"),
        ((7, 2, 2), [0.1, 0.5], "q", "survival of 2 people at 2 values of q (0.1 to 0.5), 7 draws"),
        ((7, 2, 2), ["drug", "none"], "arm", "survival of 2 people at 2 values of arm, 7 draws"),
        ((7, 2, 1), [1.0], "a\x1b[31m", r"survival of 2 people at 1 value of a\x1b[31m (1), 7 draws"),
    ],
)
def test_one_line_that_computes_nothing(shape, columns, label, words):
    index = None if columns is None else pd.Index(columns, name=label)
    prediction = Prediction(
        "survival", pd.RangeIndex(shape[1]), index, np.zeros(shape[2], dtype=bool), shape[0], refuse
    )
    assert repr(prediction) == f"<Prediction: {words}>"


def test_a_table_of_means_and_intervals():
    cube = np.random.default_rng(0).gamma(2.0, size=(200, 2, 3))
    prediction = prediction_of(cube, [1.0, 2.5, 9.0], index=["Ada", "Ben"], extrapolated=[False, False, True])
    text = prediction._repr_html_()
    head, ada, ben = rows_of(text)
    assert head == ["time", "1", "2.5", "9 (extrapolated)"]
    assert (ada[0], ben[0]) == ("Ada", "Ben")
    lower, upper = prediction.interval(0.9)
    expected = f"{prediction.mean.iloc[1, 2]:.3g} [{lower.iloc[1, 2]:.3g}, {upper.iloc[1, 2]:.3g}]"
    assert ben[3] == expected
    assert "<p>survival of 2 people at 3 times (1 to 9), 200 draws: mean [90% interval]</p>" in text


def test_one_number_for_each_person_and_no_end():
    cube = np.full((4, 1, 1), np.inf)
    text = prediction_of(cube, name="median event time")._repr_html_()
    assert "median event time</th>" in text
    assert "∞ [∞, ∞]" in text


def test_rows_and_columns_are_capped():
    cube = np.ones((3, 500, 100))
    text = prediction_of(cube, np.arange(100.0))._repr_html_()
    assert "mean [90% interval], the first 10 people, 6 of 100 columns" in text
    head, *people = rows_of(text)
    assert head == ["time", "0", "20", "40", "59", "79", "99"]
    assert [row[0] for row in people] == [str(k) for k in range(10)]


def test_nothing_is_computed_for_people_after_the_first_block():
    computed = []

    def blocks():
        for _ in range(50):
            computed.append(20)
            yield np.ones((3, 20, 1))

    prediction = Prediction("x", pd.RangeIndex(1000), None, np.zeros(1, dtype=bool), 3, blocks)
    assert "the first 10 people" in prediction._repr_html_()
    assert computed == [20]
    prediction.draws  # noqa: B018
    computed.clear()
    assert "the first 10 people" in prediction._repr_html_()
    assert computed == [], "draws that are kept are not computed again"


def test_labels_of_a_stranger_are_escaped():
    text = prediction_of(np.ones((2, 1, 1)), ["<script>"], label="<b>", name="<i>", index=["<a>"])._repr_html_()
    assert not any(tag in text for tag in ("<script>", "<b>", "<i>", "<a>"))


def test_of_a_real_prediction():
    found = small_predictor().survival(covariates(12), [5, 10])
    assert repr(found) == "<Prediction: survival of 12 people at 2 times (5 to 10), 60 draws>"
    assert len(rows_of(found._repr_html_())) == 11
