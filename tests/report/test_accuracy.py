import numpy as np
import pytest
from lifelines import KaplanMeierFitter
from scipy.stats import binomtest
from sksurv.metrics import brier_score, cumulative_dynamic_auc

from neuralsurv.data.outcome import Outcome
from neuralsurv.metrics import survival_at
from neuralsurv.report.accuracy import dynamic_auc, measure


def curves(n=200, seed=0, late=False):
    """Exponential people with their true curves, on a grid."""
    rng = np.random.default_rng(seed)
    rate = np.exp(rng.normal(size=n))
    death, leave = rng.exponential(1 / rate), rng.exponential(1.5, size=n)
    time = np.minimum(death, leave)
    entry = np.where(rng.random(n) < 0.3, 0.3 * time, 0.0) if late else None
    outcome = Outcome.from_arrays(time, death <= leave, entry)
    times = np.linspace(0, time.max(), 400)
    return outcome, np.exp(-rate[:, None] * times), times


def structured(outcome):
    return np.array(list(zip(outcome.event, outcome.time, strict=True)), dtype=[("e", bool), ("t", float)])


def test_area_under_the_roc_curve_is_that_of_scikit_survival():
    outcome, survival, times = curves()
    found = measure(outcome, survival, times, np.array([0.3])).discrimination
    inside = slice(1, -1)
    at = found.index[inside].to_numpy()
    risk = np.stack([1 - survival_at(np.full(len(outcome), t), survival, times) for t in at], axis=1)
    expected = cumulative_dynamic_auc(structured(outcome), structured(outcome), risk, at)[0]
    np.testing.assert_allclose(found["value"].iloc[inside], expected, rtol=1e-10)
    assert (found["lower"] <= found["value"]).all()
    assert (found["value"] <= found["upper"]).all()
    assert (found["upper"] - found["lower"]).max() < 0.3


def test_ties_count_half_and_weights_are_copies():
    risk = np.array([1.0, 1.0, 2.0, 0.0])
    case, control = np.array([[1.0, 0, 1, 0]]), np.array([[0, 1.0, 0, 1]])
    assert dynamic_auc(risk, case, control) == pytest.approx([(0.5 + 1 + 1 + 1) / 4])
    double = dynamic_auc(np.append(risk, 2.0), np.array([[1.0, 0, 1, 0, 1]]), np.array([[0, 1.0, 0, 1, 0]]))
    assert dynamic_auc(risk, np.array([[1.0, 0, 2, 0]]), control) == pytest.approx(double)
    assert np.isnan(dynamic_auc(risk, 0 * case, control)).all()


def test_brier_scores_of_model_and_kaplan_meier():
    outcome, survival, times = curves()
    found = measure(outcome, survival, times, np.array([0.3])).brier
    found = found[(found.index > outcome.time.min()) & (found.index < outcome.time.max())]
    grid = found.index.to_numpy()
    table = np.stack([survival_at(np.full(len(outcome), t), survival, times) for t in grid], axis=1)
    expected = brier_score(structured(outcome), structured(outcome), table, grid)[1]
    np.testing.assert_allclose(found["model"], expected, rtol=1e-10)
    assert found["model"].mean() < found["reference"].mean()


def test_calibration_in_groups():
    outcome, survival, times = curves()
    groups = measure(outcome, survival, times, np.array([0.5])).groups[0]
    predicted = survival_at(np.full(len(outcome), 0.5), survival, times)
    assert len(groups.table["size"]) == 10
    assert groups.table["size"].sum() == len(outcome)
    lowest = np.argsort(predicted)[:20]
    estimate = KaplanMeierFitter(alpha=0.1).fit(outcome.time[lowest], outcome.event[lowest])
    assert groups.table["predicted"][0] == pytest.approx(predicted[lowest].mean())
    assert groups.table["observed"][0] == pytest.approx(estimate.predict(0.5))
    ends = estimate.confidence_interval_survival_function_.loc[:0.5].iloc[-1].to_numpy()
    assert (groups.table["lower"][0], groups.table["upper"][0]) == pytest.approx(tuple(ends))
    # These are the true curves, and the seed is fixed: a false alarm had a chance of 1 in 1,000.
    assert groups.p_value > 1e-3
    assert 2 <= groups.tested <= 10


def test_groups_that_are_not_watched_that_long_are_left_out():
    outcome = Outcome.from_arrays(np.concatenate([np.full(10, 1.0), np.full(10, 5.0)]), np.ones(20))
    outcome = Outcome.from_arrays(outcome.time, np.concatenate([np.zeros(10), np.ones(10)]))
    survival = np.concatenate([np.tile([1.0, 0.2], (10, 1)), np.tile([1.0, 0.9], (10, 1))])
    groups = measure(outcome, survival, np.array([0.0, 5.0]), np.array([3.0])).groups[0]
    assert groups.table["size"].tolist() == [10]
    assert groups.p_value is None
    # All ten are watched and alive: the exact binomial bound of ten rows.
    assert (groups.table["observed"][0], groups.table["upper"][0]) == (1, 1)
    assert groups.table["lower"][0] == pytest.approx(binomtest(10, 10).proportion_ci(0.9, method="exact").low)
    later = measure(outcome, survival, np.array([0.0, 5.0]), np.array([5.0])).groups[0]
    assert later.table["observed"].tolist() == [0]
    assert later.table["upper"][0] == pytest.approx(binomtest(0, 10).proportion_ci(0.9, method="exact").high)


def test_late_entry_leaves_out_what_is_not_defined():
    outcome, survival, times = curves(late=True)
    found = measure(outcome, survival, times, np.array([0.5]))
    assert found.late
    assert found.discrimination is None
    assert found.brier is None
    assert found.distance is None
    assert 0.6 < found.concordance < 1
    # The true curves given entry are calibrated.
    assert found.distribution.p_value > 1e-3


def test_few_events():
    outcome = Outcome.from_arrays([1, 2, 3, 4], [1, 0, 0, 0])
    survival = np.tile(np.array([1.0, 0.5]), (4, 1))
    found = measure(outcome, survival, np.array([0.0, 4.0]), np.array([2.0]))
    assert found.discrimination is None
    assert found.concordance == 0.5


def test_no_comparable_pair():
    outcome = Outcome.from_arrays([4, 1, 2, 3], [1, 0, 0, 0])
    found = measure(outcome, np.tile(np.array([1.0, 0.5]), (4, 1)), np.array([0.0, 4.0]), np.array([2.0]))
    assert found.concordance is None
