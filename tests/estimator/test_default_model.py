"""The default model as a user meets it: invariances, extremes, messages, interrupts, summary, prediction."""

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from neuralsurv import NeuralSurv
from neuralsurv.errors import ConvergenceWarning, FewEventsWarning, InputError, NeuralSurvWarning
from neuralsurv.inference.default import fit as additive_fit
from neuralsurv.inference.default import scales
from neuralsurv.inference.default.fit import DefaultFit, fit_default
from neuralsurv.model.additive import Additive
from neuralsurv.model.prior import PointMass
from neuralsurv.posterior.concerns import CROWDED_SHARE, FEW_EVENTS
from posteriors import g_moments
from small_cohort import quick_default, small_cohort

COHORT = small_cohort()
TIMES = np.linspace(0.05, 1, 6) * COHORT.time.max()
ENTRY = np.where(np.arange(40) % 4 == 0, COHORT.time / 3, 0.0)
# Sums in another order move the top of a smooth function by about the root of what they are known to.
SAME_OPTIMUM = 1e-6
# A row in two pieces has twice as many nodes, and the rule is not exact.
SAME_INTEGRAL = 1e-3


def fit(x: Any, time: np.ndarray, event: np.ndarray, **roles: Any) -> NeuralSurv:
    return quick_default().fit(x, (time, event), **roles)


@pytest.fixture(scope="module")
def usual() -> NeuralSurv:
    return fit(COHORT.x, COHORT.time, COHORT.event, entry=ENTRY)


def log_hazard(model: NeuralSurv, unit: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of g over people and times; draws may differ in the signs of a basis."""
    x = torch.from_numpy(model.encoding_.transform(COHORT.x))
    scaled = torch.from_numpy(unit * TIMES / model.time_scale_)
    mean, variance = g_moments(model.posterior_, scaled.repeat(len(x)), x.repeat_interleave(len(TIMES), 0))
    return mean.numpy(), np.sqrt(variance.numpy())


def assert_same(model: NeuralSurv, other: NeuralSurv, tolerance: float = SAME_OPTIMUM, unit: float = 1.0) -> None:
    """Assert that `other`, whose times are `unit` times as large, is the same fit."""
    assert other.elbo_[-1] == pytest.approx(model.elbo_[-1], abs=tolerance)
    assert other.posterior_.phi.mean == pytest.approx(model.posterior_.phi.mean, rel=1e-11)
    for found, expected in zip(log_hazard(other, unit), log_hazard(model), strict=True):
        np.testing.assert_allclose(found, expected, rtol=0, atol=10 * tolerance)


# ------------------------------------------------------------------------------------------------- invariances


def test_the_order_of_the_rows(usual: NeuralSurv) -> None:
    order = np.random.default_rng(0).permutation(40)
    other = fit(COHORT.x.iloc[order], COHORT.time[order], COHORT.event[order], entry=ENTRY[order])
    assert_same(usual, other)


@pytest.mark.parametrize("unit", [365.25, 1e-6, 1e9])
def test_the_unit_of_time(usual: NeuralSurv, unit: float) -> None:
    other = fit(COHORT.x, unit * COHORT.time, COHORT.event, entry=unit * ENTRY)
    assert_same(usual, other, unit=unit)
    survival = usual.predict_survival(COHORT.x, TIMES).mean.to_numpy()
    np.testing.assert_allclose(other.predict_survival(COHORT.x, unit * TIMES).mean, survival, atol=0.05)


def test_a_weight_of_two_is_the_row_twice() -> None:
    weight = np.where(np.arange(40) < 10, 2.0, 1.0)
    rows = np.append(np.arange(40), np.arange(10))
    weighted = fit(COHORT.x, COHORT.time, COHORT.event, entry=ENTRY, sample_weight=weight)
    doubled = fit(COHORT.x.iloc[rows], COHORT.time[rows], COHORT.event[rows], entry=ENTRY[rows])
    assert_same(weighted, doubled)


def test_a_row_cut_in_two_is_the_row(usual: NeuralSurv) -> None:
    cut = ENTRY + 0.4 * (COHORT.time - ENTRY)
    # Told apart by a little, so that the pieces are not put together again before the fit.
    pieces = fit(
        pd.concat([COHORT.x, COHORT.x]),
        np.append(cut, COHORT.time),
        np.append(np.zeros(40, dtype=bool), COHORT.event),
        entry=np.append(ENTRY, cut),
    )
    assert_same(usual, pieces, SAME_INTEGRAL)


def test_a_shift_and_a_scale_of_a_covariate_change_nothing(usual: NeuralSurv) -> None:
    x = COHORT.x.assign(age=12 * COHORT.x["age"] - 300)
    other = fit(x, COHORT.time, COHORT.event, entry=ENTRY)
    assert other.elbo_[-1] == pytest.approx(usual.elbo_[-1], abs=SAME_OPTIMUM)


def test_seeds(usual: NeuralSurv) -> None:
    again = fit(COHORT.x, COHORT.time, COHORT.event, entry=ENTRY)
    assert (again.predict_survival(COHORT.x, TIMES).draws == usual.predict_survival(COHORT.x, TIMES).draws).all()
    other = quick_default(random_state=1).fit(COHORT.x, (COHORT.time, COHORT.event), entry=ENTRY)
    assert other.elbo_[-1] != usual.elbo_[-1]
    difference = other.predict_survival(COHORT.x, TIMES).mean - usual.predict_survival(COHORT.x, TIMES).mean
    assert 1e-6 < float(difference.abs().to_numpy().max()) < 0.25


# ---------------------------------------------------------------------------------------------------- extremes


def quietly(model: NeuralSurv, *args: Any, **kwargs: Any) -> NeuralSurv:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NeuralSurvWarning)
        return model.fit(*args, **kwargs)


def assert_usable(model: NeuralSurv, x: Any) -> None:
    times = np.array([0.0, 0.3, 1.0, 2.0]) * model.time_scale_
    draws = model.predict_survival(x, times).draws
    assert np.isfinite(draws).all()
    assert (draws[:, :, 0] == 1).all()
    assert (np.diff(draws, axis=2) <= 0).all()


@pytest.mark.parametrize(
    ("time", "event"),
    [([1.0, 2.0], [True, False]), ([2.0, 2.0, 2.0], [True, True, True]), ([1e-9, 1.0], [True, True])],
    ids=["one event", "one time", "far apart"],
)
def test_next_to_no_data(time: list[float], event: list[bool]) -> None:
    x = np.arange(2.0 * len(time)).reshape(-1, 2)
    model = quick_default()
    with pytest.warns(FewEventsWarning, match=f"events of total weight {sum(event)}; with so few"):
        model.fit(x, (np.array(time), np.array(event)))
    assert_usable(model, x)


def test_one_event_among_many_rows() -> None:
    event = np.zeros(40, dtype=bool)
    event[7] = True
    model = quietly(quick_default(), COHORT.x, (COHORT.time, event))
    assert_usable(model, COHORT.x)
    # Forty people at risk and one event: almost everybody stays event-free, and that is known to some degree.
    assert 0.7 < float(model.predict_survival(COHORT.x, [COHORT.time.mean()]).mean.to_numpy().mean()) < 0.999


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e9])
def test_times_of_any_size(scale: float) -> None:
    model = quick_default(hidden=()).fit(COHORT.x, (scale * COHORT.time, COHORT.event))
    assert_usable(model, COHORT.x)
    assert model.predict_rmst(COHORT.x, scale).mean.between(0.05 * scale, scale).all()


def test_without_a_network() -> None:
    model = quick_default(hidden=()).fit(COHORT.x, COHORT.y)
    network = model.posterior_.network
    assert isinstance(network, Additive)
    assert network.inner is None
    assert "network" not in model.diagnostics_.scales
    assert ("Model", "network", "linear") in model.summary().rows
    assert_usable(model, COHORT.x)


def test_many_covariates() -> None:
    x = np.random.default_rng(0).normal(size=(40, 60))
    assert_usable(quick_default().fit(x, COHORT.y), x)


# ----------------------------------------------------------------------------------------------------- choices


@pytest.mark.parametrize("name", ["rho", "starts", "phi_prior", "quadrature", "solver", "preset"])
def test_there_is_nothing_that_only_the_paper_has(name: str) -> None:
    with pytest.raises(TypeError, match=name):
        NeuralSurv(**{name: 1})


@pytest.mark.parametrize("headroom", [1.0, 0.2])
def test_headroom_above_one(headroom: float) -> None:
    with pytest.raises(InputError, match=f"headroom={headroom:g} must exceed 1"):
        quick_default(headroom=headroom).fit(COHORT.x, COHORT.y)


def test_a_little_headroom_is_a_ceiling() -> None:
    model = quietly(quick_default(headroom=1.5), COHORT.x, COHORT.y)
    ceiling = 1.5 * model.posterior_.phi.mean / model.time_scale_
    assert float(model.predict_hazard(COHORT.x, TIMES).draws.max()) <= ceiling


def test_phi_is_fixed(usual: NeuralSurv) -> None:
    assert usual.posterior_.phi == usual.phi_prior_ == PointMass(usual.posterior_.phi.mean)


# ---------------------------------------------------------------------------------------------------- messages


def messages_of(model: NeuralSurv, x: Any = COHORT.x, y: Any = None) -> tuple[str, ...]:
    model = quietly(model, x, COHORT.y if y is None else y)
    return model.diagnostics_.messages


def test_a_good_fit_says_nothing(usual: NeuralSurv) -> None:
    assert usual.diagnostics_.messages == ()
    found = usual.diagnostics_
    assert found.converged
    assert not found.collapsed
    assert found.mode_converged
    assert found.mode_objectives == ()
    assert found.sweeps == len(usual.elbo_)
    assert 0.8 < found.latent_share < 1
    assert found.settings > 1
    assert found.solver == "low-rank"


def test_too_few_steps() -> None:
    with pytest.warns(
        ConvergenceWarning,
        match=r"the ascent for the best scales stopped after \d+ steps before reaching .* max_sweeps",
    ):
        model = quick_default(max_sweeps=1, tolerance=1e-12).fit(COHORT.x, COHORT.y)
    assert not model.diagnostics_.converged
    assert "(not converged)" in str(model.summary())


def test_few_events() -> None:
    event = COHORT.event & (np.cumsum(COHORT.event) < FEW_EVENTS)
    assert event.sum() == FEW_EVENTS - 1
    (message,) = messages_of(quick_default(), y=(COHORT.time, event))
    assert message.startswith(
        "the training rows hold events of total weight 4; with so few events, curves and bands are little"
    )
    enough = COHORT.event & (np.cumsum(COHORT.event) <= FEW_EVENTS)
    assert messages_of(quick_default(), y=(COHORT.time, enough)) == ()


def test_close_to_the_ceiling() -> None:
    (message,) = messages_of(quick_default(headroom=1.5))
    assert "% of the time at risk and can hardly rise there; raise headroom." in message
    assert message.startswith("the hazard comes close to its ceiling in ")


def test_a_moment_close_to_the_ceiling_is_not_worth_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    """A share that would be shown as 0.0 % of the time at risk, as at the very end of the longest rows."""
    assert CROWDED_SHARE >= 0.001
    monkeypatch.setattr("neuralsurv.inference.default.fit.CEILING_SHARE", 0.2)
    monkeypatch.setattr("neuralsurv.posterior.concerns.CROWDED_SHARE", 0.9)
    assert messages_of(quick_default()) == ()


def test_directions_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = additive_fit._LOST_INFORMATION
    monkeypatch.setattr(additive_fit, "_MOST_DIRECTIONS", 0)
    monkeypatch.setattr("neuralsurv.inference.default.fit._LOST_INFORMATION", 1e-6)
    (message,) = messages_of(quick_default())
    assert "directions that were kept leave out" in message
    assert message.endswith("use a smaller network.")
    assert lost > 0


def test_directions_left_out_without_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("neuralsurv.solvers.separable._MOST_DIRECTIONS", 1)
    monkeypatch.setattr("neuralsurv.inference.default.fit._LOST_INFORMATION", 1e-6)
    (message,) = messages_of(quick_default(hidden=None))
    assert message.endswith("use fewer columns.")


# -------------------------------------------------------------------------------------------------- interrupts


def interrupt_at(setting: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Press Ctrl-C while the n-th setting of the scales is being fitted."""
    at, left = scales.Evidence.at, [setting]

    def stop(*args: Any, **kwargs: Any) -> Any:
        left[0] -= 1
        if left[0] == 0:
            raise KeyboardInterrupt
        return at(*args, **kwargs)

    monkeypatch.setattr(scales.Evidence, "at", stop)


def test_an_interrupted_fit_is_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    interrupt_at(3, monkeypatch)
    model = quick_default()
    with pytest.warns(
        ConvergenceWarning,
        match=r"the search for the scales of the prior was interrupted after 2 settings; the model can be used",
    ):
        assert model.fit(COHORT.x, COHORT.y) is model
    found = model.diagnostics_
    assert found.interrupted
    assert not found.converged
    assert found.settings == 1
    assert found.sweeps == len(model.elbo_) == 2
    assert "2 (interrupted)" in str(model.summary())
    assert_usable(model, COHORT.x)


def test_an_interrupt_before_the_first_setting_stops_the_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    interrupt_at(1, monkeypatch)
    model = quick_default()
    with pytest.raises(KeyboardInterrupt):
        model.fit(COHORT.x, COHORT.y)
    assert not hasattr(model, "posterior_")


# ----------------------------------------------------------------------------------------------------- summary


def test_summary(usual: NeuralSurv) -> None:
    text = str(usual.summary())
    found = usual.diagnostics_
    rows = {name: value for _, name, value in usual.summary().rows}
    assert rows["estimator"] == "NeuralSurv"
    assert rows["network"] == "4 silu"
    assert rows["weights"] == str(usual.posterior_.network.size)
    assert rows["settings of the scales tried"] == f"{found.sweeps} (converged)"
    assert rows["ELBO and log hyper-prior"] == f"{usual.elbo_[-1]:.3f}"
    assert rows["settings averaged over"] == str(found.settings)
    assert set(found.scales) >= {"covariates", "trend", "bumps", "network"}
    for name, scale in found.scales.items():
        assert rows[f"scale of the {name}"] == f"{scale:.3f}"
    assert not {"latent points", "variational sweeps", "phi, mean [90% interval]"} & rows.keys()
    assert text.endswith("Warnings\n  - none")


def test_diagnose_is_what_the_estimator_keeps(usual: NeuralSurv, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[DefaultFit] = []

    def spy(*args: Any, **options: Any) -> Any:
        kept.append(fit_default(*args, **options))
        return kept[-1]

    monkeypatch.setattr("neuralsurv.estimator.neuralsurv.fit_default", spy)
    model = fit(COHORT.x, COHORT.time, COHORT.event, entry=ENTRY)
    (result,) = kept
    found = model.diagnostics_
    assert found.scales == result.scales
    # Latent points by hand: what the ceiling gives minus what sigma(g) lets through, at the mean of g at the top.
    events = result.likelihood.points.events
    share = torch.sigmoid(result.offset + result.top.state.mean)[events:]
    mass = result.phi.mean * usual.headroom * result.likelihood.points.weight[events:]
    assert found.latent_points == pytest.approx(float((mass * (1 - share)).sum()), rel=1e-10)
    assert found.latent_share == pytest.approx(float((mass * (1 - share)).sum() / mass.sum()), rel=1e-10)


# -------------------------------------------------------------------------------------------------- prediction


def test_curves_are_the_integral_of_the_hazard(usual: NeuralSurv) -> None:
    """Against 8,000 nodes, evenly spaced in the root of time, where the library has two in each of some 70 panels."""
    posterior = usual.posterior_
    draws = posterior.draw(5, seed=1)
    x = torch.from_numpy(usual.encoding_.transform(COHORT.x))[:3]
    times = torch.tensor([1e-3, 0.05, 0.4, 1.0, 1.6], dtype=torch.float64)
    found = posterior.cumulative_hazard_draws(draws, times, x)
    position, mass = (torch.from_numpy(part) for part in np.polynomial.legendre.leggauss(4))
    for place, end in enumerate(times.tolist()):
        edges = torch.linspace(0, end**0.5, 2001, dtype=torch.float64)
        half = (edges[1] - edges[0]) / 2
        root = ((edges[1:] + edges[:-1])[:, None] / 2 + half * position).reshape(-1)
        weight = (half * mass).repeat(2000) * 2 * root
        for person in range(3):
            rate = posterior.hazard_draws(draws, root**2, x[person].expand(len(root), -1))
            torch.testing.assert_close(found[:, person, place], rate @ weight, rtol=2e-6, atol=0)


def test_a_curve_at_a_time_does_not_depend_on_the_other_times(usual: NeuralSurv) -> None:
    alone = usual.predict_survival(COHORT.x, [TIMES[2]]).draws[:, :, 0]
    among = usual.predict_survival(COHORT.x, TIMES).draws[:, :, 2]
    np.testing.assert_allclose(alone, among, rtol=0, atol=1e-6)


def test_far_beyond_the_training_range(usual: NeuralSurv) -> None:
    times = usual.time_scale_ * np.array([1.0, 10.0, 1e4])
    prediction = usual.predict_survival(COHORT.x.head(2), times)
    assert prediction.extrapolated.tolist() == [False, True, True]
    assert np.isfinite(prediction.draws).all()
    assert (np.diff(prediction.draws, axis=2) <= 0).all()


def test_everything_that_can_be_predicted(usual: NeuralSurv) -> None:
    x, last = COHORT.x.head(3), usual.time_scale_
    assert (usual.predict_hazard(x, TIMES).draws > 0).all()
    assert usual.predict(x).shape == (3,)
    assert ((usual.predict_rmst(x, last).draws > 0) & (usual.predict_rmst(x, last).draws <= last)).all()
    assert (usual.predict_median(x).draws > 0).all()
    assert (usual.predict_event_time(x).draws > 0).all()
    given = usual.predict_conditional_survival(x, TIMES[3:], given=float(TIMES[2])).draws
    assert (given <= 1).all()
    assert usual.score(COHORT.x, COHORT.y) > 0.6
