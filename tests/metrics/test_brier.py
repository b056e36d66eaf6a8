"""Brier scores against a loop, scikit-survival, torchsurv, SurvivalEVAL and pycox."""

import numpy as np
import pytest
from sksurv.metrics import brier_score as sksurv_brier
from sksurv.metrics import integrated_brier_score as sksurv_integrated

from metrics.cohorts import Cohort, brier_loop, cohort
from metrics.other_software import pycox_evaluation, structured, survivaleval, torchsurv_brier
from neuralsurv.errors import InputError
from neuralsurv.metrics import brier_score, censoring_horizon, integrated_brier_score


def scored(seed: int, *, share: float = 0.6, tied: bool = False) -> Cohort:
    """A cohort whose grid lies within its own follow-up, as scikit-survival asks."""
    c = cohort(seed, tied=tied, event_share=share)
    inside = (c.times >= c.time.min()) & (c.times < c.time.max())
    assert inside.sum() > 3
    return Cohort(**{**vars(c), "times": c.times[inside], "survival": c.survival[:, inside]})


def ours(c: Cohort, **options) -> np.ndarray:
    return brier_score(c.time, c.event, c.survival, c.times, **c.training, **options)


@pytest.mark.parametrize("share", [0.6, 0.15, 1.0])
@pytest.mark.parametrize("seed", range(4))
def test_against_a_loop_and_other_software(seed, share):
    c = scored(seed, share=share)
    assert not set(c.time) & set(c.train_time), "ties bring out the packages' differences"
    found = ours(c)
    assert found == pytest.approx([brier_loop(c, k) for k in range(len(c.times))], rel=1e-12)
    train, test = structured(c.train_time, c.train_event), structured(c.time, c.event)
    assert found == pytest.approx(sksurv_brier(train, test, c.survival, c.times)[1], rel=1e-12)
    # torchsurv holds the Kaplan–Meier estimate in single precision.
    values, integral = torchsurv_brier(c.time, c.event, c.survival, c.times, c.train_time, c.train_event)
    assert found == pytest.approx(values, rel=1e-5)
    integrated = integrated_brier_score(c.time, c.event, c.survival, c.times, **c.training)
    assert integrated == pytest.approx(sksurv_integrated(train, test, c.survival, c.times), rel=1e-12)
    assert integrated == pytest.approx(integral, rel=1e-5)
    if share < 1:
        evaluator = survivaleval(c.time, c.event, c.survival, c.times, c.train_time, c.train_event)
        assert found == pytest.approx(evaluator.brier_score_multiple_points(c.times), rel=1e-12)
        assert integrated == pytest.approx(evaluator.integrated_brier_score(target_times=c.times), rel=1e-12)


@pytest.mark.parametrize("share", [0.6, 0.15])
@pytest.mark.parametrize("seed", range(3))
def test_against_pycox_with_weights_from_the_scored_rows(seed, share):
    """pycox divides by the sum of the weights, which for weights from the scored rows is their number."""
    c = scored(seed, share=share)
    inside = c.times < c.time[~c.event].max()
    times, survival = c.times[inside], c.survival[:, inside]
    evaluation = pycox_evaluation(c.time, c.event, survival, times, censor_surv="km")
    found = brier_score(c.time, c.event, survival, times, train_time=c.time, train_event=c.event)
    assert found == pytest.approx(evaluation.brier_score(times).to_numpy(), rel=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_ties_and_weights_against_a_loop(seed):
    c = scored(seed, tied=True)
    assert set(c.train_time[~c.train_event]) & set(c.time[c.event]), "no censoring tied with an event"
    grid = range(len(c.times))
    assert ours(c) == pytest.approx([brier_loop(c, k) for k in grid], rel=1e-12)
    weighted = ours(c, weight=c.weight)
    assert weighted == pytest.approx([brier_loop(c, k, weight=c.weight) for k in grid], rel=1e-12)
    rows = np.repeat(np.arange(len(c.time)), c.weight.astype(int))
    again = brier_score(c.time[rows], c.event[rows], c.survival[rows], c.times, **c.training)
    assert weighted == pytest.approx(again, rel=1e-12)
    assert integrated_brier_score(c.time, c.event, c.survival, c.times, **c.training, weight=c.weight) == pytest.approx(
        np.trapezoid(weighted, c.times) / (c.times[-1] - c.times[0]), rel=1e-12
    )


def test_training_weights_count_as_repeated_rows():
    c = scored(1, tied=True)
    copies = np.random.default_rng(0).integers(1, 4, len(c.train_time))
    again = {name: np.repeat(values, copies) for name, values in c.training.items()}
    arguments = (c.time, c.event, c.survival, c.times)
    weighted = brier_score(*arguments, **c.training, train_weight=copies)
    assert weighted == pytest.approx(brier_score(*arguments, **again), rel=1e-12)
    assert weighted != pytest.approx(ours(c), rel=1e-6)
    integral = integrated_brier_score(*arguments, **c.training, train_weight=copies)
    assert integral == pytest.approx(integrated_brier_score(*arguments, **again), rel=1e-12)


def test_without_censoring_it_is_the_mean_squared_error():
    rng = np.random.default_rng(0)
    time, survival, times = rng.exponential(size=30), np.sort(rng.random((30, 4)))[:, ::-1], [0.1, 0.5, 1.0, 1.5]
    everybody = np.ones(30)
    found = brier_score(time, everybody, survival, times, train_time=time, train_event=everybody)
    alive = time[:, None] > np.array(times)
    assert found == pytest.approx(((alive - survival) ** 2).mean(axis=0), rel=1e-12)


def test_times_after_the_training_follow_up():
    training = {"train_time": [1.0, 2.0, 3.0], "train_event": [1, 1, 1]}
    curves = np.full((2, 2), 0.5)
    with pytest.raises(InputError, match=r"1 of the 2 times \(the first is 4\) cannot be scored: no training row"):
        brier_score([5.0, 6.0], [1, 1], curves, [2.0, 4.0], **training)
    with pytest.raises(InputError, match=r"1 of the 2 events lie after 3, .* Let the grid end before these events"):
        brier_score([2.0, 3.5], [1, 1], curves, [2.0, 4.0], **training)
    # Nobody is left to be weighted at 4, and the events have weights.
    assert brier_score([2.0, 2.5], [1, 1], curves, [1.0, 4.0], **training) == pytest.approx([0.25, 0.25])
    # At the end of follow-up itself G is known if that is an event, and 0 if it is a censoring.
    assert brier_score([5.0, 6.0], [1, 1], curves, [2.0, 3.0], **training) == pytest.approx([0.25, 0.25])
    training["train_event"] = [1, 1, 0]
    with pytest.raises(InputError, match=r"1 of the 2 times \(the first is 3\) cannot be scored"):
        brier_score([5.0, 6.0], [1, 1], curves, [2.0, 3.0], **training)


@pytest.mark.parametrize("seed", range(5))
def test_a_grid_up_to_the_horizon_is_always_scored(seed):
    rng = np.random.default_rng(seed)
    train_time, train_event = rng.integers(1, 9, 12).astype(float), rng.random(12) < 0.5
    horizon = censoring_horizon(train_time, train_event)
    times = np.unique(np.append(np.arange(0.5, horizon, 0.5), horizon))
    curves = np.full((3, len(times)), 0.5)
    found = brier_score([2.0, 4.0, 50.0], [1, 1, 1], curves, times, train_time=train_time, train_event=train_event)
    assert np.isfinite(found).all()


def test_a_time_at_which_everybody_has_been_censored():
    training = {"train_time": [1.0, 9.0], "train_event": [1, 1]}
    with pytest.raises(InputError, match=r"at 1 of the 2 times \(the first is 3\) every row has been censored"):
        brier_score([2.0, 2.5], [0, 0], np.full((2, 2), 0.5), [1.0, 3.0], **training)
    # An event at the grid time itself is known.
    assert brier_score([2.0, 2.5], [0, 1], [[0.5], [0.4]], [2.5], **training) == pytest.approx([0.16 / 2])


def test_rows_of_weight_zero_are_not_there():
    training = {"train_time": [1.0, 2.0, 3.0], "train_event": [1, 1, 0]}
    curves = np.full((3, 1), 0.5)
    found = brier_score([1.5, 3.5, 4.0], [1, 1, 0], curves, [3.6], **training, weight=[1, 0, 0])
    assert found == pytest.approx([0.25])
    with pytest.raises(InputError, match="every row has been censored"):
        brier_score([1.5, 1.0, 4.0], [0, 1, 0], curves, [2.0], **training, weight=[1, 0, 0])


def test_a_single_time_has_no_integral():
    with pytest.raises(InputError, match="needs at least two times; use brier_score for a single one"):
        integrated_brier_score([1, 2], [1, 1], [[0.5], [0.5]], [1], train_time=[1, 2], train_event=[1, 1])


def test_a_long_scoring_holds_no_second_table():
    """Peak memory beyond the table itself stays at a few columns."""
    import tracemalloc

    rng = np.random.default_rng(0)
    n, columns = 20_000, 100
    time, event = rng.exponential(size=n), rng.random(n) < 0.6
    times = np.linspace(0.01, 2, columns)
    survival = np.exp(-np.outer(rng.exponential(size=n), times))
    tracemalloc.start()
    brier_score(time, event, survival, times, train_time=time, train_event=event)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < survival.nbytes / 2
