"""scikit-learn's own estimator checks.

They hand over a plain one-dimensional y, which is no survival outcome. A subclass reads it as times at which everybody
has the event; everything else is the estimator itself, with settings that make a fit quick.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.utils import estimator_checks
from sklearn.utils.estimator_checks import parametrize_with_checks

from neuralsurv import NeuralSurv, PaperNeuralSurv
from small_cohort import quick_default, quick_model

PAGE = Path(__file__).parents[2] / "docs" / "scikit-learn-checks.md"

# Each is run all the same, and must fail: a check that begins to pass has to leave this list.
EXPECTED_FAILED_CHECKS = {
    "check_dataframe_column_names_consistency": (
        "asks for an error when a table has its columns in another order than in `fit`; "
        "here columns are found by name, and additional ones (such as the outcome) are ignored"
    ),
}


class PlainOutcome:
    """An estimator for a plain y: the event times, up to a shift."""

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Any:
        return super().fit(X, as_outcome(y), sample_weight=sample_weight)  # type: ignore[misc]

    def score(self, X: Any, y: Any) -> float:
        return super().score(X, as_outcome(y))  # type: ignore[misc]


class EverybodyDies(PlainOutcome, NeuralSurv):
    pass


class EverybodyDiesAsInThePaper(PlainOutcome, PaperNeuralSurv):
    pass


def as_outcome(y: Any) -> Any:
    if y is None:
        return None
    values = np.asarray(y)
    if values.dtype == object:
        values = values.astype(float)
    # With no row there is no minimum; the estimator has to say what is wrong.
    return (values - values.min() + 1 if values.size else values, np.ones(values.shape, dtype=bool))


PAPER = EverybodyDiesAsInThePaper(
    **quick_model(
        hidden=(2,), activation="relu", quadrature="trapezoid", quadrature_points=12, draws=8, max_sweeps=5
    ).get_params()
)
DEFAULT = EverybodyDies(**quick_default(hidden=(2,), quadrature_points=4, average=False, draws=40).get_params())
ours_about_tiny_fits = pytest.mark.filterwarnings("ignore::neuralsurv.errors.NeuralSurvWarning")


@ours_about_tiny_fits
@parametrize_with_checks([PAPER, DEFAULT], expected_failed_checks=lambda _: EXPECTED_FAILED_CHECKS)
def test_scikit_learn_check(estimator: Any, check: Any) -> None:
    check(estimator)


@ours_about_tiny_fits
@pytest.mark.parametrize("estimator", [PAPER, DEFAULT], ids=["paper", "default"])
def test_columns_may_come_in_another_order(estimator: NeuralSurv) -> None:
    # scikit-learn runs this check on its own estimators, but leaves it out of the list for others. It gets as far as
    # the table with its columns reversed.
    with pytest.raises(AssertionError, match="predict did not raise"):
        estimator_checks.check_dataframe_column_names_consistency("NeuralSurv", estimator)


def test_every_exception_is_a_check_of_scikit_learn() -> None:
    assert [name for name in EXPECTED_FAILED_CHECKS if not callable(getattr(estimator_checks, name, None))] == []


def test_the_page_lists_the_same_exceptions_with_their_reasons() -> None:
    rows = [line.split("|") for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `check_")]
    assert {row[1].strip().strip("`"): row[2].strip() for row in rows} == EXPECTED_FAILED_CHECKS
