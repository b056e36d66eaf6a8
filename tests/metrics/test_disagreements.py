"""The table of docs/metrics.md, "Differences between packages": every statement, on data small enough to follow."""

import numpy as np
import pytest
from sksurv.exceptions import NoComparablePairException
from sksurv.metrics import brier_score as sksurv_brier
from sksurv.metrics import concordance_index_censored, concordance_index_ipcw
from SurvivalEVAL.evaluations.calibration.distributional import d_calibration as survivaleval_d
from SurvivalEVAL.evaluations.calibration.single_time import one_calibration as survivaleval_one

from metrics.cohorts import Cohort, brier_loop, cohort
from metrics.other_software import (
    pycox_evaluation,
    structured,
    survivaleval,
    torchsurv_antolini,
    torchsurv_brier,
    torchsurv_weights,
)
from neuralsurv.errors import InputError
from neuralsurv.metrics import (
    antolini_concordance,
    brier_score,
    d_calibration,
    harrell_concordance,
    integrated_brier_score,
    km_calibration,
    one_calibration,
    uno_concordance,
)

# Two events at time 2, and one row that lives on; survival at time 2 and after.
TWO_EVENTS = (np.array([2.0, 2.0, 3.0]), np.array([True, True, False]))
TWO_EVENT_CURVES = np.array([[0.1, 0.1], [0.2, 0.2], [0.9, 0.9]])
GRID = np.array([2.0, 3.0])


def test_two_events_at_one_time():
    time, event = TWO_EVENTS
    arguments = (time, event, TWO_EVENT_CURVES, GRID)
    # Two pairs, with the third row; both are concordant.
    assert antolini_concordance(*arguments) == 1.0
    assert concordance_index_censored(event, time, -TWO_EVENT_CURVES[:, 0])[0] == 1.0
    assert torchsurv_antolini(*arguments) == 1.0
    assert survivaleval(*arguments).concordance_time_dependent()[0] == 1.0
    assert pycox_evaluation(*arguments).concordance_td("antolini") == 1.0
    # pycox's default adds the two events, in both orders, one half each.
    assert pycox_evaluation(*arguments).concordance_td() == pytest.approx((2 + 0.5 + 0.5) / 4)


def test_an_event_and_a_censoring_at_one_time_are_compared_by_all():
    time, event = np.array([2.0, 2.0, 3.0]), np.array([True, False, False])
    arguments = (time, event, np.array([[0.5, 0.5], [0.9, 0.9], [0.1, 0.1]]), GRID)
    assert antolini_concordance(*arguments) == 0.5
    assert concordance_index_censored(event, time, -arguments[2][:, 0])[0] == 0.5
    assert torchsurv_antolini(*arguments) == 0.5
    assert pycox_evaluation(*arguments).concordance_td("antolini") == 0.5
    assert survivaleval(*arguments).concordance_time_dependent()[0] == 0.5


def test_equal_and_nearly_equal_predictions():
    time, event = np.array([1.0, 2.0]), np.array([True, False])

    def indices(first, second):
        curves = np.array([[first, first], [second, second]])
        arguments = (time, event, curves, np.array([1.0, 2.0]))
        return {
            "ours": antolini_concordance(*arguments),
            "harrell": harrell_concordance(time, event, [-first, -second]),
            "scikit-survival": concordance_index_censored(event, time, np.array([-first, -second]))[0],
            "torchsurv": torchsurv_antolini(*arguments),
            "pycox antolini": pycox_evaluation(*arguments).concordance_td("antolini"),
            "pycox default": pycox_evaluation(*arguments).concordance_td(),
            "SurvivalEVAL": survivaleval(*arguments).concordance_time_dependent()[0],
        }

    equal = dict.fromkeys(indices(0.5, 0.5), 0.5)
    assert indices(0.5, 0.5) == {**equal, "pycox antolini": 0.0}
    # Concordant by 1e-9, which some call a tie.
    apart = dict.fromkeys(equal, 1.0)
    assert indices(0.5, 0.5 + 1e-9) == {**apart, "scikit-survival": 0.5, "torchsurv": 0.5, "SurvivalEVAL": 0.5}
    # torchsurv rounds to single precision before it looks for ties.
    assert indices(0.75, 0.75 + 2e-8) == {**apart, "torchsurv": 0.5}


def test_curves_between_two_times_of_the_grid():
    """At time 1.5, between 1 and 2, the lines have crossed; the steps have not."""
    time, event, times = np.array([1.5, 3.0]), np.array([True, False]), np.array([1.0, 2.0])
    survival = np.array([[0.8, 0.1], [0.7, 0.6]])
    arguments = (time, event, survival, times)
    assert antolini_concordance(*arguments) == 1.0
    assert survivaleval(*arguments).concordance_time_dependent()[0] == 1.0
    assert pycox_evaluation(*arguments).concordance_td("antolini") == 0.0
    assert pycox_evaluation(*arguments, steps="pre").concordance_td("antolini") == 1.0


def test_an_event_after_the_grid():
    time, event, times = np.array([2.5, 9.0]), np.array([True, False]), np.array([1.0, 2.0])
    survival = np.array([[0.8, 0.7], [0.5, 0.5]])
    with pytest.raises(InputError, match="1 of the 1 events lie after 2"):
        antolini_concordance(time, event, survival, times)
    # pycox holds the last value; SurvivalEVAL goes on along the line from (0, 1) to the last point.
    assert pycox_evaluation(time, event, survival, times).concordance_td("antolini") == 0.0
    read = survivaleval(time, event, survival, times).predict_probability_from_curve(time)
    assert read[0] == pytest.approx(0.7 - 0.5 * 0.3 / 2)


def test_a_missing_survival():
    time, event, times = np.array([1.0, 2.0]), np.array([True, False]), np.array([1.0, 2.0])
    survival = np.array([[0.5, 0.5], [np.nan, np.nan]])
    with pytest.raises(InputError, match="survival is missing"):
        antolini_concordance(time, event, survival, times)
    assert torchsurv_antolini(time, event, survival, times) == 0.0
    assert pycox_evaluation(time, event, survival, times).concordance_td("antolini") == 0.0
    with pytest.raises(ValueError, match="contains null values"):
        survivaleval(time, event, survival, times)
    with pytest.raises(ValueError, match="contains NaN"):
        concordance_index_censored(event, time, -survival[:, 0])


def test_no_comparable_pair_is_an_error_everywhere():
    time, event, times = np.array([1.0, 2.0]), np.array([False, True]), np.array([1.0, 2.0])
    arguments = (time, event, np.full((2, 2), 0.5), times)
    with pytest.raises(InputError, match="no pair of the 2 rows is comparable"):
        antolini_concordance(*arguments)
    with pytest.raises(NoComparablePairException, match="no comparable pairs"):
        concordance_index_censored(event, time, time)
    with pytest.raises(ValueError, match="No comparable pairs"):
        torchsurv_antolini(*arguments)
    with pytest.raises(ZeroDivisionError, match="division by zero"):
        pycox_evaluation(*arguments).concordance_td("antolini")
    with pytest.raises(ValueError, match="no comparable pairs"):
        survivaleval(*arguments).concordance_time_dependent()


# A training censoring at time 2, where a scored row has its event; of six training rows one is censored at 1, and of
# the four that are left after the event at 2 one is censored then: G is 5/6 just before 2 and 5/8 from 2 on.
TRAINING = (np.array([1.0, 2.0, 2.0, 3.0, 4.0, 9.0]), np.array([False, True, False, True, True, True]))
SCORED = (np.array([2.0, 2.5, 5.0]), np.array([True, False, True]))
SCORED_CURVES = np.array([[0.4, 0.3], [0.8, 0.7], [0.9, 0.6]])
SCORED_GRID = np.array([2.2, 3.5])


def test_censoring_weight_at_an_event():
    first, controls = 0.4**2, 0.2**2 + 0.1**2
    before, at = 5 / 6, 5 / 8
    train = dict(zip(("train_time", "train_event"), TRAINING, strict=True))
    ours = brier_score(*SCORED, SCORED_CURVES, SCORED_GRID, **train)
    evaluator = survivaleval(*SCORED, SCORED_CURVES, SCORED_GRID, *TRAINING)
    expected = (first / before + controls / at) / 3
    assert ours[0] == pytest.approx(expected, rel=1e-12)
    assert evaluator.brier_score_multiple_points(SCORED_GRID)[0] == pytest.approx(expected, rel=1e-12)
    other = (first / at + controls / at) / 3
    structures = structured(*TRAINING), structured(*SCORED)
    assert sksurv_brier(*structures, SCORED_CURVES, SCORED_GRID)[1][0] == pytest.approx(other, rel=1e-12)
    assert torchsurv_brier(*SCORED, SCORED_CURVES, SCORED_GRID, *TRAINING)[0][0] == pytest.approx(other, rel=1e-6)


def test_pycox_takes_the_weight_just_before_an_event():
    """G, with both at risk at time 2, is 3/4 before it and 1/2 from then on."""
    time, event = np.array([1.0, 2.0, 2.0, 3.0]), np.array([False, True, False, True])
    survival = np.array([[0.8], [0.4], [0.7], [0.9]])
    found = pycox_evaluation(time, event, survival, [2.5], censor_surv="km").brier_score(np.array([2.5]))
    assert found.to_numpy() == pytest.approx((0.4**2 * 4 / 3 + 0.1**2 * 2) / (4 / 3 + 2), rel=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_scikit_survival_and_torchsurv_are_the_loop_with_the_weight_at_the_event(seed):
    c = cohort(seed, tied=True)
    times, survival = c.times[:-1], c.survival[:, :-1]
    c = Cohort(**{**vars(c), "times": times, "survival": survival})
    at = [brier_loop(c, k, left=False) for k in range(len(times))]
    train, test = structured(c.train_time, c.train_event), structured(c.time, c.event)
    assert sksurv_brier(train, test, survival, times)[1] == pytest.approx(at, rel=1e-12)
    ours = brier_score(c.time, c.event, survival, times, **c.training)
    assert ours != pytest.approx(at, rel=1e-4)
    # The same for Uno's index.
    assert concordance_index_ipcw(train, test, c.risk)[0] != pytest.approx(
        uno_concordance(c.time, c.event, c.risk, **c.training), rel=1e-6
    )


def test_pycox_keeps_events_at_risk_of_a_censoring_at_their_time():
    """At time 2 one of the five who are left is censored, and pycox divides by all five."""
    curve = pycox_evaluation(*TRAINING, np.full((6, 1), 0.5), [9.0], censor_surv="km").censor_surv.surv[0]
    assert curve.loc[2.0] == pytest.approx(5 / 6 * 4 / 5)
    assert torchsurv_weights(*TRAINING, np.array([2.0]))[0] == pytest.approx(8 / 5)


def test_pycox_divides_by_the_sum_of_the_weights():
    """With weights from other rows it is not the number of rows; no ties here, so that the weights are the same."""
    c = cohort(0)
    times, survival = c.times[:3], c.survival[:, :3]
    evaluation = pycox_evaluation(c.time, c.event, survival, times)
    training = pycox_evaluation(c.train_time, c.train_event, np.full((len(c.train_time), 1), 0.5), [1.0])
    curve = training.add_km_censor().censor_surv.surv[[0] * len(c.time)]
    curve.columns = range(len(c.time))
    evaluation.add_censor_est(curve)
    ours = brier_score(c.time, c.event, survival, times, **c.training)
    # With S = 1 the score is the sum of the weights of events, with S = 0 that of survivors.
    ones = np.ones_like(survival)
    weights = sum(brier_score(c.time, c.event, table, times, **c.training) for table in (ones, 0 * ones))
    assert weights != pytest.approx(np.ones(3), rel=1e-3)
    assert evaluation.brier_score(times).to_numpy() == pytest.approx(ours / weights, rel=1e-12)


def test_a_row_censored_at_a_time_of_the_grid():
    """Ours counts it 0, as the others do; SurvivalEVAL counts it as alive, with G just before for all who are."""
    time, event, times = np.array([2.0, 5.0]), np.array([False, True]), np.array([2.0, 3.0])
    survival = np.array([[0.6, 0.5], [0.9, 0.8]])
    train = dict(zip(("train_time", "train_event"), TRAINING, strict=True))
    ours = brier_score(time, event, survival, times, **train)[0]
    assert ours == pytest.approx(0.1**2 * 8 / 5 / 2, rel=1e-12)
    structures = structured(*TRAINING), structured(time, event)
    assert sksurv_brier(*structures, survival, times)[1][0] == pytest.approx(ours, rel=1e-12)
    assert torchsurv_brier(time, event, survival, times, *TRAINING)[0][0] == pytest.approx(ours, rel=1e-6)
    # Divided by the sum of the weights, it is the error of the one row that is alive.
    pycox = pycox_evaluation(time, event, survival, times, censor_surv="km").brier_score(times)
    assert pycox.to_numpy()[0] == pytest.approx(0.1**2, rel=1e-12)
    evaluator = survivaleval(time, event, survival, times, *TRAINING)
    expected = (0.4**2 + 0.1**2) * 6 / 5 / 2
    assert evaluator.brier_score_multiple_points(times)[0] == pytest.approx(expected, rel=1e-12)


def test_weights_that_are_not_defined():
    """The last training row is censored at 3, so that G is 0 there; two of the rows to score are alive at 3."""
    training = np.array([1.0, 2.0, 3.0]), np.array([True, False, False])
    time, event, times = np.array([1.0, 6.0, 7.0]), np.array([True, True, False]), np.array([2.5, 3.0])
    survival = np.full((3, 2), 0.5)
    train = dict(zip(("train_time", "train_event"), training, strict=True))
    with pytest.raises(InputError, match=r"1 of the 2 times \(the first is 3\) cannot be scored"):
        brier_score(time, event, survival, times, **train)
    # Two of the three rows are left out of the mean without a word.
    only_the_first = 0.5**2 / 3
    structures = structured(*training), structured(time, event)
    assert sksurv_brier(*structures, survival, times)[1][1] == pytest.approx(only_the_first)
    assert torchsurv_brier(time, event, survival, times, *training)[0][1] == pytest.approx(only_the_first)
    # SurvivalEVAL takes G just before the time, which is above 0 here, and refuses later ones.
    evaluator = survivaleval(time, event, np.full((3, 3), 0.5), np.array([2.5, 3.0, 4.0]), *training)
    with pytest.raises(ValueError, match="Censoring survival must be finite and positive"):
        evaluator.brier_score_multiple_points(np.array([4.0]))


def test_times_after_the_training_follow_up():
    """The last training row has the event at 3: G is above 0 then, and nothing says what it is later."""
    training = np.array([1.0, 2.0, 3.0]), np.array([True, False, True])
    at = np.array([4.0])
    train = dict(zip(("train_time", "train_event"), training, strict=True))
    scored = (np.array([1.0, 6.0, 7.0]), np.array([True, True, False]))
    with pytest.raises(InputError, match=r"1 of the 1 times \(the first is 4\) cannot be scored"):
        brier_score(*scored, np.full((3, 1), 0.5), at, **train)
    with pytest.raises(ValueError, match="time must be smaller than largest observed time point"):
        sksurv_brier(structured(*training), structured(*scored), np.full((3, 1), 0.5), at)
    # torchsurv holds the last value, SurvivalEVAL goes on along a line.
    assert torchsurv_weights(*training, at)[0] == pytest.approx(2.0)
    evaluator = survivaleval(*scored, np.full((3, 2), 0.5), np.array([4.0, 5.0]), *training)
    line = 0.5 - 0.5 / 3
    assert evaluator.brier_score_multiple_points(at)[0] == pytest.approx(0.25 * (1 + 2 / line) / 3)


def test_scored_rows_without_censoring():
    """SurvivalEVAL's evaluator then leaves the weights out, whatever the training rows; the others keep them."""
    time, event = np.array([2.5, 3.2, 5.0]), np.ones(3, dtype=bool)
    train = dict(zip(("train_time", "train_event"), TRAINING, strict=True))
    ours = brier_score(time, event, SCORED_CURVES, SCORED_GRID, **train)[1]
    structures = structured(*TRAINING), structured(time, event)
    times = np.array([2.6, 3.5])
    assert ours == pytest.approx((0.3**2 + 0.7**2 + 0.4**2) * 8 / 5 / 3)
    assert sksurv_brier(*structures, SCORED_CURVES, times)[1][1] == pytest.approx(ours)
    assert torchsurv_brier(time, event, SCORED_CURVES, SCORED_GRID, *TRAINING)[0][1] == pytest.approx(ours, rel=1e-6)
    evaluator = survivaleval(time, event, SCORED_CURVES, SCORED_GRID, *TRAINING)
    assert evaluator.brier_score_multiple_points(SCORED_GRID)[1] == pytest.approx(ours * 5 / 8)


def test_rule_of_the_integral():
    time, event = np.array([1.0, 2.0, 3.0, 5.0]), np.ones(4, dtype=bool)
    times = np.array([1.5, 2.5, 4.0])
    survival = np.array([[0.5, 0.3, 0.1], [0.8, 0.5, 0.2], [0.9, 0.8, 0.1], [0.9, 0.9, 0.7]])
    train = {"train_time": time, "train_event": event}
    scores = brier_score(time, event, survival, times, **train)
    ours = integrated_brier_score(time, event, survival, times, **train)
    assert ours == pytest.approx((1.0 * (scores[0] + scores[1]) / 2 + 1.5 * (scores[1] + scores[2]) / 2) / 2.5)
    assert torchsurv_brier(time, event, survival, times, time, event)[1] == pytest.approx(ours, rel=1e-6)
    from scipy.integrate import simpson

    evaluation = pycox_evaluation(time, event, survival, times, censor_surv="km")
    by_simpson = simpson(scores, x=times) / 2.5
    assert evaluation.integrated_brier_score(times) == pytest.approx(by_simpson, rel=1e-10)
    assert by_simpson != pytest.approx(ours, rel=1e-3)


def test_order_of_the_bins_of_d_calibration():
    event, chance = np.array([True, True, False]), np.array([0.95, 0.85, 0.5])
    ours = d_calibration(event, chance).histogram
    assert ours[-1] == ours[-2] == 1.0
    assert survivaleval_d(chance, event)[2] == pytest.approx(ours[::-1])


def test_integral_of_km_calibration():
    """One event at 1, curve from 1 down to 0: the squared distance is (1 − t)² − …, at its two ends 0 and 0."""
    time, event = np.array([1.0]), np.array([True])
    survival, times = np.array([[0.5, 0.0]]), np.array([0.5, 1.0])
    assert km_calibration(time, event, survival, times) == pytest.approx(1 / 3)
    assert km_calibration(time, event, survival, times, rule="trapezoid") == 0.0
    assert survivaleval(time, event, survival, times).km_calibration() == 0.0


def test_groups_of_one_calibration():
    """Equal predictions: ours keeps them together; SurvivalEVAL cuts by the order of the rows."""
    rng = np.random.default_rng(0)
    time, event, chance = rng.exponential(size=60), np.ones(60, dtype=bool), np.repeat([0.3, 0.5, 0.6], 20)
    order = rng.permutation(60)
    ours = [one_calibration(time[o], event[o], chance[o], 0.8, bins=4).statistic for o in (np.arange(60), order)]
    assert ours[0] == pytest.approx(ours[1], rel=1e-12)
    theirs = [survivaleval_one(1 - chance[o], time[o], event[o], 0.8, num_bins=4)[1] for o in (np.arange(60), order)]
    assert theirs[0] != pytest.approx(theirs[1], rel=1e-3)


def test_a_group_of_one_calibration_without_events():
    time, event, chance = np.arange(1.0, 9), np.ones(8, dtype=bool), np.linspace(0.1, 0.9, 8)
    with pytest.raises(InputError, match="the variance is 0 in 1 of the 2 groups"):
        one_calibration(time, event, chance, 2.5, bins=2)
    assert np.isnan(survivaleval_one(1 - chance, time, event, 2.5, num_bins=2)[0])
