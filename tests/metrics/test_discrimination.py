"""Concordance indices against loops over all pairs and against scikit-survival, torchsurv, pycox and SurvivalEVAL.

Where the packages have other rules than ours (equal event times, equal predictions, G at or before an event) the data
here avoid the difference; `test_disagreements.py` shows it.
"""

import numpy as np
import pytest
from sksurv.metrics import concordance_index_censored, concordance_index_ipcw

from metrics.cohorts import Cohort, censoring_loop, cohort, concordance_loop
from metrics.other_software import (
    interpolated,
    pycox_evaluation,
    structured,
    survivaleval,
    torchsurv_antolini,
    torchsurv_weights,
)
from neuralsurv.errors import InputError
from neuralsurv.metrics import antolini_concordance, curve_pairs, harrell_concordance, uno_concordance

HEAVY = 0.15


def by_risk(c: Cohort):
    return lambda i, j: (-c.risk[i], -c.risk[j])


def by_curve(c: Cohort):
    table = interpolated(c.survival, c.times, np.minimum(c.time, c.times[-1]))
    return lambda i, j: (table[i, i], table[j, i])


def pair_weights(c: Cohort) -> np.ndarray:
    return np.array([censoring_loop(c.train_time, c.train_event, t, left=True) ** -2 for t in c.time])


def repeated(c: Cohort) -> Cohort:
    rows = np.repeat(np.arange(len(c.time)), c.weight.astype(int))
    names = ("time", "event", "survival", "risk", "weight", "entry")
    return Cohort(**{**vars(c), **{name: getattr(c, name)[rows] for name in names}})


@pytest.mark.parametrize("share", [0.6, HEAVY, 1.0])
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_harrell_against_a_loop_and_scikit_survival(seed, tied, share):
    c = cohort(seed, tied=tied, event_share=share)
    found = harrell_concordance(c.time, c.event, c.risk)
    assert found == pytest.approx(concordance_loop(c, by_risk(c)), rel=1e-13)
    assert found == pytest.approx(concordance_index_censored(c.event, c.time, c.risk)[0], rel=1e-13)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_harrell_with_weights_and_late_entry(seed, tied):
    c = cohort(seed, tied=tied)
    weighted = harrell_concordance(c.time, c.event, c.risk, weight=c.weight)
    assert weighted == pytest.approx(concordance_loop(c, by_risk(c), weight=c.weight), rel=1e-13)
    r = repeated(c)
    assert weighted == pytest.approx(concordance_index_censored(r.event, r.time, r.risk)[0], rel=1e-13)
    late = harrell_concordance(c.time, c.event, c.risk, entry=c.entry, weight=c.weight)
    assert late == pytest.approx(concordance_loop(c, by_risk(c), late_entry=True, weight=c.weight), rel=1e-12)
    assert abs(late - weighted) > 1e-4, "entry makes no difference here"


@pytest.mark.parametrize("tau", [None, 1.2])
@pytest.mark.parametrize("share", [0.6, HEAVY])
@pytest.mark.parametrize("seed", range(3))
def test_uno_against_a_loop_and_scikit_survival(seed, share, tau):
    c = cohort(seed, event_share=share)
    found = uno_concordance(c.time, c.event, c.risk, **c.training, tau=tau)
    limit = np.inf if tau is None else tau
    assert found == pytest.approx(concordance_loop(c, by_risk(c), pair=pair_weights(c), tau=limit), rel=1e-12)
    train, test = structured(c.train_time, c.train_event), structured(c.time, c.event)
    assert found == pytest.approx(concordance_index_ipcw(train, test, c.risk, tau=tau)[0], rel=1e-12)
    assert abs(found - harrell_concordance(c.time, c.event, c.risk)) > 1e-5, "weights make no difference here"


@pytest.mark.parametrize("seed", range(3))
def test_uno_with_ties_and_weights_against_a_loop(seed):
    c = cohort(seed, tied=True)
    assert set(c.train_time[~c.train_event]) & set(c.time[c.event]), "no censoring tied with an event"
    found = uno_concordance(c.time, c.event, c.risk, **c.training, tau=8, weight=c.weight)
    expected = concordance_loop(c, by_risk(c), pair=pair_weights(c), tau=8, weight=c.weight)
    assert found == pytest.approx(expected, rel=1e-12)


def test_training_weights_count_as_repeated_rows():
    c = cohort(1, tied=True)
    copies = np.random.default_rng(0).integers(1, 4, len(c.train_time))
    again = {name: np.repeat(values, copies) for name, values in c.training.items()}
    weighted = uno_concordance(c.time, c.event, c.risk, **c.training, train_weight=copies)
    assert weighted == pytest.approx(uno_concordance(c.time, c.event, c.risk, **again), rel=1e-12)
    assert weighted != pytest.approx(uno_concordance(c.time, c.event, c.risk, **c.training), rel=1e-6)
    curves = (c.time, c.event, c.survival, c.times)
    weighted = antolini_concordance(*curves, **c.training, train_weight=copies)
    assert weighted == pytest.approx(antolini_concordance(*curves, **again), rel=1e-12)


def antolini(c: Cohort, **options) -> float:
    return antolini_concordance(c.time, c.event, c.survival, c.times, **options)


@pytest.mark.parametrize("share", [0.6, HEAVY, 1.0])
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_antolini_against_a_loop_torchsurv_and_survivaleval(seed, tied, share):
    c = cohort(seed, tied=tied, event_share=share)
    found = antolini(c)
    assert found == pytest.approx(concordance_loop(c, by_curve(c)), rel=1e-13)
    assert found == pytest.approx(torchsurv_antolini(c.time, c.event, c.survival, c.times), rel=1e-5)
    evaluator = survivaleval(c.time, c.event, c.survival, c.times)
    assert found == pytest.approx(evaluator.concordance_time_dependent()[0], rel=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_antolini_against_pycox_where_curves_are_read_on_the_grid(seed):
    """pycox reads curves as steps and counts equal survival as 0: all event times on the grid, no equal survival."""
    c = cohort(seed, tied=True)
    survival = np.sort(np.random.default_rng(seed).random(c.survival.shape), axis=1)[:, ::-1]
    found = antolini_concordance(c.time, c.event, survival, c.times)
    evaluation = pycox_evaluation(c.time, c.event, survival, c.times)
    assert found == pytest.approx(evaluation.concordance_td("antolini"), rel=1e-12)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_antolini_with_weights_and_late_entry(seed, tied):
    c = cohort(seed, tied=tied)
    weighted = antolini(c, weight=c.weight)
    assert weighted == pytest.approx(antolini(repeated(c)), rel=1e-13)
    late = antolini(c, weight=c.weight, entry=c.entry)
    assert late == pytest.approx(concordance_loop(c, by_curve(c), late_entry=True, weight=c.weight), rel=1e-12)
    assert abs(late - weighted) > 1e-4, "entry makes no difference here"


@pytest.mark.parametrize("seed", range(3))
def test_weighted_antolini_against_a_loop_torchsurv_and_survivaleval(seed):
    c = cohort(seed)
    found = antolini(c, **c.training)
    assert found == pytest.approx(concordance_loop(c, by_curve(c), pair=pair_weights(c)), rel=1e-12)
    weights = torchsurv_weights(c.train_time, c.train_event, c.time)
    assert found == pytest.approx(torchsurv_antolini(c.time, c.event, c.survival, c.times, weights), rel=1e-5)
    evaluator = survivaleval(c.time, c.event, c.survival, c.times, c.train_time, c.train_event)
    assert found == pytest.approx(evaluator.concordance_time_dependent(method="IPCW")[0], rel=1e-12)
    cut = antolini(c, **c.training, tau=1.0)
    assert cut == pytest.approx(concordance_loop(c, by_curve(c), pair=pair_weights(c), tau=1.0), rel=1e-12)
    assert cut == pytest.approx(evaluator.concordance_time_dependent(method="IPCW", tau=1.0)[0], rel=1e-12)


@pytest.mark.parametrize("events", [1, 3, 50])
@pytest.mark.parametrize("tied", [False, True])
def test_antolini_does_not_depend_on_the_size_of_its_blocks(monkeypatch, tied, events):
    c = cohort(5, n=120, tied=tied)
    fractional = c.weight + 0.37
    expected = concordance_loop(c, by_curve(c), late_entry=True, weight=fractional)
    monkeypatch.setattr(curve_pairs, "_EVENTS", events)
    monkeypatch.setattr(curve_pairs, "BLOCK", 16)
    assert antolini(c, entry=c.entry, weight=fractional) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("columns", [1, 2, 300])
def test_antolini_on_grids_of_one_and_of_many_times(columns):
    c = cohort(6, n=80)
    times = np.array([c.time.max()]) if columns == 1 else np.linspace(0, c.time.max(), columns)
    survival = interpolated(c.survival, c.times, times)
    found = antolini_concordance(c.time, c.event, survival, times)
    table = interpolated(survival, times, c.time)
    assert found == pytest.approx(concordance_loop(c, lambda i, j: (table[i, i], table[j, i])), rel=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_antolini_with_entries_at_the_times_of_events_inside_a_block(seed):
    """One interval of the grid, so that all events are one block; some rows enter at the time of an event."""
    c = cohort(seed, tied=True)
    last = np.random.default_rng(seed).random((len(c.time), 1))
    assert set(c.entry[c.entry > 0]) & set(c.time[c.event])
    found = antolini_concordance(c.time, c.event, last, [9.0], entry=c.entry)
    table = interpolated(last, np.array([9.0]), c.time)
    expected = concordance_loop(c, lambda i, j: (table[i, i], table[j, i]), late_entry=True)
    assert found == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("entry", [False, True])
def test_equal_curves_for_everybody_are_worth_one_half(entry):
    c = cohort(2, n=60)
    same = np.tile(c.survival[:1], (60, 1))
    options = {"entry": c.entry} if entry else {}
    assert antolini_concordance(c.time, c.event, same, c.times, **options) == pytest.approx(0.5, abs=1e-15)
    assert harrell_concordance(c.time, c.event, np.zeros(60), **options) == 0.5


@pytest.mark.parametrize("tied", [False, True])
def test_antolini_is_harrell_where_curves_do_not_cross(tied):
    c = cohort(3, n=200, tied=tied)
    survival = np.exp(-np.outer(np.exp(c.risk), c.times) / 50)
    found = antolini_concordance(c.time, c.event, survival, c.times, weight=c.weight)
    assert found == pytest.approx(harrell_concordance(c.time, c.event, c.risk, weight=c.weight), rel=1e-12)


def test_crossing_curves_are_compared_at_the_time_of_each_event():
    time, event = [1, 2, 3, 3], [True, True, False, False]
    survival = [[0.5, 0.45], [0.6, 0.2], [0.7, 0.3], [0.8, 0.1]]
    # At time 1 all three pairs are concordant; at time 2 that with person 2 is, and that with person 3 is not.
    assert antolini_concordance(time, event, survival, [1, 2]) == pytest.approx(4 / 5)


def test_who_has_not_entered_yet_is_not_compared():
    time, event, entry = [1, 2, 3, 4], [True, True, False, False], [0, 0, 0, 1.5]
    survival = [[0.5, 0.3], [0.8, 0.5], [0.9, 0.8], [0.1, 0.1]]
    assert antolini_concordance(time, event, survival, [1, 2]) == pytest.approx(3 / 5)
    assert antolini_concordance(time, event, survival, [1, 2], entry=entry) == pytest.approx(3 / 4)
    risk = [3, 2, 1, 4]
    assert harrell_concordance(time, event, risk) == pytest.approx(3 / 5)
    assert harrell_concordance(time, event, risk, entry=entry) == pytest.approx(3 / 4)


@pytest.mark.parametrize("seed", range(3))
def test_row_order_and_the_unit_of_time_change_nothing(seed):
    c = cohort(seed, tied=True)
    order = np.random.default_rng(seed).permutation(len(c.time))
    found = antolini_concordance(c.time[order] * 7, c.event[order], c.survival[order], c.times * 7)
    assert found == pytest.approx(antolini(c), rel=1e-14)


@pytest.mark.parametrize("index", ["harrell", "uno", "antolini"])
@pytest.mark.parametrize(
    ("time", "event"), [([1.0, 2.0], [0, 1]), ([2.0, 2.0], [1, 1]), ([1.0, 2.0], [0, 0]), ([1.0], [1])]
)
def test_no_comparable_pair(index, time, event):
    call = {
        "harrell": lambda: harrell_concordance(time, event, time),
        "uno": lambda: uno_concordance(time, event, time, train_time=[1, 3], train_event=[1, 1]),
        "antolini": lambda: antolini_concordance(time, event, np.full((len(time), 1), 0.5), [3.0]),
    }[index]
    with pytest.raises(InputError, match=rf"no pair of the {len(time)} rows is comparable .*: the concordance index"):
        call()


def test_fractional_weights_leave_no_pair_where_there_is_none():
    """Sums of fractions in two orders differ in the last bits; that rest is no pair. Only the last row has an event."""
    rng = np.random.default_rng(0)
    for _ in range(5):
        time, weight = rng.permutation(30) + 1.0, rng.random(30)
        by_time = weight[np.argsort(time)]
        event = time == 30
        with pytest.raises(InputError, match="no pair of the 30 rows is comparable"):
            harrell_concordance(time, event, time, weight=weight)
    assert np.cumsum(weight)[-1] != np.cumsum(by_time)[-1], "the sums do not differ here"


@pytest.mark.parametrize("weighted", [uno_concordance, antolini_concordance])
def test_events_after_the_training_follow_up(weighted):
    training = {"train_time": [1.0, 2.0, 3.0], "train_event": [1, 1, 0]}
    time, event = [1.0, 3.0, 3.5, 4.0], [1, 1, 1, 0]
    predictions = ([3, 2, 1, 0],) if weighted is uno_concordance else (np.full((4, 1), 0.5), [4.0])
    with pytest.raises(InputError, match=r"1 of the 3 events lie after 3, the end of the training .* Give tau"):
        weighted(time, event, *predictions, **training)
    # An event at the end itself has a weight: G just before it is above 0.
    assert weighted(time, event, *predictions, **training, tau=3.5) in (0.5, 1.0)


def test_an_event_beyond_the_grid():
    with pytest.raises(InputError, match=r"1 of the 2 events lie after 1, the last time of the curves .* or tau"):
        antolini_concordance([1, 2, 3], [1, 1, 0], np.full((3, 1), 0.5), [1.0])
    assert antolini_concordance([1, 2, 3], [1, 1, 0], [[0.1], [0.5], [0.9]], [1.0], tau=2) == 1.0
    # A censored row may outlast the grid.
    assert antolini_concordance([1, 2, 30], [1, 0, 0], [[0.1], [0.5], [0.9]], [1.0]) == 1.0


def test_what_is_refused():
    time, event, curves = [1, 2, 3], [1, 0, 1], np.full((3, 1), 0.5)
    with pytest.raises(InputError, match=r"risk is missing \(NaN\) in 1 of the 3 rows"):
        harrell_concordance(time, event, [1, np.nan, 2])
    with pytest.raises(InputError, match=r"risk has shape \(2,\); 3 rows need one number each"):
        harrell_concordance(time, event, [1, 2])
    with pytest.raises(InputError, match="risk cannot be read as numbers"):
        harrell_concordance(time, event, ["a", "b", "c"])
    with pytest.raises(InputError, match=r"tau=0 must be a time above 0"):
        antolini_concordance(time, event, curves, [3], tau=0)
    with pytest.raises(InputError, match="train_time and train_event belong together"):
        antolini_concordance(time, event, curves, [3], train_time=[1, 2])
    with pytest.raises(InputError, match="entry and train_time are both given"):
        antolini_concordance(time, event, curves, [3], train_time=[1, 4], train_event=[1, 1], entry=[0, 0, 0])
    with pytest.raises(InputError, match="column 'weight' is 0 in all 3 rows: there are no rows to score"):
        harrell_concordance(time, event, time, weight=[0, 0, 0])
    with pytest.raises(InputError, match="column 'train_time' is missing"):
        uno_concordance(time, event, time, train_time=[1, np.nan], train_event=[1, 1])


def test_infinite_risks_are_risks():
    assert harrell_concordance([1, 2, 3], [1, 1, 0], [np.inf, 0.0, -np.inf]) == 1.0
