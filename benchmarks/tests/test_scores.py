import numpy as np
import pytest
from lifelines import KaplanMeierFitter
from scipy.stats import chi2
from sksurv.metrics import brier_score as sksurv_brier_score

from neuralsurv.errors import InputError
from neuralsurv_bench import scores
from neuralsurv_bench.methods.interface import Floats, Rows, Split

PAPER = ("c_index", "ibs", "d_calibration_p", "km_calibration")
OURS = ("c_index", "ibs", "d_calibration_p", "km_calibration", "log_likelihood")


def rows(n: int, seed: int, longest: float) -> Rows:
    """Return rows without tied times, most with the event; the first and the last time are censored."""
    generator = np.random.default_rng(seed)
    time = np.concatenate([[0.1], generator.uniform(1, 0.95 * longest, n - 2), [longest]])
    event = np.concatenate([[False], generator.random(n - 2) < 2 / 3, [False]])
    return Rows(generator.normal(size=(n, 2)), time, event)


def exponential_curves(split: Split, times: Floats) -> Floats:
    return np.exp(-0.06 * np.exp(0.5 * split.test.x[:, :1]) * times)


@pytest.fixture
def split() -> Split:
    nobody = Rows(np.empty((0, 2)), np.empty(0), np.empty(0, dtype=bool))
    return Split(rows(60, 0, 40.0), nobody, rows(25, 1, 38.0), ("a", "b"))


def antolini_by_pairs(test: Rows, risk: Floats) -> float:
    """Return the C-index of risk[i, j], the risk of row i at the time of row j, by going through all pairs."""
    concordant = pairs = 0.0
    for i in range(len(test)):
        for j in range(len(test)):
            if test.event[i] and test.time[i] < test.time[j]:
                pairs += 1
                concordant += float(risk[i, i] > risk[j, i]) + 0.5 * float(risk[i, i] == risk[j, i])
    return concordant / pairs


def brier_by_definition(split: Split, survival: Floats, times: Floats) -> Floats:
    """Return the paper's equation of the Brier score, the censoring curve by lifelines from the training rows."""
    censoring = KaplanMeierFitter().fit(split.train.time, ~split.train.event)
    score = []
    for k, at in enumerate(times):
        dead = (split.test.time <= at) & split.test.event
        alive = split.test.time > at
        weight = 1 / censoring.predict(split.test.time).to_numpy()
        terms = dead * weight * survival[:, k] ** 2 + alive * (1 - survival[:, k]) ** 2 / censoring.predict(at)
        score.append(terms.mean())
    return np.array(score)


def mean_over_time(score: Floats, times: Floats) -> float:
    return float(np.trapezoid(score, times) / (times[-1] - times[0]))


def histogram_by_definition(split: Split, survival: Floats, times: Floats) -> Floats:
    counts = np.zeros(10)
    for i, (time, event) in enumerate(zip(split.test.time, split.test.event, strict=True)):
        chance = np.interp(time, times, survival[i])
        for k in range(10):
            low, high = k / 10, (k + 1) / 10
            if event:
                counts[k] += low <= chance < high
            else:
                counts[k] += max(0.0, min(high, chance) - low) / chance
    return counts


def d_calibration_p(counts: Floats) -> float:
    expected = counts.sum() / 10
    return float(chi2(9).sf(((counts - expected) ** 2 / expected).sum()))


def km_calibration_at_events(split: Split, survival: Floats, times: Floats) -> float:
    """Return the mean squared distance of mean curve and Kaplan–Meier, by the trapezoid rule over the event times."""
    observed = KaplanMeierFitter().fit(split.test.time, split.test.event)
    knots = np.append(0.0, np.sort(split.test.time[split.test.event]))
    mean = np.interp(knots, np.append(0.0, times), np.append(1.0, survival.mean(0)))
    return mean_over_time((mean - observed.predict(knots).to_numpy()) ** 2, knots)


def test_our_times_end_at_the_90_percent_quantile_of_the_training_times(split):
    times = scores.our_times(split)
    assert len(times) == 100
    assert times[-1] == pytest.approx(
        np.sort(split.train.time)[53] * 0.9 + np.sort(split.train.time)[54] * 0.1, rel=1e-9
    )
    np.testing.assert_allclose(np.diff(times), times[0])


def test_the_grid_is_the_union_of_0_the_test_times_and_ours(split):
    times = scores.grid(split)
    assert (np.diff(times) > 0).all()
    assert set(times) == {0.0, *split.test.time, *scores.our_times(split)}


def test_paper_scores_are_those_of_their_definitions(split):
    times = scores.grid(split)
    survival = exponential_curves(split, times)
    found = scores.paper_scores(split, survival, times)
    test_times = np.sort(split.test.time)
    at_rows = exponential_curves(split, split.test.time)
    at_test_times = exponential_curves(split, test_times)
    assert found["reasons"] == {}
    assert found["c_index"] == pytest.approx(antolini_by_pairs(split.test, -at_rows), rel=1e-6)
    brier = brier_by_definition(split, at_test_times, test_times)
    assert found["ibs"] == pytest.approx(mean_over_time(brier, test_times), rel=1e-6)
    counts = histogram_by_definition(split, survival, times)
    assert found["d_calibration_p"] == pytest.approx(d_calibration_p(counts), rel=1e-6)


def test_the_papers_km_calibration_is_the_squared_distance_of_the_mean_curve(split):
    times = scores.grid(split)
    survival = exponential_curves(split, times)
    found = scores.paper_scores(split, survival, times)["km_calibration"]
    assert found == pytest.approx(km_calibration_at_events(split, survival, times), rel=1e-6)


def test_our_scores_are_those_of_their_definitions(split):
    times = scores.grid(split)
    survival = exponential_curves(split, times)
    found = scores.our_scores(split, survival, times)
    assert found["reasons"] == {}
    at_rows = exponential_curves(split, split.test.time)
    assert found["c_index"] == pytest.approx(antolini_by_pairs(split.test, -at_rows))
    counts = histogram_by_definition(split, survival, times)
    np.testing.assert_allclose(found["d_calibration_histogram"], counts)
    assert found["d_calibration_p"] == pytest.approx(d_calibration_p(counts))
    # The curves are exponential, so that the hazard is constant between all times.
    last = scores.likelihood_times(split)[-1]
    assert last < split.test.time.max()
    rate = 0.06 * np.exp(0.5 * split.test.x[:, 0])
    seen = split.test.event & (split.test.time <= last)
    likelihood = np.mean(seen * np.log(rate) - rate * np.minimum(split.test.time, last))
    assert found["log_likelihood"] == pytest.approx(likelihood)


def test_a_step_function_has_a_likelihood(split):
    times = scores.grid(split)
    marginal = KaplanMeierFitter().fit(split.train.time, split.train.event).predict(times).to_numpy()
    knots = np.append(0.0, scores.likelihood_times(split))
    hazard = -np.diff(np.log(KaplanMeierFitter().fit(split.train.time, split.train.event).predict(knots))) / np.diff(
        knots
    )
    expected = 0.0
    for time, event in zip(split.test.time, split.test.event, strict=True):
        expected -= hazard @ np.clip(time - knots[:-1], 0, np.diff(knots))
        if event and time <= knots[-1]:
            expected += np.log(hazard[np.searchsorted(knots[1:], time)])
    found = scores.our_scores(split, np.tile(marginal, (25, 1)), times)["log_likelihood"]
    assert np.isfinite(found)
    assert found == pytest.approx(expected / 25)


def test_likelihood_times_are_deciles_of_the_training_events_moved_up_to_our_times(split):
    times, ours = scores.likelihood_times(split), scores.our_times(split)
    events = np.sort(split.train.time[split.train.event & (split.train.time <= ours[-1])])
    assert set(times) <= set(ours)
    assert len(times) == 10
    assert times[-1] >= events[-1]
    counts, _ = np.histogram(events, np.append(0.0, times))
    assert counts.sum() == len(events)
    assert counts.min() >= 1


def test_without_training_events_the_likelihood_has_one_interval(split):
    train = Rows(split.train.x, split.train.time, np.zeros(60, dtype=bool))
    silent = Split(train, split.validation, split.test, split.columns)
    assert scores.likelihood_times(silent).tolist() == [scores.our_times(silent)[-1]]


def test_our_times_end_where_censoring_weights_are_defined(split):
    # A fifth of the training rows is censored at 20, the end of the follow-up; nobody is watched beyond it.
    time = np.where(np.arange(60) % 5 == 0, 20.0, np.minimum(split.train.time, 19.0))
    event = split.train.event & (time < 19.0)
    cut = Split(Rows(split.train.x, time, event), split.validation, split.test, split.columns)
    assert np.quantile(time, 0.9) == 20
    times = scores.our_times(cut)
    assert times[-1] < 20
    grid = scores.grid(cut)
    assert np.isfinite(scores.our_scores(cut, exponential_curves(cut, grid), grid)["ibs"])


def test_our_brier_score_is_that_of_scikit_survival(split):
    times = scores.grid(split)
    found = scores.our_scores(split, exponential_curves(split, times), times)["ibs"]
    outcome = [("event", bool), ("time", float)]
    train = np.array(list(zip(split.train.event, split.train.time, strict=True)), dtype=outcome)
    test = np.array(list(zip(split.test.event, split.test.time, strict=True)), dtype=outcome)
    brier_times = scores.our_times(split)
    _, theirs = sksurv_brier_score(train, test, exponential_curves(split, brier_times), brier_times)
    # Theirs takes the weight of an event at its time, ours just before it; the times of training and test rows differ.
    assert found == pytest.approx(mean_over_time(theirs, brier_times), rel=1e-6)


def test_our_km_calibration_is_the_integral_of_the_squared_distance(split):
    times = scores.grid(split)
    found = scores.our_scores(split, exponential_curves(split, times), times)["km_calibration"]
    observed = KaplanMeierFitter().fit(split.test.time, split.test.event)
    last = split.test.time[split.test.event].max()
    middles = (np.arange(200_000) + 0.5) * last / 200_000
    mean = np.interp(middles, times, exponential_curves(split, times).mean(0))
    assert found == pytest.approx(np.mean((mean - observed.predict(middles).to_numpy()) ** 2), rel=1e-4)


def test_a_method_without_curves_has_only_a_concordance(split):
    times = scores.grid(split)
    risk = split.test.x[:, 0]
    expected = antolini_by_pairs(split.test, np.repeat(risk[:, None], len(risk), axis=1))
    for found, names in [
        (scores.paper_scores(split, None, times, risk), PAPER),
        (scores.our_scores(split, None, times, risk), OURS),
    ]:
        assert found["c_index"] == pytest.approx(expected)
        for name in names[1:]:
            assert np.isnan(found[name])
            assert found["reasons"][name] == "the method has no survival curves"
        assert "c_index" not in found["reasons"]


def test_risk_is_not_used_where_there_are_curves(split):
    times = scores.grid(split)
    survival = exponential_curves(split, times)
    for score in (scores.paper_scores, scores.our_scores):
        assert score(split, survival, times, -split.test.x[:, 0])["c_index"] == score(split, survival, times)["c_index"]


@pytest.mark.parametrize("score", [scores.paper_scores, scores.our_scores])
def test_missing_survival_has_no_scores_and_a_reason(split, score):
    times = scores.grid(split)
    survival = exponential_curves(split, times)
    survival[3, :5] = np.nan
    survival[7, 2] = np.nan
    found = score(split, survival, times)
    for name in PAPER if score is scores.paper_scores else OURS:
        assert np.isnan(found[name])
        assert found["reasons"][name] == f"survival is NaN at 6 of {25 * len(times)} places, in 2 of 25 rows"
    assert found.get("d_calibration_histogram", []) == []


@pytest.mark.parametrize("score", [scores.paper_scores, scores.our_scores])
def test_missing_risk_has_no_concordance_and_a_reason(split, score):
    found = score(split, None, scores.grid(split), np.append(np.nan, np.zeros(24)))
    assert np.isnan(found["c_index"])
    assert found["reasons"]["c_index"] == "risk is NaN at 1 of 25 places, in 1 of 25 rows"


def test_the_published_rules_for_missing_survival(split):
    times = scores.grid(split)
    survival = exponential_curves(split, times)
    first_known = np.sort(split.test.time)[4]
    survival[:, times < first_known] = np.nan
    found = scores.paper_scores(split, survival, times, published_rules=True)

    test_times = np.sort(split.test.time)
    at_test_times = survival[:, np.searchsorted(times, test_times)]
    brier = np.nan_to_num(brier_by_definition(split, at_test_times, test_times), nan=0.0)
    assert brier[:4].tolist() == [0, 0, 0, 0]
    assert found["ibs"] == pytest.approx(mean_over_time(brier, test_times), rel=1e-6)
    # A comparison with NaN is false: the pairs of the first rows are all discordant.
    at_rows = survival[:, np.searchsorted(times, split.test.time)]
    assert found["c_index"] == pytest.approx(antolini_by_pairs(split.test, -at_rows), rel=1e-6)
    filled = np.nan_to_num(at_test_times, nan=1.0)
    counts = histogram_by_definition(split, filled, test_times)
    counts[9] += (split.test.event & (split.test.time < first_known)).sum()  # survival 1 is in the last bin
    assert found["d_calibration_p"] == pytest.approx(d_calibration_p(counts), rel=1e-6)
    assert found["km_calibration"] == pytest.approx(km_calibration_at_events(split, filled, test_times), rel=1e-6)


def test_the_published_rules_change_nothing_where_nothing_is_missing(split):
    times = scores.grid(split)
    survival = exponential_curves(split, times)
    assert scores.paper_scores(split, survival, times, published_rules=True) == scores.paper_scores(
        split, survival, times
    )


def test_curves_that_rise_are_scored_by_their_running_minimum_with_a_note(split):
    times = scores.grid(split)
    survival = exponential_curves(split, times)
    survival[2, -1] = survival[2, -2] + 0.05
    falling = np.minimum.accumulate(survival, axis=1)
    note = "of the running minimum: 1 of 25 curves rise, by up to 0.05"
    paper, ours = scores.paper_scores(split, survival, times), scores.our_scores(split, survival, times)
    expected = scores.our_scores(split, falling, times)
    assert {name: ours[name] for name in OURS} == {name: expected[name] for name in OURS}
    assert set(ours["reasons"].values()) == {note}
    assert set(ours["reasons"]) == {*OURS, "d_calibration_histogram"}
    for name in ("d_calibration_p", "km_calibration"):
        assert paper[name] == scores.paper_scores(split, falling, times)[name]
        assert paper["reasons"][name].startswith("of the running minimum: 1 of 25 curves rise")


def test_rounding_is_put_right_without_a_word(split):
    times = scores.grid(split)
    survival = exponential_curves(split, times)
    survival[0, 0] = 1 + 5e-7
    survival[1, 5] += 5e-7 + survival[1, 4] - survival[1, 5]
    for score in (scores.paper_scores, scores.our_scores):
        assert score(split, survival, times)["reasons"] == {}


@pytest.mark.parametrize(
    ("last_has_event", "reason"),
    [
        (True, "none of the 25 test rows has an event before the time of another"),
        (False, "none of the 25 test rows has an event: torchsurv refuses"),
    ],
)
def test_without_an_event_before_another_row_there_is_no_concordance(split, last_has_event, reason):
    event = np.append(np.zeros(24, dtype=bool), last_has_event)
    silent = Split(split.train, split.validation, Rows(split.test.x, split.test.time, event), split.columns)
    times = scores.grid(split)
    survival = exponential_curves(split, times)
    paper, ours = scores.paper_scores(silent, survival, times), scores.our_scores(silent, survival, times)
    assert np.isnan(paper["c_index"])
    assert paper["reasons"]["c_index"] == reason
    assert np.isfinite(paper["ibs"]) == last_has_event
    assert np.isnan(ours["c_index"])
    assert "comparable" in ours["reasons"]["c_index"]
    assert np.isfinite(ours["ibs"])
    assert np.isfinite(ours["km_calibration"]) == last_has_event
    risk_only = scores.paper_scores(silent, None, times, split.test.x[:, 0])
    assert np.isnan(risk_only["c_index"])
    assert "c_index" in risk_only["reasons"]


@pytest.mark.parametrize("score", [scores.paper_scores, scores.our_scores])
def test_wrong_predictions_are_refused(split, score):
    times = scores.grid(split)
    survival = exponential_curves(split, times)
    with pytest.raises(InputError, match=r"survival has shape \(24, .*; 25 test rows at"):
        score(split, survival[:24], times)
    outside = survival.copy()
    outside[0, 0], outside[1, -1] = 1.5, -0.5
    with pytest.raises(InputError, match=r"2 of the \d+ survival probabilities are outside \[0, 1\]"):
        score(split, outside, times)
    with pytest.raises(InputError, match="neither curves nor risk scores for the 25 test rows"):
        score(split, None, times)
    with pytest.raises(InputError, match=r"risk has shape \(3,\); 25 test rows need \(25,\)"):
        score(split, None, times, np.zeros(3))
    short = np.append(0.0, scores.our_times(split))
    with pytest.raises(InputError, match="times do not hold the times of 25 of the 25 test rows"):
        score(split, exponential_curves(split, short), short)


def test_our_scores_refuse_a_grid_without_our_times(split):
    times = np.sort(split.test.time)
    with pytest.raises(InputError, match=r"times do not hold all of our_times\(split\)"):
        scores.our_scores(split, exponential_curves(split, times), times)


def test_where_survivaleval_fails_the_score_is_nan_with_its_words(split, monkeypatch):
    # As it does for unpenalised Cox curves that are exactly 0.
    from SurvivalEVAL import SurvivalEvaluator

    def fail(self):
        raise ValueError("operands could not be broadcast together")

    monkeypatch.setattr(SurvivalEvaluator, "d_calibration", fail)
    times = scores.grid(split)
    found = scores.paper_scores(split, exponential_curves(split, times), times)
    assert np.isnan(found["d_calibration_p"])
    assert found["reasons"] == {"d_calibration_p": "SurvivalEVAL fails: operands could not be broadcast together"}
    assert np.isfinite(found["km_calibration"])
