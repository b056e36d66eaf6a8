import dataclasses
import functools
import math

import pytest
import torch

from inference.problems import FrozenNetwork, baseline_exposure, double, event_weight, simulated
from neuralsurv.data.cohort import Cohort
from neuralsurv.data.simulate import lognormal_cohort
from neuralsurv.errors import InputError
from neuralsurv.inference.paper import mode
from neuralsurv.inference.paper.fit import find_mode, fit_paper
from neuralsurv.inference.paper.problem import build_problem, choose_normaliser, coarse_problem
from neuralsurv.inference.paper.settings import PaperSettings
from neuralsurv.model.augmentation import log_thinning
from neuralsurv.model.hazard import ClosedForm, Constant, MonteCarlo
from neuralsurv.model.linearise import linearise
from neuralsurv.model.network import MLP
from neuralsurv.model.prior import WeightPrior
from neuralsurv.model.quadrature import GaussLegendre, Trapezoid
from neuralsurv.posterior.gaussian import Posterior
from posteriors import g_moments

TRAPEZOID = {"quadrature": "trapezoid", "quadrature_points": 30}
GAUSS = {"quadrature": "gauss-legendre", "quadrature_points": 24}


def small(**options):
    """The paper's choices with a small network and sweeps to the end."""
    settings = {"hidden": (3,), "activation": "tanh", "starts": 1, "mode_tolerance": 1e-13, "tolerance": 1e-10}
    return PaperSettings(**(settings | {"max_sweeps": 5000} | TRAPEZOID | options)).checked()


def moments_of(result, time, x):
    problem = result.likelihood
    posterior = Posterior(result.phi, result.theta, result.mode.theta, problem.network, problem.normaliser, problem.rho)
    return g_moments(posterior, time, x)


def split(rows, who, at):
    """Cut the rows `who` in two at the inner times `at`: the first part ends there without an event."""
    early = dataclasses.replace(rows.take(who), time=at, event=torch.zeros(len(who), dtype=torch.bool))
    entry = rows.entry.clone()
    entry[who] = at
    late = dataclasses.replace(rows, entry=entry)
    # These rows have one cause of events, so that it is not named.
    fields = [field.name for field in dataclasses.fields(Cohort) if getattr(rows, field.name) is not None]
    return Cohort(*(torch.cat([getattr(early, name), getattr(late, name)]) for name in fields))


class TestSameDataInAnotherForm:
    """The same data written down in another way give the same posterior.

    Both fits follow the same path up to rounding. The mode is then known to the root of the rounding of U (1e-8 to
    1e-7), and the sweeps stop at a change of 1e-10, up to a hundred changes from their limit: the moments agree to
    1e-6. A row counted wrongly moves them by more than 1e-3.
    """

    ROWS = simulated(25, censoring=0.4, entry=True, seed=6)
    TIME = torch.linspace(0.05, 1, 6, dtype=torch.float64)
    X = torch.randn(6, 2, generator=torch.Generator().manual_seed(9), dtype=torch.float64)

    def differences(self, one, other, choices):
        first, second = (fit_paper(rows, choices, seed=1) for rows in (one, other))
        assert first.info.converged
        assert second.info.converged
        assert first.diagnose().latent_share > 0.1
        (m, v), (other_m, other_v) = (moments_of(result, self.TIME, self.X) for result in (first, second))
        assert float(m.std()) > 0.1
        return (
            abs(first.phi.shape / second.phi.shape - 1),
            abs(first.phi.rate / second.phi.rate - 1),
            float((m - other_m).abs().max()),
            float((v / other_v - 1).abs().max()),
        )

    @pytest.mark.parametrize("rule", [TRAPEZOID, GAUSS], ids=["trapezoid", "gauss-legendre"])
    @pytest.mark.parametrize("rho", [1.0, 1.4])
    def test_weight_two_is_the_row_twice(self, rule, rho):
        twice = torch.tensor([0, 3, 4, 11, 20])
        weight = torch.ones(25, dtype=torch.float64)
        weight[twice] = 2
        heavy = dataclasses.replace(self.ROWS, weight=weight)
        doubled = self.ROWS.take(torch.cat([torch.arange(25), twice]))
        assert max(self.differences(heavy, doubled, small(rho=rho, **rule))) < 1e-6
        assert max(self.differences(heavy, self.ROWS, small(rho=rho, **rule))) > 1e-3

    @pytest.mark.parametrize("rule", [TRAPEZOID, GAUSS], ids=["trapezoid", "gauss-legendre"])
    def test_order_of_rows(self, rule):
        order = torch.randperm(25, generator=torch.Generator().manual_seed(0))
        rows = dataclasses.replace(self.ROWS, weight=torch.linspace(0.5, 2, 25, dtype=torch.float64))
        assert max(self.differences(rows, rows.take(order), small(**rule))) < 1e-6

    @pytest.mark.parametrize("rho", [0.6, 1.0, 1.4])
    def test_row_cut_in_two_at_any_inner_time_with_the_trapezoid(self, rho):
        # Between grid points, so that the two parts together are the row only if both are cut down to the grid.
        who = torch.tensor([1, 5, 6, 17, 24])
        share = double([0.11, 0.37, 0.5, 0.73, 0.98])
        at = self.ROWS.entry[who] + share * (self.ROWS.time - self.ROWS.entry)[who]
        assert max(self.differences(self.ROWS, split(self.ROWS, who, at), small(rho=rho))) < 1e-6

    def test_row_cut_in_two_with_gauss_legendre(self):
        # g is smooth, so 24 nodes integrate it to rounding over the row and over both its parts.
        who = torch.tensor([1, 5, 6, 17, 24])
        at = (0.4 * self.ROWS.entry + 0.6 * self.ROWS.time)[who]
        assert max(self.differences(self.ROWS, split(self.ROWS, who, at), small(**GAUSS))) < 1e-6

    def test_same_seed_same_result(self):
        choices = small(starts=2)
        one, other = (fit_paper(self.ROWS, choices, seed=1) for _ in range(2))
        assert one.phi == other.phi
        assert torch.equal(one.theta.mean, other.theta.mean)
        assert one.objectives == other.objectives


def cohort(n, seed):
    table = lognormal_cohort(n, seed=seed)
    x = torch.from_numpy(table.x.to_numpy(dtype=float))
    x = (x - x.mean(0)) / x.std(0)
    return Cohort.of(table.time / table.time.max(), table.event, torch.zeros(n), torch.ones(n), x)


class TestCollapse:
    ROWS = cohort(100, seed=1)
    CHOICES = PaperSettings(
        hidden=(16,), quadrature="gauss-legendre", quadrature_points=8, starts=1, mode_tolerance=1e-6
    )

    def test_from_the_spread_of_the_prior_it_is_seen_and_said(self):
        result = fit_paper(self.ROWS, dataclasses.replace(self.CHOICES, spread="prior"), seed=2)
        found = result.diagnose()
        assert found.collapsed
        assert found.converged
        assert found.latent_share < 0.05
        assert 0 <= result.phi.shape - (1 + event_weight(self.ROWS)) < 0.5
        assert found.latent_points == pytest.approx(result.phi.shape - (1 + event_weight(self.ROWS)))
        (message,) = found.messages
        assert message.startswith(f"the posterior has collapsed: only {found.latent_points:.2f} latent points (")
        # What the message says: σ(g) is close to 1 at the time at risk.
        events = result.likelihood.points.events
        points = result.likelihood.points.time[events:], result.likelihood.point_x[events:]
        share = torch.sigmoid(moments_of(result, *points)[0])
        assert float((result.likelihood.baseline * share).sum() / result.likelihood.baseline.sum()) > 0.95

    def test_from_the_mode_it_does_not_happen(self):
        result = fit_paper(self.ROWS, dataclasses.replace(self.CHOICES, spread="mode"), seed=2)
        found = result.diagnose()
        assert not found.collapsed
        assert found.latent_share > 0.15
        assert found.messages == ()


@pytest.fixture(scope="module")
def good():
    """A fit without anything to complain of: 20 rows, 14 events."""
    return fit_paper(simulated(20, seed=6), small(tolerance=1e-6, **GAUSS), seed=0)


class TestDiagnostics:
    def test_a_good_fit_has_nothing_to_say(self, good):
        found = good.diagnose()
        assert found.messages == ()
        assert (found.converged, found.mode_converged) == (True, True)
        assert (found.collapsed, found.interrupted) == (False, False)
        assert found.sweeps == good.info.sweeps
        assert found.mode_objectives == good.objectives
        assert found.missing_exposure == pytest.approx(0, abs=1e-12)

    def test_latent_share(self, good):
        problem = good.likelihood
        linearised = linearise(problem, good.mode.theta)
        m = linearised.offset + linearised.rows.dense() @ good.theta.mean
        s = torch.sqrt(m**2 + good.theta.variance(linearised.rows.dense()))
        thinned = torch.exp(log_thinning(m, s))[problem.points.events :]
        average = float((problem.baseline * thinned).sum() / problem.baseline.sum())
        # E[log phi] stands for log E[phi] in the latent intensity, and the sweeps stop a little early.
        wanted = average * math.exp(good.phi.mean_log) / good.phi.mean
        assert good.diagnose().latent_share == pytest.approx(wanted, rel=1e-4)

    @pytest.mark.parametrize(("share", "collapsed"), [(0.049, True), (0.051, False)])
    def test_collapse_begins_at_five_per_cent(self, good, share, collapsed):
        everything = good.phi.mean * float(good.likelihood.baseline.sum())
        info = dataclasses.replace(good.info, latent_points=share * everything)
        assert dataclasses.replace(good, info=info).diagnose().collapsed is collapsed

    def test_sweeps_that_did_not_converge(self):
        rows = simulated(20, seed=6)
        found = fit_paper(rows, small(max_sweeps=2, **GAUSS), seed=0).diagnose()
        assert not found.converged
        (message,) = found.messages
        assert message.startswith(
            "the variational sweeps stopped after 2 before reaching their tolerance; the last rel"
        )
        assert message.endswith("Raise max_sweeps, or tolerance if that is close enough.")

    def test_sweeps_that_were_interrupted(self, good):
        info = dataclasses.replace(good.info, converged=False, interrupted=True)
        found = dataclasses.replace(good, info=info).diagnose()
        assert found.interrupted
        (message,) = found.messages
        assert message.startswith(f"the variational sweeps were interrupted after {good.info.sweeps}; the model can")

    def test_search_for_the_mode_at_its_limit(self, good):
        problem = good.likelihood
        stopped = mode.direct(problem, mode.random_starts(problem, 1, 0)[0], max_iterations=5)
        found = dataclasses.replace(good, mode=stopped).diagnose()
        assert not found.mode_converged
        assert found.messages == (
            "the search for the mode stopped at its limit of 5 iterations; the network is linearised at the best "
            "point found.",
        )

    def test_missing_exposure(self):
        # With a grid of 11 points a row loses half a cell, 0.05, on average.
        rows = simulated(20, seed=6)
        result = fit_paper(rows, small(tolerance=1e-4, quadrature_points=11), seed=0)
        floor = torch.floor(10 * rows.time + 1e-9) / 10
        lost = 1 - float(floor.sum() / rows.time.sum())
        found = result.diagnose()
        assert lost > 0.1
        assert found.missing_exposure == pytest.approx(lost, rel=1e-12)
        (message,) = found.messages
        assert message.startswith(f"the trapezoid grid leaves out {lost:.0%} of the time at risk")

    def test_all_messages_at_once(self, good):
        info = dataclasses.replace(good.info, converged=False, latent_points=0.0)
        stopped = dataclasses.replace(good.mode, converged=False)
        found = dataclasses.replace(good, info=info, mode=stopped, missing_exposure=0.2).diagnose()
        assert len(found.messages) == 4


class TestChoices:
    def test_quadrature(self):
        assert small(quadrature="trapezoid", quadrature_points=50).rule == Trapezoid(50)
        assert small(quadrature="gauss-legendre", quadrature_points=12).rule == GaussLegendre(12)

    @pytest.mark.parametrize(
        ("normaliser", "kind"),
        [("auto", Constant), ("half", Constant), ("closed-form", ClosedForm), ("monte-carlo", MonteCarlo)],
    )
    def test_normaliser_of_a_symmetric_network(self, normaliser, kind):
        network = MLP(2, (3,))
        prior = WeightPrior.isotropic(network.size)
        assert isinstance(choose_normaliser(small(normaliser=normaliser), network, prior, 0), kind)

    def test_auto_takes_the_closed_form_where_half_is_wrong(self):
        network = FrozenNetwork((0.5,))
        assert isinstance(choose_normaliser(small(), network, WeightPrior.isotropic(1), 0), ClosedForm)

    def test_half_is_refused_where_it_is_wrong(self):
        with pytest.raises(InputError, match="normaliser='half' is only right for a network whose prior is symmetric"):
            choose_normaliser(small(normaliser="half"), FrozenNetwork((0.5,)), WeightPrior.isotropic(1), 0)

    def test_problem_holds_what_was_chosen(self):
        rows = simulated(12, entry=True, weight=True)
        choices = small(hidden=(5, 2), activation="silu", rho=1.3, phi_prior=(2.0, 0.5), **GAUSS)
        problem = build_problem(rows, choices, 0)
        assert problem.network == MLP(2, (5, 2), "silu")
        assert (problem.rho, problem.phi_prior.shape, problem.phi_prior.rate) == (1.3, 2.0, 0.5)
        assert bool((problem.weight_prior.precision == 1).all())
        assert problem.phi_rate == pytest.approx(0.5 + 2 * baseline_exposure(rows, 1.3), rel=1e-13)
        assert problem.event_count == event_weight(rows)

    @pytest.mark.parametrize("search", ["direct", "em"])
    def test_mode_is_the_best_of_the_starts_by_the_search_that_was_chosen(self, monkeypatch, search):
        run = functools.partial(getattr(mode, search), max_iterations=8)
        monkeypatch.setattr(mode, "em", functools.partial(mode.em, max_iterations=8))
        monkeypatch.setattr(mode, "direct_together", functools.partial(mode.direct_together, max_iterations=8))
        choices = small(mode=search, starts=3)
        problem = build_problem(simulated(15, seed=1), choices, 5)
        best, objectives = find_mode(problem, choices, 5, verbose=False)
        by_hand = [run(problem, theta) for theta in mode.random_starts(problem, 3, 5)]
        assert objectives == pytest.approx([one.objective for one in by_hand], rel=1e-9)
        assert len(set(objectives)) == 3
        assert best.trace == pytest.approx(min(by_hand, key=lambda one: one.objective).trace, rel=1e-9)

    @pytest.mark.parametrize("search", ["direct", "em"])
    def test_tolerance_of_the_mode_reaches_the_search(self, search):
        rows = simulated(15, seed=5)
        settings = {"hidden": (), "mode": search} if search == "em" else {"hidden": (4,), "activation": "relu"}
        loose, tight = (
            find_mode(build_problem(rows, choices, 0), choices, 0, verbose=False)[0]
            for choices in (small(mode_tolerance=tolerance, **settings) for tolerance in (1e-2, 1e-7))
        )
        assert len(loose.trace) < len(tight.trace)

    def test_em_and_direct_lead_to_the_same_posterior_of_a_linear_model(self):
        rows = simulated(20, seed=1)
        one, other = (fit_paper(rows, small(mode=search, hidden=()), seed=0) for search in ("em", "direct"))
        # A linear g is its own linearisation, so where the search stopped makes no difference.
        assert one.phi.shape == pytest.approx(other.phi.shape, rel=1e-7)
        assert torch.allclose(one.theta.mean, other.theta.mean, rtol=1e-6, atol=1e-8)

    @pytest.mark.parametrize("spread", ["mode", "prior"])
    def test_spread_tolerance_and_limit_reach_the_sweeps(self, spread):
        rows = simulated(20, seed=6)
        result = fit_paper(rows, small(spread=spread, tolerance=1e-3, accelerate=False), seed=0)
        assert result.info.converged
        assert result.info.change[-1] < 1e-3 <= min(result.info.change[:-1])
        assert fit_paper(rows, small(spread=spread, max_sweeps=3), seed=0).info.sweeps == 3

    def test_spreads_start_differently(self):
        rows = simulated(20, seed=6)
        first = [fit_paper(rows, small(spread=spread, max_sweeps=1), seed=0).info.elbo for spread in ("mode", "prior")]
        assert first[0] != pytest.approx(first[1], rel=1e-6)


class TestWarmStart:
    ROWS = simulated(20, seed=6)

    def test_the_search_begins_where_the_earlier_one_ended(self, good):
        again = fit_paper(self.ROWS, small(starts=3, **GAUSS), seed=5, warm=good.mode.theta)
        assert again.mode.trace[0] == pytest.approx(good.mode.objective, rel=1e-14)
        assert len(again.objectives) == 1
        assert again.objectives[0] < good.mode.objective + 1e-9

    def test_weights_of_another_network_are_left_alone(self, good):
        choices = small(hidden=(2,), tolerance=1e-4)
        cold = fit_paper(self.ROWS, choices, seed=0)
        warm = fit_paper(self.ROWS, choices, seed=0, warm=good.mode.theta)
        assert warm.mode.trace == cold.mode.trace


class TestCoarseProblem:
    """Shortcuts say where to start; they must not say where to end."""

    @pytest.mark.parametrize("options", [{}, {"rho": 1.3}])
    def test_same_end_where_there_is_one_optimum(self, options):
        rows = simulated(60, covariates=3, seed=4)
        choices = PaperSettings(hidden=(), tolerance=1e-9, mode_tolerance=1e-12, **options)
        quick = fit_paper(rows, choices, seed=0)
        plain = fit_paper(rows, dataclasses.replace(choices, accelerate=False), seed=0)
        assert quick.coarse_sweeps > 0
        assert plain.coarse_sweeps == 0
        assert quick.info.sweeps < plain.info.sweeps
        assert quick.mode.objective == pytest.approx(plain.mode.objective, abs=1e-8)
        assert quick.info.elbo[-1] == pytest.approx(plain.info.elbo[-1], abs=1e-7)
        assert quick.phi.shape == pytest.approx(plain.phi.shape, rel=1e-6)
        assert torch.allclose(quick.theta.mean, plain.theta.mean, atol=1e-5)

    def test_some_of_the_rows_stand_for_all(self):
        rows = simulated(5000, seed=1)
        problem = build_problem(rows, small(**GAUSS), seed=0)
        coarse = coarse_problem(problem, rows, small(**GAUSS))
        assert len(coarse.points) < len(problem.points) / 3
        assert float(coarse.baseline.sum()) == pytest.approx(float(problem.baseline.sum()), rel=0.15)
        assert coarse.event_count == pytest.approx(problem.event_count, rel=0.05)
        # Every point has the covariates of its own row.
        times = rows.time[coarse.points.row[: coarse.points.events]]
        assert torch.equal(coarse.points.time[: coarse.points.events], times)

    @pytest.mark.parametrize("options", [{"accelerate": False}, {"mode": "em"}])
    def test_not_where_the_letter_of_the_paper_is_asked_for(self, options):
        rows = simulated(60, seed=4)
        choices = PaperSettings(**({"hidden": (2,)} | options))
        problem = build_problem(rows, choices, seed=0)
        assert coarse_problem(problem, rows, choices) is None

    def test_not_where_there_is_little_to_save(self):
        rows = simulated(60, seed=4)
        problem = build_problem(rows, small(**GAUSS), seed=0)
        assert coarse_problem(problem, rows, small(**GAUSS)) is None


class TestSolvers:
    @pytest.mark.parametrize("solver", ["dual", "low-rank"])
    def test_every_solver_ends_where_the_plain_one_does(self, solver):
        rows = simulated(12, seed=3)
        choices = PaperSettings(
            hidden=(4,), activation="tanh", quadrature="gauss-legendre", quadrature_points=4, starts=1
        )
        plain, other = (
            fit_paper(rows, dataclasses.replace(choices, solver=name), seed=0) for name in ("primal", solver)
        )
        assert other.solver.solver == solver
        assert other.solver.solver_reason == "asked for"
        # The low-rank solver may give up a thousandth of a nat.
        assert other.solver.lost_information < 2e-3
        assert other.info.elbo[-1] == pytest.approx(plain.info.elbo[-1], abs=2e-3)
        assert other.phi.shape == pytest.approx(plain.phi.shape, rel=1e-3)
        points = torch.linspace(0.1, 1, 5, dtype=torch.float64), rows.x[:5]
        for found, wanted in zip(moments_of(other, *points), moments_of(plain, *points), strict=True):
            assert torch.allclose(found, wanted, rtol=2e-2, atol=2e-3)
