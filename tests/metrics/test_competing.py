"""Scores by cause against other software and against their definitions, row by row and pair by pair."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from lifelines import AalenJohansenFitter

from neuralsurv.errors import InputError
from neuralsurv.metrics import (
    aalen_johansen,
    brier_score,
    cause_brier_score,
    cause_calibration,
    cause_concordance,
    harrell_concordance,
    integrated_cause_brier_score,
)

RNG = np.random.default_rng(0)
N = 60
TIME = np.round(RNG.exponential(3, N) + 0.01, 4)
EVENT = RNG.choice([0, 1, 2], N, p=[0.3, 0.4, 0.3])
INCIDENCE = np.round(np.sort(RNG.random((N, 3)) * [0.4, 0.6, 0.8], axis=1), 3)
TIMES = np.array([1.0, 2.0, 4.0])
TRAINING = {"train_time": TIME, "train_event": EVENT}
NAMES = np.array(["censored", "relapse", "death"])

# hazardous 0.2.0 on the rows above, on 2026-11-18: brier_score_incidence(y, y, INCIDENCE, TIMES, event_of_interest=k)
# and integrated_brier_score_incidence with the same arguments, y a frame with the columns event and duration.
HAZARDOUS = {
    1: ([0.08564111884450136, 0.14952688612694737, 0.24663230875686612], 0.17124773245651262),
    2: ([0.10337161220243835, 0.17547394860916019, 0.269165121070797], 0.1946872833619188),
}


@pytest.mark.parametrize("cause", [1, 2])
def test_brier_scores_are_those_of_hazardous(cause: int) -> None:
    scores, integrated = HAZARDOUS[cause]
    assert cause_brier_score(TIME, EVENT, INCIDENCE, TIMES, cause=cause, **TRAINING) == pytest.approx(scores)
    found = integrated_cause_brier_score(TIME, EVENT, INCIDENCE, TIMES, cause=cause, **TRAINING)
    assert found == pytest.approx(integrated)


def test_names_flags_and_weights_give_the_same_scores() -> None:
    usual = cause_brier_score(TIME, EVENT, INCIDENCE, TIMES, cause=1, **TRAINING)
    named = cause_brier_score(
        TIME, NAMES[EVENT], INCIDENCE, TIMES, cause="relapse", train_time=TIME, train_event=EVENT > 0
    )
    assert (named == usual).all()
    twice = np.concatenate([np.arange(N), np.arange(5)])
    weight = np.where(np.arange(N) < 5, 2.0, 1.0)
    repeated = cause_brier_score(TIME[twice], EVENT[twice], INCIDENCE[twice], TIMES, cause=1, **TRAINING)
    weighted = cause_brier_score(TIME, EVENT, INCIDENCE, TIMES, cause=1, weight=weight, **TRAINING)
    assert weighted == pytest.approx(repeated)


def test_with_one_cause_it_is_the_usual_score() -> None:
    one = (EVENT == 1).astype(int)
    training = {"train_time": TIME, "train_event": one}
    found = cause_brier_score(TIME, one, INCIDENCE, TIMES, cause=1, **training)
    assert found == pytest.approx(brier_score(TIME, one, 1 - INCIDENCE, TIMES, **training))


@pytest.mark.parametrize("cause", [1, 2])
def test_aalen_johansen_is_that_of_lifelines(cause: int) -> None:
    fitter = AalenJohansenFitter(calculate_variance=False).fit(TIME, EVENT, event_of_interest=cause)
    expected = fitter.cumulative_density_.iloc[:, 0].asof(TIMES).to_numpy()
    assert aalen_johansen(TIME, EVENT, cause).at(TIMES) == pytest.approx(expected, abs=1e-12)
    late = TIME / 3 * (np.arange(N) % 3 == 0)
    fitter = AalenJohansenFitter(calculate_variance=False).fit(TIME, EVENT, event_of_interest=cause, entry=late)
    expected = fitter.cumulative_density_.iloc[:, 0].asof(TIMES).to_numpy()
    assert aalen_johansen(TIME, EVENT, cause, entry=late).at(TIMES) == pytest.approx(expected, abs=1e-12)


def test_aalen_johansen_with_tied_events_and_weights() -> None:
    # At time 2 one of three at risk has each kind of event.
    curve = aalen_johansen([1, 2, 2, 2, 3], [2, 1, 2, 0, 1], 1)
    assert curve.at([1.9, 2, 3]) == pytest.approx([0, 0.8 / 4, 0.2 + 0.4])
    weighted = aalen_johansen([1, 2, 3], [2, 1, 1], 1, weight=[1, 2, 1])
    assert weighted.at([2, 3]) == pytest.approx([0.5, 0.75])
    with pytest.raises(InputError, match="the estimate is known up to 3, the end of follow-up, and is asked for at 4"):
        curve.at([1.0, 4.0])


@pytest.mark.parametrize("cause", [1, 2])
def test_concordance_is_the_share_of_its_pairs(cause: int) -> None:
    risk = INCIDENCE[:, 1].round(1)
    shares = []
    for i, j in itertools.permutations(range(N), 2):
        other = EVENT[j] not in (0, cause)
        if EVENT[i] == cause and (TIME[j] > TIME[i] or other):
            shares.append(float(risk[i] > risk[j]) + 0.5 * float(risk[i] == risk[j]))
    assert cause_concordance(TIME, EVENT, risk, cause=cause) == pytest.approx(np.mean(shares))
    one = (cause == EVENT).astype(int)
    assert cause_concordance(TIME, one, risk, cause=1) == harrell_concordance(TIME, one, risk)


def test_calibration_compares_with_aalen_johansen_in_each_group() -> None:
    chance = INCIDENCE[:, 2]
    found = cause_calibration(TIME, EVENT, chance, 2.0, cause=1, bins=3)
    order = np.argsort(-chance, kind="stable")
    assert found.size.sum() == N
    assert (np.diff(found.expected) < 0).all()
    first = order[: found.size[0]]
    fitter = AalenJohansenFitter(calculate_variance=False).fit(TIME[first], EVENT[first], event_of_interest=1)
    assert found.observed[0] == pytest.approx(fitter.cumulative_density_.iloc[:, 0].asof(2.0))
    assert found.expected[0] == pytest.approx(chance[first].mean())


def test_a_group_may_lack_the_cause_or_end_with_events() -> None:
    predicted = [0.9, 0.9, 0.1, 0.1]
    found = cause_calibration([1, 2, 1, 9], [1, 2, 2, 0], predicted, 5, cause=1, bins=2)
    assert found.observed.tolist() == [0.5, 0.0]


@pytest.mark.parametrize(
    ("score", "message"),
    [
        (lambda: aalen_johansen(TIME, EVENT, 3), "no row of column 'event' has an event of cause 3; the causes.*1, 2"),
        (lambda: aalen_johansen([1, 2], [0, 0], 1), "has an event of cause 1; the causes in it are: none"),
        (lambda: aalen_johansen([1, 2], [1, np.nan], 1), r"column 'event' is missing \(NaN\) in 1 row"),
        (
            lambda: integrated_cause_brier_score(TIME, EVENT, INCIDENCE[:, :1], [1], cause=1, **TRAINING),
            "needs at least two times; use cause_brier_score for a single one",
        ),
        (
            lambda: cause_calibration(TIME, EVENT, INCIDENCE[:5, 0], 2, cause=1),
            "incidence_at has 5 values for 60 rows",
        ),
        (lambda: cause_calibration(TIME, EVENT, INCIDENCE[:, 0], 0, cause=1), "at=0 must be one finite time above 0"),
        (
            lambda: cause_calibration([1, 2, 1, 2], [1, 0, 1, 0], [0.9, 0.9, 0.1, 0.1], 5, cause=1, bins=2),
            "in 2 of the 2 groups no row is followed up to 5",
        ),
        (lambda: cause_brier_score(TIME, EVENT, 1 - INCIDENCE, TIMES, cause=1, **TRAINING), "or falls over time in 60"),
    ],
)
def test_what_is_not_defined_is_refused(score, message: str) -> None:
    with pytest.raises(InputError, match=message):
        score()
