"""What is predicted for people, worked out again from drawn curves on fine grids; and what is refused."""

import dataclasses
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from false_alarm import z_bound
from neuralsurv.errors import InputError, NotFiniteError
from neuralsurv.posterior.gaussian import people_blocks
from neuralsurv.prediction import predictor as predictor_module
from neuralsurv.prediction.predictor import Predictor, check_given, check_horizon, check_times
from posteriors import covariates, predictor_of, small_posterior, small_predictor

SCALE = 40.0  # of the predictors made by hand, in the user's unit of time
RHOS = (0.6, 1.0, 1.5)
ACTIVATIONS = ("relu", "tanh")
EVERYTHING = {
    "survival": lambda predictor, X: predictor.survival(X, [1, 2]),
    "cumulative hazard": lambda predictor, X: predictor.cumulative_hazard(X, [1, 2]),
    "hazard": lambda predictor, X: predictor.hazard(X, [1, 2]),
    "g": lambda predictor, X: predictor.g(X, [1, 2]),
    "conditional survival": lambda predictor, X: predictor.conditional_survival(X, [1, 2], 1.5),
    "quantiles": lambda predictor, X: predictor.quantile(X, [0.2, 0.5]),
    "median": lambda predictor, X: predictor.quantile(X, 0.5),
    "event time": lambda predictor, X: predictor.event_time(X),
    "rmst": lambda predictor, X: predictor.rmst(X, 10),
    "difference of survival": lambda predictor, X: predictor.difference(X, covariates(1), [1, 2]),
    "difference of rmst": lambda predictor, X: predictor.difference(X, covariates(1), horizon=10),
}
ONE_NUMBER = {"median", "event time", "rmst", "difference of rmst"}


def fine_curves(predictor: Predictor, X: pd.DataFrame, last: float, steps: int = 4000) -> tuple[np.ndarray, np.ndarray]:
    """Return a fine grid of times, finest near 0, and the cumulative hazards of all draws on it."""
    grid = last * np.linspace(0, 1, steps + 1) ** 2
    return grid, predictor.cumulative_hazard(X, grid).draws


# ---------------------------------------------------------------------------------------------------- curves, units


@pytest.mark.parametrize("rho", RHOS)
def test_survival_is_the_exponential_of_the_cumulative_hazard(rho):
    predictor, X = small_predictor("relu", rho=rho), covariates(3)
    times = [0, 5, 39, 60]
    survival, cumulative = predictor.survival(X, times), predictor.cumulative_hazard(X, times)
    np.testing.assert_allclose(survival.draws, np.exp(-cumulative.draws), rtol=1e-14)
    assert (survival.draws[:, :, 0] == 1).all()
    assert (np.diff(survival.draws, axis=2) <= 0).all()


def test_curves_are_those_of_the_posterior_in_scaled_time():
    predictor, X = small_predictor(), covariates(3)
    times = np.array([3.0, 20.0, 55.0])
    expected = predictor.posterior.cumulative_hazard_draws(
        predictor.draws(), torch.from_numpy(times / SCALE), torch.from_numpy(X.to_numpy(copy=True))
    )
    np.testing.assert_allclose(predictor.cumulative_hazard(X, times).draws, expected.numpy(), rtol=1e-14)


@pytest.mark.parametrize("unit", [1.0, 365.25])
def test_the_unit_of_time_does_not_matter(unit):
    X = covariates(3)
    years = small_predictor(time_scale=4.0)
    other = small_predictor(time_scale=4.0 * unit)
    times = np.array([0.5, 2.0, 5.0])
    np.testing.assert_allclose(other.survival(X, times * unit).draws, years.survival(X, times).draws, rtol=1e-12)
    np.testing.assert_allclose(other.hazard(X, times * unit).draws, years.hazard(X, times).draws / unit, rtol=1e-12)
    np.testing.assert_allclose(other.rmst(X, 3 * unit).draws, years.rmst(X, 3).draws * unit, rtol=1e-12)
    np.testing.assert_allclose(other.quantile(X, 0.3).draws, years.quantile(X, 0.3).draws * unit, rtol=1e-12)
    np.testing.assert_allclose(other.event_time(X).draws, years.event_time(X).draws * unit, rtol=1e-12)


@pytest.mark.parametrize("rho", RHOS)
def test_hazard_is_the_derivative_of_the_cumulative_hazard(rho):
    predictor, X = small_predictor(rho=rho), covariates(3)
    times, step = np.array([0.5, 7.0, 39.0, 70.0]), 1e-3
    rates = predictor.hazard(X, times).draws
    both = predictor.cumulative_hazard(X, np.concatenate([times - step, times + step])).draws
    slopes = (both[:, :, 4:] - both[:, :, :4]) / (2 * step)
    np.testing.assert_allclose(rates, slopes, rtol=1e-5)


def test_g_is_what_the_posterior_draws():
    predictor, X = small_predictor(), covariates(2)
    found = predictor.g(X, [30, 10]).draws
    time = torch.tensor([30.0, 10.0, 30.0, 10.0], dtype=torch.float64) / SCALE
    rows = torch.from_numpy(X.to_numpy().repeat(2, axis=0))
    expected = predictor.posterior.g_draws(predictor.draws(), time, rows).reshape(-1, 2, 2)
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-12)


@pytest.mark.parametrize("quantity", ["survival", "cumulative_hazard", "hazard", "g"])
def test_times_in_any_order_and_repeated(quantity):
    predictor, X = small_predictor("relu"), covariates(3)
    ordered = getattr(predictor, quantity)(X, [2, 11, 50])
    mixed = getattr(predictor, quantity)(X, [50, 2, 11, 2])
    np.testing.assert_allclose(mixed.draws, ordered.draws[:, :, [2, 0, 1, 0]], rtol=1e-12)
    assert mixed.columns.tolist() == [50, 2, 11, 2]
    assert mixed.extrapolated.tolist() == [True, False, False, False]


def test_one_time_may_be_a_number():
    predictor, X = small_predictor(), covariates(3)
    assert predictor.survival(X, 7).mean.columns.tolist() == [7.0]


# ------------------------------------------------------------------------------------------------------- labels


@pytest.mark.parametrize("quantity", EVERYTHING)
def test_labels(quantity):
    X = covariates(3).set_axis(pd.Index(["ann", "bob", "bob"], name="patient"))
    prediction = EVERYTHING[quantity](small_predictor(), X)
    assert prediction.count == 60
    pd.testing.assert_index_equal(prediction.mean.index, X.index)
    if quantity in ONE_NUMBER:
        assert isinstance(prediction.mean, pd.Series)
        assert prediction.draws.shape == (60, 3)
        return
    shown = ("q", [0.2, 0.5]) if quantity == "quantiles" else ("time", [1, 2])
    assert (prediction.mean.columns.name, prediction.mean.columns.tolist()) == shown
    assert prediction.draws.shape == (60, 3, 2)


@pytest.mark.parametrize(
    ("quantity", "name"),
    [
        ("survival", "survival"),
        ("conditional survival", "survival"),
        ("cumulative hazard", "cumulative hazard"),
        ("hazard", "hazard"),
        ("g", "g"),
        ("median", "median event time"),
        ("quantiles", "event time quantile"),
        ("event time", "event time"),
        ("rmst", "restricted mean survival time to 10"),
        ("difference of survival", "difference of survival"),
        ("difference of rmst", "difference of restricted means to 10"),
    ],
)
def test_names(quantity, name):
    assert EVERYTHING[quantity](small_predictor(), covariates(2)).name == name


@pytest.mark.parametrize("quantity", EVERYTHING)
@pytest.mark.parametrize("table", [True, False], ids=["frame", "matrix"])
def test_nobody(quantity, table):
    X = covariates(3).iloc[:0] if table else np.zeros((0, 2))
    prediction = EVERYTHING[quantity](small_predictor(), X)
    full = EVERYTHING[quantity](small_predictor(), covariates(1))
    assert prediction.mean.shape == (0, *full.mean.shape[1:])
    assert prediction.draws.shape == (60, 0, *full.draws.shape[2:])
    for part in (prediction.std, prediction.median, prediction.unreached, *prediction.interval()):
        assert len(part) == 0
    frame = prediction.to_frame()
    assert len(frame) == 0
    assert frame.columns.tolist() == [name for name in full.to_frame().columns if name != "unreached"]


def test_what_lies_beyond_the_training_range_is_marked():
    predictor, X = small_predictor(), covariates(2)
    times = [0, SCALE, np.nextafter(SCALE, np.inf), 1e4]
    for name in ("survival", "cumulative_hazard", "g"):
        assert getattr(predictor, name)(X, times).extrapolated.tolist() == [False, False, True, True]
    assert predictor.difference(X, X, times).extrapolated.tolist() == [False, False, True, True]
    for horizon, beyond in ((SCALE, False), (41.0, True)):
        assert predictor.rmst(X, horizon).extrapolated.tolist() == [beyond]
        assert predictor.difference(X, X, horizon=horizon).extrapolated.tolist() == [beyond]
        assert predictor.rmst(X, horizon).to_frame()["extrapolated"].tolist() == [beyond] * 2
    assert predictor.survival(X, times).to_frame()["extrapolated"].tolist() == [False, False, True, True] * 2


def test_predictions_are_the_same_every_time():
    for quantity, ask in EVERYTHING.items():
        X = covariates(3)
        predictor = small_predictor()
        np.testing.assert_array_equal(ask(predictor, X).draws, ask(predictor, X).draws, err_msg=quantity)
        assert not np.array_equal(ask(small_predictor(seed=6), X).draws, ask(predictor, X).draws), quantity


# ------------------------------------------------------------------------------------- quantiles, restricted mean


@pytest.mark.parametrize("rho", RHOS)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_quantiles_against_inversion_on_a_fine_grid(activation, rho):
    predictor, X = small_predictor(activation, rho=rho, count=12), covariates(3)
    shares = np.array([0.02, 0.3, 0.5, 0.95])
    grid, curves = fine_curves(predictor, X, SCALE)
    expected = np.full((12, 3, 4), np.inf)
    for s in range(12):
        for i in range(3):
            for k, share in enumerate(shares):
                reached = np.flatnonzero(-np.expm1(-curves[s, i]) >= share)
                if len(reached):
                    expected[s, i, k] = grid[reached[0]]
    found = predictor.quantile(X, shares).draws
    assert np.isinf(expected).any()
    assert np.isfinite(expected).any(axis=(0, 1)).all()
    np.testing.assert_array_equal(np.isinf(found), np.isinf(expected))
    finite = np.isfinite(expected)
    # The fine grid is up to 1/2000 of the range wide; a curve is read off at 200 steps. For relu, a jump may come to
    # lie elsewhere in its panel, which is 1/50 wide.
    tolerance = SCALE * (1e-3 if activation == "tanh" else 1e-2)
    assert np.abs(found[finite] - expected[finite]).max() < tolerance


@pytest.mark.parametrize("rho", [0.25, 0.6])
def test_early_quantiles_are_right_where_the_baseline_is_infinite_at_zero(rho):
    """With g at 0 the lifetime is Weibull, and the first events come within the first of 200 even steps."""
    posterior = small_posterior(rho=rho, precision=1e16, phi=(4e12, 1e12))
    zero = torch.zeros_like(posterior.theta_star)
    flat = replace(posterior, theta_star=zero, theta=replace(posterior.theta, mean=zero))
    predictor = predictor_of(flat, time_scale=SCALE, count=3)
    shares = np.array([0.05, 0.2, 0.5])
    found = predictor.quantile(covariates(1), shares).mean.to_numpy()[0]
    # H = phi · t^rho / rho in scaled time, phi = 4.
    exact = SCALE * (-np.log1p(-shares) * rho / 4) ** (1 / rho)
    assert exact[0] < SCALE / 200
    np.testing.assert_allclose(found, exact, rtol=1e-4)


def test_the_median_is_the_quantile_at_one_half():
    predictor, X = small_predictor(), covariates(3)
    np.testing.assert_array_equal(predictor.quantile(X, 0.5).draws, predictor.quantile(X, [0.1, 0.5]).draws[:, :, 1])


def test_quantiles_rise_with_their_share():
    found = small_predictor("relu").quantile(covariates(4), np.linspace(0.01, 0.99, 60)).draws
    assert (found[:, :, 1:] >= found[:, :, :-1]).all()
    assert (found > 0).all()
    assert found[np.isfinite(found)].max() <= SCALE


@pytest.mark.parametrize("share", [0.5, 0.9, 0.97])
def test_unreached_is_the_share_of_curves_that_stay_above(share):
    predictor, X = small_predictor(), covariates(4)
    above = (predictor.survival(X, [SCALE]).draws[:, :, 0] > 1 - share).mean(0)
    assert above.max() > 0
    np.testing.assert_array_equal(predictor.quantile(X, share).unreached.to_numpy(), above)


@pytest.mark.parametrize("horizon", [0.3, 25.0, SCALE, 90.0])
@pytest.mark.parametrize("rho", RHOS)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_restricted_mean_against_integration_of_survival(activation, rho, horizon):
    predictor, X = small_predictor(activation, rho=rho, count=12), covariates(3)
    grid, curves = fine_curves(predictor, X, horizon, steps=1500)
    exact = np.trapezoid(np.exp(-curves), grid, axis=2)
    found = predictor.rmst(X, horizon).draws
    np.testing.assert_allclose(found, exact, atol=horizon * (1e-4 if activation == "tanh" else 3e-3))
    assert (found < horizon).all()
    assert (found > 0).all()


@pytest.mark.parametrize("times_as_far", [100, 1e6])
def test_a_far_horizon_does_not_blur_the_restricted_mean(times_as_far):
    predictor, X = small_predictor(count=12), covariates(3)
    within = predictor.rmst(X, SCALE).draws
    far = predictor.rmst(X, times_as_far * SCALE).draws
    # What lies beyond the training range is added, and the curve within it is integrated as before.
    grid = SCALE * np.geomspace(1, times_as_far, 4000)
    beyond = np.trapezoid(predictor.survival(X, grid).draws, grid, axis=2)
    np.testing.assert_allclose(far, within + beyond, rtol=1e-3)
    assert (beyond < times_as_far * SCALE / 2).all()


# --------------------------------------------------------------------------------------------------- differences


def test_a_difference_is_that_of_joint_draws():
    predictor = small_predictor()
    a, b = covariates(4), covariates(4, seed=9)
    times = [30, 2, 60]
    expected = predictor.survival(a, times).draws - predictor.survival(b, times).draws
    np.testing.assert_allclose(predictor.difference(a, b, times).draws, expected, atol=1e-14)
    expected = predictor.rmst(a, 20).draws - predictor.rmst(b, 20).draws
    np.testing.assert_allclose(predictor.difference(a, b, horizon=20).draws, expected, atol=1e-12)


def test_the_band_of_a_difference_is_narrower_than_that_of_independent_draws():
    predictor = small_predictor(count=2000)
    a, b = covariates(1), covariates(1) + 0.3
    lower, upper = predictor.difference(a, b, [10, 20]).interval(0.9)
    first, second = predictor.survival(a, [10, 20]).draws, predictor.survival(b, [10, 20]).draws
    apart = first - second[np.random.default_rng(0).permutation(2000)]
    width = np.diff(np.quantile(apart, [0.05, 0.95], axis=0), axis=0)[0]
    assert ((upper - lower).to_numpy() < 0.6 * width).all()


@pytest.mark.parametrize("what", [{"times": [3, 30]}, {"horizon": 30}])
def test_one_row_is_compared_with_everybody(what):
    predictor = small_predictor()
    a, b = covariates(4), covariates(1, seed=9)
    each = predictor.difference(a, pd.concat([b] * 4), **what)
    one = predictor.difference(a, b, **what)
    np.testing.assert_allclose(one.draws, each.draws, atol=1e-12)
    pd.testing.assert_index_equal(one.index, a.index)


@pytest.mark.parametrize("rows", [0, 2, 5])
def test_differences_of_unequal_tables(rows):
    with pytest.raises(InputError, match=rf"X_a has 4 rows and X_b {rows}; give as many, or a single row in X_b"):
        small_predictor().difference(covariates(4), covariates(rows), [1])


@pytest.mark.parametrize("what", [{}, {"times": [1], "horizon": 2}])
def test_differences_need_times_or_a_horizon(what):
    with pytest.raises(InputError, match=r"give either times \(difference of survival\) or horizon"):
        small_predictor().difference(covariates(2), covariates(2), **what)


# ------------------------------------------------------------------------------------------- conditional survival


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("given", [0.0, 8.0, SCALE, 70.0])
def test_conditional_survival_is_a_ratio(activation, given):
    predictor, X = small_predictor(activation, rho=0.6), covariates(3)
    times = [90, 3, 8, 25, given]
    found = predictor.conditional_survival(X, times, given).draws
    # The ratio is taken from one call, so that both curves are cut into the same panels.
    both = predictor.survival(X, [*np.maximum(times, given), given]).draws
    np.testing.assert_allclose(found, both[:, :, :-1] / both[:, :, -1:], rtol=1e-10)
    assert (found[:, :, np.array(times) <= given] == 1).all()
    if given == 0:
        np.testing.assert_allclose(found, predictor.survival(X, times).draws, rtol=1e-12)


def test_blocks_allow_for_the_time_up_to_which_survival_is_given(monkeypatch):
    """What comes before `given` is integrated too, however early the times are that are asked for."""
    numbers = []
    monkeypatch.setattr(
        predictor_module, "people_blocks", lambda n, each: numbers.append(each) or people_blocks(n, each)
    )
    for times, given in (([1], 30), ([30], 1)):
        _ = small_predictor().conditional_survival(covariates(2), times, given).mean
    assert numbers[0] == pytest.approx(numbers[1], rel=0.1)


@pytest.mark.parametrize("given", [-1, np.nan, np.inf, [3, 4], np.array([3.0]), "a", None])
def test_bad_given(given):
    with pytest.raises(InputError, match=rf"given={re.escape(repr(given))} must be one finite time of at least 0"):
        small_predictor().conditional_survival(covariates(2), [5], given)


# --------------------------------------------------------------------------------------------------- event times


@pytest.mark.parametrize("rho", [0.6, 1.0])
def test_event_times_follow_the_posterior_predictive(rho):
    """Given the drawn curves, each draw outlives t with its own S(t): a sum of independent yes-or-no trials."""
    predictor, X = small_predictor(rho=rho, count=4000), covariates(3)
    times = np.array([1.0, 4.0, 12.0, 25.0, SCALE])
    curves = predictor.survival(X, times).draws
    alive = predictor.event_time(X).draws[:, :, None] > times
    scores = (alive - curves).sum(0) / np.sqrt((curves * (1 - curves)).sum(0))
    assert np.abs(scores).max() < z_bound(scores.size)
    mean = predictor.survival(X, times).mean.to_numpy()
    np.testing.assert_allclose(alive.mean(0), mean, atol=z_bound(scores.size) * 0.5 / np.sqrt(4000))


def test_people_and_draws_have_their_own_chance():
    """Two people with the same covariates have different event times, and these are not tied to each other."""
    predictor = small_predictor(count=4000, precision=1e9, phi=(4e8, 1e8))
    draws = predictor.event_time(pd.concat([covariates(1)] * 2)).draws
    ranks = pd.DataFrame(draws).rank().to_numpy()
    assert abs(np.corrcoef(ranks.T)[0, 1]) * np.sqrt(4000) < z_bound()


def test_a_prediction_interval_is_wider_than_that_of_the_curve():
    predictor, X = small_predictor(count=2000, phi=(60.0, 4.0)), covariates(4)
    own, median = predictor.event_time(X).interval(0.9), predictor.quantile(X, 0.5).interval(0.9)
    assert (own.lower < median.lower).all()
    assert (own.upper > median.upper).all()
    assert np.isfinite(median.upper).all()


def test_event_times_beyond_the_training_range_are_infinite():
    predictor, X = small_predictor(count=500), covariates(3)
    prediction = predictor.event_time(X)
    finite = np.isfinite(prediction.draws)
    assert prediction.draws[finite].max() <= SCALE
    np.testing.assert_allclose(prediction.unreached.to_numpy(), 1 - finite.mean(0), atol=1e-15)
    assert prediction.unreached.max() > 0


def test_event_times_after_entry_follow_conditional_survival():
    predictor, X = small_predictor(count=4000), covariates(3)
    entry = np.array([0.0, 3.3, 21.7])
    times = np.array([4.0, 22.0, 30.0, SCALE])
    found = predictor.event_time_after(X, entry).draws
    assert (found > entry).all()
    alive = found[:, :, None] > times
    curves = np.stack(
        [predictor.conditional_survival(X.iloc[[i]], times, entry[i]).draws[:, 0] for i in range(3)], axis=1
    )
    chance = (curves * (1 - curves)).sum(0)
    sure = chance == 0
    assert sure.any(), "the last person is alive at the first time for certain"
    assert (alive.mean(0)[sure] == 1).all()
    scores = (alive - curves).sum(0)[~sure] / np.sqrt(chance[~sure])
    assert np.abs(scores).max() < z_bound(scores.size)


def test_event_times_after_the_training_range_are_infinite():
    found = small_predictor().event_time_after(covariates(2), np.array([SCALE, 2 * SCALE])).draws
    assert np.isinf(found).all()


def test_event_times_without_entry_are_those_after_zero():
    predictor, X = small_predictor(), covariates(3)
    np.testing.assert_array_equal(predictor.event_time(X).draws, predictor.event_time_after(X, np.zeros(3)).draws)


# ------------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize("rho", [0.6, 1.5])
def test_hazard_at_zero(rho):
    with pytest.raises(InputError, match=r"the hazard at time 0 is 0 or infinite unless rho is 1; ask for times above"):
        small_predictor(rho=rho).hazard(covariates(2), [1, 0])


def test_hazard_at_zero_of_a_constant_baseline():
    assert np.isfinite(small_predictor().hazard(covariates(2), [0]).draws).all()


@pytest.mark.parametrize("quantity", ["survival", "cumulative_hazard", "hazard", "g"])
def test_bad_times(quantity):
    ask = getattr(small_predictor(), quantity)
    with pytest.raises(InputError, match=r"times holds -1; every time must be a finite number of at least 0"):
        ask(covariates(2), [1, -1])
    with pytest.raises(InputError, match=r"times has shape \(0,\); give one or more times in a flat list"):
        ask(covariates(2), [])


@pytest.mark.parametrize("quantity", ["survival", "cumulative_hazard", "hazard", "g"])
def test_times_too_far_beyond_the_training_range(quantity):
    ask = getattr(small_predictor(), quantity)
    with pytest.raises(
        InputError, match=r"asked for time 1e\+300, more than 1e\+09 times the last training time, .* Ask"
    ):
        ask(covariates(2), [1, 1e300])


def test_horizons_and_given_times_too_far_beyond_the_training_range():
    for ask in (
        lambda: small_predictor().rmst(covariates(2), 1.7e308),
        lambda: small_predictor().difference(covariates(2), covariates(2), horizon=1.7e308),
        lambda: small_predictor().conditional_survival(covariates(2), [1], 1.7e308),
    ):
        with pytest.raises(
            InputError, match=r"asked for time 1\.7e\+308, more than 1e\+09 times the last training time"
        ):
            ask()


def test_a_prediction_that_is_no_number_is_refused():
    predictor = small_predictor()
    held = predictor.draws()
    broken = dataclasses.replace(held, theta=held.theta * np.inf)
    message = "survival became NaN: numbers of the model or of these people are too extreme to be computed with"
    with pytest.raises(NotFiniteError, match=message):
        dataclasses.replace(predictor, cached_draws=broken).survival(covariates(2), [1.0]).mean  # noqa: B018


@pytest.mark.parametrize("horizon", [0, -2, np.inf, np.nan, "a"])
def test_bad_horizon(horizon):
    for ask in (
        lambda: small_predictor().rmst(covariates(2), horizon),
        lambda: small_predictor().difference(covariates(2), covariates(2), horizon=horizon),
    ):
        with pytest.raises(InputError, match=rf"horizon={horizon!r} must be a positive, finite time"):
            ask()


@pytest.mark.parametrize("q", [0, 1, -0.5, np.nan, [0.5, 1.5], [], [[0.5]], "a", None, [0.5, [0.1]]])
def test_bad_share(q):
    with pytest.raises(InputError, match=rf"q={re.escape(repr(q))} must lie strictly between 0 and 1; use 0.5 for the"):
        small_predictor().quantile(covariates(2), q)


@pytest.mark.parametrize(
    ("times", "message"),
    [
        ([1, np.nan], "times holds nan;"),
        ([1, np.inf], "times holds inf;"),
        ([[1, 2], [3, 4]], r"times has shape \(2, 2\);"),
        (["a"], "times cannot be read as numbers: could not convert string to float: 'a'; give one or more"),
        ([1, [2, 3]], "times cannot be read as numbers: .* give one or more times in a flat list"),
        ([10**400], "times cannot be read as numbers: int too large"),
    ],
)
def test_times_that_are_refused(times, message):
    with pytest.raises(InputError, match=message):
        check_times(times)


def test_times_that_are_taken():
    assert check_times(3).tolist() == [3.0]
    assert check_times(pd.Series([2, 1])).tolist() == [2.0, 1.0]
    assert check_times((0, 4.5)).tolist() == [0.0, 4.5]


@pytest.mark.parametrize("horizon", [0, -2, np.inf, np.nan, "a", [1.0]])
def test_horizons_that_are_refused(horizon):
    with pytest.raises(InputError, match="must be a positive, finite time"):
        check_horizon(horizon)


@pytest.mark.parametrize("given", [-2, np.inf, np.nan, "a", [1.0]])
def test_given_times_that_are_refused(given):
    with pytest.raises(InputError, match="must be one finite time of at least 0, the same for everybody"):
        check_given(given)


def test_single_times_that_are_taken():
    assert check_horizon(np.float32(2)) == 2.0
    assert check_given(0) == 0.0


def path(entry, time, subject, seed: int = 3):
    """Return the covariates, subjects and ends of some episodes."""
    return covariates(len(entry), seed), np.array(subject), np.array(entry, dtype=float), np.array(time, dtype=float)


def test_a_path_without_changes_is_conditional_survival():
    predictor = small_predictor(rho=0.6)
    X = covariates(1)
    episodes = pd.concat([X] * 3)
    times = [1, 4, 10, 25]
    found = predictor.path_survival(
        episodes, times, ["p"] * 3, np.array([3.0, 10.0, 12.0]), np.array([10.0, 12.0, 25.0])
    ).draws
    expected = predictor.conditional_survival(X, times, 3.0).draws
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    assert (found[:, :, 0] == 1).all()


def test_a_path_adds_up_the_hazards_of_its_episodes():
    predictor = small_predictor()
    X, subject, entry, time = path([0, 5, 12], [5, 12, 30], ["p"] * 3)
    found = predictor.path_survival(X, [20, 3, 12], subject, entry, time).draws[:, 0]
    rows = [predictor.cumulative_hazard(X.iloc[[k]], [3, 5, 12, 20]).draws[:, 0] for k in range(3)]
    at_3 = rows[0][:, 0]
    at_12 = rows[0][:, 1] + rows[1][:, 2] - rows[1][:, 1]
    at_20 = at_12 + rows[2][:, 3] - rows[2][:, 2]
    np.testing.assert_allclose(found, np.exp(-np.stack([at_20, at_3, at_12], axis=1)), rtol=1e-6)


def test_paths_of_several_subjects_with_rows_in_any_order():
    predictor = small_predictor()
    X, subject, entry, time = path([5, 0, 0, 9], [30, 5, 9, 25], ["b", "b", "a", "a"])
    both = predictor.path_survival(X, [2, 8, 20], subject, entry, time)
    assert both.index.tolist() == ["b", "a"]
    assert both.index.name == "id"
    assert both.columns.tolist() == [2, 8, 20]
    for place, name in enumerate(("b", "a")):
        own = np.flatnonzero(subject == name)
        alone = predictor.path_survival(X.iloc[own], [2, 8, 20], subject[own], entry[own], time[own])
        np.testing.assert_allclose(both.draws[:, place], alone.draws[:, 0], rtol=1e-12)
    shuffled = [2, 0, 3, 1]
    again = predictor.path_survival(X.iloc[shuffled], [2, 8, 20], subject[shuffled], entry[shuffled], time[shuffled])
    np.testing.assert_allclose(again.mean.loc[["b", "a"]], both.mean, rtol=1e-12)


def test_a_path_beyond_the_training_range_is_marked():
    X, subject, entry, time = path([0], [60], ["p"])
    prediction = small_predictor().path_survival(X, [50, 40], subject, entry, time)
    assert prediction.extrapolated.tolist() == [True, False]
    assert prediction.to_frame().columns[0] == "id"


def test_a_path_with_a_gap():
    X, subject, entry, time = path([0, 6, 0], [5, 12, 20], ["p", "p", "q"])
    with pytest.raises(InputError, match=r"the path of subject 'p' has a gap after time 5; its episodes must follow"):
        small_predictor().path_survival(X, [1], subject, entry, time)


def test_a_path_that_ends_too_early():
    X, subject, entry, time = path([0, 0], [20, 12], ["p", "q"])
    with pytest.raises(InputError, match=r"times go up to 15, but the path of subject 'q' ends at 12; extend its last"):
        small_predictor().path_survival(X, [1, 15], subject, entry, time)


def test_a_path_with_overlapping_episodes():
    X, subject, entry, time = path([0, 4], [5, 12], ["p", "p"])
    with pytest.raises(InputError, match=r"subject 'p' has overlapping episodes"):
        small_predictor().path_survival(X, [1], subject, entry, time)
