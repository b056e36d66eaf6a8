"""The method of the paper, from a cohort to a posterior: mode, linearisation, coordinate ascent."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from neuralsurv.data.cohort import Cohort
from neuralsurv.errors import InputError
from neuralsurv.inference.linearised_fit import SolverReport
from neuralsurv.inference.paper import cavi, mode
from neuralsurv.inference.paper.cavi import make_solver
from neuralsurv.inference.paper.footprint import require_paper
from neuralsurv.inference.paper.problem import COARSE_ROWS, PaperProblem, build_problem, coarse_problem
from neuralsurv.inference.paper.settings import PaperSettings
from neuralsurv.inference.paper.updates import CaviStart, curvature_and_slope
from neuralsurv.inference.threads import threads_for
from neuralsurv.model.likelihood import Likelihood
from neuralsurv.model.linearise import Linearised, linearise, linearise_network
from neuralsurv.model.prior import Gamma, GroupedPrior
from neuralsurv.model.quadrature import GaussLegendre, missing_share
from neuralsurv.posterior.concerns import Concern, concern_fields
from neuralsurv.posterior.diagnostics import Diagnostics
from neuralsurv.progress import Advance, bar
from neuralsurv.solvers.choose import Choice, choose
from neuralsurv.solvers.grouped import GroupedSolver, grouped_solver
from neuralsurv.solvers.interface import Gaussian, SolvedGaussian
from neuralsurv.solvers.rows import CACHE_NUMBERS, Products, row_slices

# Memory limit of the algebra of the sweeps, in bytes.
MEMORY = 3 * 2**30
# With fewer latent points than this share, sigma(g) is so close to 1 everywhere that hazards can hardly differ.
COLLAPSE_SHARE = 0.05
# The trapezoid cuts every row at the last grid point; more than this share of the time at risk lost is reported.
EXPOSURE_SHARE = 0.05


@dataclass(frozen=True)
class PaperFit:
    """The result of a fit of the paper's method."""

    # The variational factors.
    phi: Gamma
    theta: SolvedGaussian
    mode: mode.Mode  # where the network was linearised
    objectives: tuple[float, ...]  # U at the end of every start
    info: cavi.CaviInfo
    likelihood: PaperProblem  # what was fitted
    missing_exposure: float  # part of the time at risk that the quadrature rule leaves out
    solver: SolverReport
    # Sweeps that were run on a coarser quadrature rule, or in single precision, before those of `info`.
    coarse_sweeps: int
    worst_k_hat: float = math.inf  # no warning: the paper's bound is nearly always far from the posterior
    known_log_scales: None = None  # the prior has no scales

    @property
    def theta_star(self) -> Tensor:
        """Where the network was linearised, shape (m,)."""
        return self.mode.theta

    @property
    def phi_prior(self) -> Gamma:
        """The prior of phi."""
        return self.likelihood.phi_prior

    @property
    def prior(self) -> GroupedPrior:
        """The prior of the weights, whose scales are known."""
        return GroupedPrior(self.likelihood.weight_prior.precision, ())

    @property
    def best_theta(self) -> SolvedGaussian:
        """q(theta)."""
        return self.theta

    @property
    def trace(self) -> tuple[float, ...]:
        """The ELBO after each sweep."""
        return self.info.elbo

    def rule(self, nodes: int) -> GaussLegendre:
        """Return a Gauss–Legendre rule."""
        return GaussLegendre(nodes)

    def reduce(self, time: Tensor, x: Tensor, importance: Tensor, tolerance: float) -> GroupedSolver:
        """Return the directions of the weights that carry information."""
        network, precision = self.likelihood.network, self.likelihood.weight_prior.precision
        rows = linearise_network(network, self.theta_star, time, x).rows
        return grouped_solver([(rows, False)], precision, importance, tolerance=tolerance, most=network.size)

    def separate(self, likelihood: Likelihood) -> tuple[Tensor, Products] | None:
        """Return None: rows of a network are not separable."""
        return None

    def diagnose(self) -> Diagnostics:
        """Return the diagnostics of the variational posterior."""
        return self._diagnose(self.info.latent_points, self.phi.mean, self._about_sweeps())

    def diagnose_draws(self, latent_points: float, phi: float) -> Diagnostics:
        """Return the diagnostics of exact draws, which need neither the sweeps nor a quadrature rule."""
        return self._diagnose(latent_points, phi, [])

    def _diagnose(self, latent_points: float, phi: float, more: list[Concern]) -> Diagnostics:
        every = phi * float(self.likelihood.baseline.sum())
        # Entries may be so late that rounding leaves nothing of the exposure.
        latent_share = latent_points / every if every > 0 else 0.0
        concerns, collapsed = [], latent_share < COLLAPSE_SHARE
        if collapsed:
            text = (
                f"the posterior has collapsed: only {latent_points:.2f} latent points ({latent_share:.1%} of all "
                "points) are left, so sigma(g) is close to 1 for everybody and covariates have next to no effect. Try "
                "other starts (random_state, starts) or a smaller network (hidden)."
            )
            concerns.append(Concern("collapse", text))
        if not self.mode.converged:
            text = (
                f"the search for the mode stopped at its limit of {len(self.mode.trace) - 1} iterations; the network "
                "is linearised at the best point found."
            )
            concerns.append(Concern("mode", text))
        return Diagnostics(
            converged=self.info.converged,
            interrupted=self.info.interrupted,
            sweeps=self.info.sweeps,
            mode_converged=self.mode.converged,
            mode_objectives=self.objectives,
            latent_points=latent_points,
            latent_share=latent_share,
            collapsed=collapsed,
            missing_exposure=self.missing_exposure,
            coarse_sweeps=self.coarse_sweeps,
            **asdict(self.solver),
            **concern_fields([*concerns, *more]),
        )

    def _about_sweeps(self) -> list[Concern]:
        info, concerns = self.info, []
        if info.interrupted and not info.converged:
            text = (
                f"the variational sweeps were interrupted after {info.sweeps}; the model can be used, but has not "
                "converged. Fit again with warm_start=True to sweep on without a new search for the mode."
            )
            concerns.append(Concern("interrupted", text))
        elif not info.converged:
            change = f"; the last relative change was {info.change[-1]:.2g}" if info.change else ""
            text = (
                f"the variational sweeps stopped after {info.sweeps} before reaching their tolerance{change}. "
                "Raise max_sweeps, or tolerance if that is close enough."
            )
            concerns.append(Concern("sweeps", text))
        if self.missing_exposure > EXPOSURE_SHARE:
            text = (
                f"the trapezoid grid leaves out {self.missing_exposure:.0%} of the time at risk, because many rows end "
                "between two grid points. Use quadrature='gauss-legendre', or more quadrature_points."
            )
            concerns.append(Concern("quadrature", text))
        return concerns


def _words(advance: Advance) -> mode.IterationReport:
    return lambda step, value: advance(step, f"step {step}, U = {value:.4f}")


def find_mode(
    problem: PaperProblem,
    settings: PaperSettings,
    seed: int,
    verbose: bool | str | int,
    warm: Tensor | None = None,
    coarse: PaperProblem | None = None,
) -> tuple[mode.Mode, list[float]]:
    """Search from several seeded starts, or from where an earlier fit ended, and keep the best mode.

    With a coarse problem all starts run on that, to ten times the tolerance; only the best goes on to the mode of the
    coarse problem and then of the problem itself. The direct search runs from all starts together; EM, whose bound
    differs between starts, from one after the other.
    """
    usable = warm is not None and len(warm) == problem.network.size
    starts = [warm] if warm is not None and usable else mode.random_starts(problem, settings.starts, seed)
    if settings.mode == "em":
        found = []
        for number, theta in enumerate(starts, 1):
            with bar(f"mode, start {number} of {len(starts)}", None, verbose) as advance:
                found.append(mode.em(problem, theta, tolerance=settings.mode_tolerance, report=_words(advance)))
    else:
        tolerance = settings.mode_tolerance if coarse is None else 10 * settings.mode_tolerance
        title = f"mode, {len(starts)} starts" if len(starts) > 1 else "mode"
        with bar(title + (", few nodes" if coarse else ""), None, verbose) as advance:
            found = mode.direct_together(coarse or problem, starts, tolerance=tolerance, report=_words(advance))
    best = current = mode.best_of(found)
    if coarse is not None:
        for title, stage in (("mode, few nodes", coarse), ("mode", problem)):
            with bar(title, None, verbose) as advance:
                current = mode.direct(
                    stage,
                    current.theta,
                    tolerance=settings.mode_tolerance,
                    inverse_hessian=current.inverse_hessian,
                    report=_words(advance),
                )
    return current, [current.objective if one is best else mode.objective(problem, one.theta) for one in found]


def _moments(linearised: Linearised, theta: Gaussian) -> tuple[Tensor, Tensor]:
    """Return mean and variance of g at linearised points under any Gaussian."""
    rows = linearised.rows
    variance = [theta.variance(rows.take(part).dense()) for part in row_slices(*rows.shape, CACHE_NUMBERS)]
    return linearised.offset + rows.times(theta.mean), torch.cat(variance)


def sweep_coarsely(
    problem: PaperProblem, linearised: Linearised, coarse: PaperProblem, start: mode.Mode, settings: PaperSettings
) -> tuple[CaviStart, int]:
    """Sweep on the coarse rule until convergence; return the state at the points of the problem."""
    rough = linearise(coarse, start.theta)
    begin = cavi.start(coarse, rough, start.theta, start.phi, settings.spread)
    with threads_for(len(coarse.points) * coarse.network.size):
        solver = make_solver(choose(len(coarse.points), coarse.network.size, MEMORY).solver, coarse, rough, begin)
        state, info = cavi.sweep_until_converged(
            coarse, rough, solver.exact, begin, tolerance=settings.tolerance, max_sweeps=settings.max_sweeps
        )
    with threads_for(len(problem.points) * problem.network.size):
        mean, variance = _moments(linearised, state.theta)
    return CaviStart(state.phi, state.theta_mean, mean, variance), info.sweeps


def fit_paper(
    cohort: Cohort, settings: PaperSettings, *, seed: int, verbose: bool | str | int = False, warm: Tensor | None = None
) -> PaperFit:
    """Fit the model of the paper to rows in scaled time (largest 1).

    The search starts at `warm`, the mode of an earlier fit, in place of random draws, unless the network has changed.
    """
    require_paper(cohort, settings, memory=MEMORY)
    problem = build_problem(cohort, settings, seed)
    if problem.phi_prior.shape - 1 + problem.event_count <= 0:
        raise InputError(
            f"the weights of the events add up to {problem.event_count:g}, too little for phi_prior with shape "
            f"{problem.phi_prior.shape:g}: their sum must exceed 1 for phi to have a mode. Rescale the weights."
        )
    coarse = coarse_problem(problem, cohort, settings)
    widest = max([cohort.covariates + 1, *settings.hidden])
    with threads_for(len(problem.points) * widest):
        start, objectives = find_mode(problem, settings, seed, verbose, warm, coarse)
    linearised = linearise(problem, start.theta)
    choice = (
        choose(len(problem.points), problem.network.size, MEMORY)
        if settings.solver == "auto"
        else Choice(settings.solver, "asked for")
    )
    coarse_sweeps = 0
    # Fewer nodes of the same rows lead nearly to the same posterior; some of the rows lead to one that the others take
    # longer to move than a start from the mode.
    if coarse is None or len(cohort) >= 2 * COARSE_ROWS:
        begin = cavi.start(problem, linearised, start.theta, start.phi, settings.spread)
    else:
        begin, coarse_sweeps = sweep_coarsely(problem, linearised, coarse, start, settings)
    with threads_for(len(problem.points) * problem.network.size):
        solver = make_solver(choice.solver, problem, linearised, begin, rough=settings.accelerate)
    with threads_for(len(problem.points) * solver.rank), bar("variational sweeps", None, verbose) as advance:
        state, info = cavi.sweep_until_converged(
            problem,
            linearised,
            solver.exact,
            begin,
            tolerance=settings.tolerance,
            max_sweeps=settings.max_sweeps,
            accelerate=settings.accelerate,
            rough=solver.rough,
            report=lambda k, bound, change: advance(k, f"sweep {k}, ELBO {bound:.4f}, change {change:.1e}"),
        )
    theta = state.theta.compact(MEMORY)
    nodes = settings.rule.nodes(cohort.entry, cohort.time, settings.rho)
    missing = missing_share(cohort.entry, cohort.time, cohort.weight, nodes, settings.rho)
    curvature, _ = curvature_and_slope(problem, state.m, state.v, state.phi)
    used = SolverReport(choice.solver, choice.reason, solver.rank, solver.lost_information(curvature))
    coarse_sweeps += info.rough_sweeps
    return PaperFit(state.phi, theta, start, tuple(objectives), info, problem, missing, used, coarse_sweeps)
