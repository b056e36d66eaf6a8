"""The default model, from a cohort to a posterior: points, scales of the prior, mixture."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace

import torch
from torch import Tensor

from neuralsurv.data.cohort import Cohort
from neuralsurv.inference.default.cause_columns import cause_scales, separable_terms
from neuralsurv.inference.default.curve_choice import UNITS
from neuralsurv.inference.default.expectations import NODES
from neuralsurv.inference.default.footprint import require_default
from neuralsurv.inference.default.module_training import ModuleTraining
from neuralsurv.inference.default.null_setting import PRIOR_SHARE, null_setting
from neuralsurv.inference.default.scales import (
    Average,
    Evidence,
    Report,
    ScaledSolver,
    Search,
    Setting,
    average_over,
    find_top,
)
from neuralsurv.inference.default.settings import DefaultSettings
from neuralsurv.inference.default.structure import (
    build_network,
    build_prior,
    place_units,
    prior_spread,
    train_module,
)
from neuralsurv.inference.linearised_fit import SolverReport
from neuralsurv.inference.threads import threads_for
from neuralsurv.model.additive import TIME_GROUPS, Additive
from neuralsurv.model.hazard import Constant
from neuralsurv.model.likelihood import AdditiveLikelihood, Likelihood
from neuralsurv.model.module_network import ModuleNetwork
from neuralsurv.model.points import build_points
from neuralsurv.model.prior import GroupedPrior, PointMass
from neuralsurv.model.quadrature import Rule, ShiftedLog
from neuralsurv.names import counted
from neuralsurv.posterior.concerns import CEILING_SHARE, Concern, concern_fields, few_events, near_ceiling
from neuralsurv.posterior.diagnostics import Diagnostics
from neuralsurv.progress import Advance, bar
from neuralsurv.solvers.gaussian_mixture import MixtureGaussian
from neuralsurv.solvers.grouped import GroupedSolver, grouped_solver
from neuralsurv.solvers.interface import Gaussian, SolvedGaussian
from neuralsurv.solvers.rows import DenseRows, LayeredRows, Products, Rows
from neuralsurv.solvers.separable import SeparableScales, separable_scales

# Information of the products, and of the network, that may be given up at scale 1, in nats, and the most directions of
# each that are kept.
_INFORMATION_TOLERANCE = 0.1
_MOST_DIRECTIONS = 200
_REDUCED = ("curves", "neighbourhoods", "changes of curves", "changes of neighbourhoods", "pairs")
# With millions of weights fewer directions are kept: together they hold at most this many numbers (1 GiB).
_MOST_NUMBERS_OF_DIRECTIONS = 2**27
_FEWEST_DIRECTIONS = 32
# With at least twice this many rows, the scales are found from every k-th of them: they hardly depend on the rest.
_ROWS_TO_SEARCH = 2000
# With more rows than this the scales are known well enough not to be averaged over.
_ROWS_TO_AVERAGE = 4000
# Log scale that the search starts from at least: where a scale is next to 0, the evidence hardly depends on it.
_LEAST_START = math.log(0.1)
# Information that the omitted directions may carry before the user is warned, in nats.
_LOST_INFORMATION = 0.5


@dataclass(frozen=True)
class DefaultFit:
    """The result of a fit of the default model.

    Attributes
    ----------
    phi, theta : PointMass, Gaussian
        The posterior.
    theta_star : Tensor of shape (m,)
        Where the network was linearised.
    offset : Tensor of shape (P,)
        The linearised g at theta = 0, at the points.
    likelihood : AdditiveLikelihood
        What was fitted.
    prior : GroupedPrior
        The groups of weights.
    top : Setting
        The scales of the highest score.
    trace : tuple of float
        The score of the best setting so far, after each that was tried in the search.
    settings : int
        How many settings the posterior averages over.
    null_share : float
        The share of the posterior in which no covariate matters.
    interrupted : bool
        Whether the user stopped the search for the scales.
    solver : SolverReport
        Which solver was used.
    epochs : int
        Epochs of training after which a user-supplied network was linearised.
    """

    phi: PointMass
    theta: Gaussian
    theta_star: Tensor
    offset: Tensor
    likelihood: AdditiveLikelihood
    prior: GroupedPrior
    top: Setting
    trace: tuple[float, ...]
    settings: int
    null_share: float
    interrupted: bool
    solver: SolverReport
    epochs: int = 0

    @property
    def worst_k_hat(self) -> float:
        """The k-hat above which importance weights do not even have a mean: q misses a part of the posterior."""
        return 1.0

    @property
    def phi_prior(self) -> PointMass:
        """The prior of phi, which is fixed."""
        return self.phi

    @property
    def known_log_scales(self) -> Tensor | None:
        """The best log scales, if the posterior uses these alone; else None."""
        return self.top.log_scales if self.settings == 1 else None

    @property
    def best_theta(self) -> SolvedGaussian:
        """q(theta) for the best scales."""
        return self.top.state.theta

    @property
    def scales(self) -> dict[str, float]:
        """The scales of the highest score, by the name of their group."""
        names = [group.name for group in self.prior.groups]
        return dict(zip(names, self.top.log_scales.exp().tolist(), strict=True))

    def rule(self, nodes: int) -> Rule:
        """Return the rule that follows the clock of the network."""
        return ShiftedLog(nodes, self.likelihood.network.basis.shift)

    def reduce(self, time: Tensor, x: Tensor, importance: Tensor, tolerance: float) -> GroupedSolver:
        """Return the directions of the weights that carry information."""
        network = self.likelihood.network
        rows = network.rows_by_part(self.theta_star, time, x)
        return reduce_rows(*rows, network, self.prior, importance, tolerance=tolerance, most=network.size)

    def separate(self, likelihood: Likelihood) -> tuple[Tensor, Products] | None:
        """Return offset and rows where each column is a feature of the row times a function of time."""
        network = self.likelihood.network
        if network.inner is not None:
            return None
        scales = _separable(network, likelihood, self.prior.unit)
        offset = network.offsets(likelihood.points.time, likelihood.points.cause)
        return offset, scales.at(self.prior.multipliers(self.top.log_scales)).rows

    def diagnose(self) -> Diagnostics:
        """Return the diagnostics of the variational posterior."""
        events, exposure = self.likelihood.points.events, self.likelihood.baseline
        share_of_ceiling = torch.sigmoid(self.offset[events:] + self.top.state.mean[events:])
        latent = float(exposure @ (1 - share_of_ceiling))
        crowded = float(exposure @ (share_of_ceiling > CEILING_SHARE).double() / exposure.sum())
        concerns = [
            *self._about_search(),
            *few_events(float(self.likelihood.cause_counts.min()), causes=self.likelihood.network.causes),
            *near_ceiling(crowded),
            *_about_directions(self.solver, self.likelihood.network),
        ]
        return Diagnostics(
            converged=self.top.info.converged and not self.interrupted,
            interrupted=self.interrupted,
            sweeps=len(self.trace),
            latent_points=self.phi.mean * latent,
            latent_share=latent / float(exposure.sum()),
            scales=self.scales,
            settings=self.settings,
            null_share=self.null_share,
            epochs=self.epochs,
            **asdict(self.solver),
            **concern_fields(concerns),
        )

    def diagnose_draws(self, latent_points: float, phi: float) -> Diagnostics:
        """Return the diagnostics of exact draws, which share the model with the variational posterior."""
        every = phi * float(self.likelihood.baseline.sum())
        return replace(self.diagnose(), latent_points=latent_points, latent_share=latent_points / every)

    def _about_search(self) -> list[Concern]:
        if self.interrupted:
            text = (
                f"the search for the scales of the prior was interrupted after {counted(len(self.trace), 'setting')}; "
                "the model can be used, but its scales are not the best and it does not average over them."
            )
            return [Concern("interrupted", text)]
        if self.top.info.converged:
            return []
        text = (
            f"the ascent for the best scales stopped after {counted(self.top.info.steps, 'step')} before reaching its "
            "tolerance. Raise max_sweeps, or tolerance if that is close enough."
        )
        return [Concern("sweeps", text)]


def _about_directions(solver: SolverReport, network: Additive) -> list[Concern]:
    if solver.lost_information <= _LOST_INFORMATION:
        return []
    remedy = "fewer columns" if network.inner is None else "a smaller network"
    text = (
        f"the {solver.rank} directions that were kept leave out {solver.lost_information:.1f} nats of information, so "
        f"bands are somewhat wider than they need be; use {remedy}."
    )
    return [Concern("approximation", text)]


def reduce_rows(
    lead: LayeredRows,
    tail: Rows | None,
    network: Additive,
    prior: GroupedPrior,
    importance: Tensor,
    *,
    tolerance: float = _INFORMATION_TOLERANCE,
    most: int = _MOST_DIRECTIONS,
) -> GroupedSolver:
    """Keep the linear path, and reduce curves, neighbourhoods, products and network to what carries information.

    A group of the linear path with more weights than there are points is reduced as well.
    """
    linear = lead.dense()
    parts: list[tuple[Rows, bool]] = []
    done = 0
    for name, place in network.groups.items():
        if name in _REDUCED or place.stop - place.start > len(linear):
            parts += [(DenseRows(linear[:, done : place.start]), True), (DenseRows(linear[:, place]), False)]
            done = place.stop
    parts.append((DenseRows(linear[:, done:]), True))
    if tail is not None:
        parts.append((tail, False))
    return grouped_solver(parts, prior.unit, importance, tolerance=tolerance, most=_most_directions(network.size, most))


def _most_directions(weights: int, most: int = _MOST_DIRECTIONS) -> int:
    return max(_FEWEST_DIRECTIONS, min(most, _MOST_NUMBERS_OF_DIRECTIONS // weights))


def fit_default(
    cohort: Cohort,
    settings: DefaultSettings,
    *,
    seed: int,
    verbose: bool | str | int = False,
    module: ModuleNetwork | None = None,
    training: ModuleTraining | None = None,
) -> DefaultFit:
    """Fit the default model.

    Parameters
    ----------
    cohort : Cohort
        The training rows in scaled time (largest 1), covariates standardised.
    settings : DefaultSettings
        The settings of the model.
    seed : int
        Seed of the draw at which the network is linearised.
    verbose : bool or "auto"
        Whether to show progress.
    module : ModuleNetwork, optional
        A user-supplied network, in place of the one that `settings` describe.
    training : ModuleTraining, optional
        How `module` is trained before it is linearised.
    """
    if module is not None or settings.random_network:
        network = build_network(cohort.event_time, cohort.event_weight, cohort.covariates, settings, seed, module)
    else:
        with threads_for(len(cohort) * max(settings.neighbourhoods, UNITS * cohort.covariates)):
            network = place_units(cohort, settings, verbose)
    require_default(cohort, settings, network, kept=_most_directions(network.size))
    # The crude rate of events; the bias of g makes up for what it misses.
    phi = float(cohort.event_weight.sum()) / cohort.exposure
    likelihood = _likelihood(cohort, network, settings)
    epochs, spread = 0, 1.0
    if module is not None and training is not None:
        likelihood, inner, epochs = train_module(likelihood, phi, module, training, settings, seed, verbose)
        network, spread = likelihood.network, prior_spread(likelihood, inner)
    prior = build_prior(network, settings, spread)
    theta_star = torch.zeros(network.size, dtype=torch.float64)
    step = len(cohort) // _ROWS_TO_SEARCH
    some = slice(None, None, step) if step > 1 and bool(cohort.event[::step].any()) else slice(None)
    part = likelihood if step <= 1 else _likelihood(cohort.take(some), network, settings)
    first = _evidence(part, phi, prior, theta_star, settings)
    with threads_for(_largest(first)):
        search = _search(first, prior.medians.clamp_min(_LEAST_START), verbose, "scales of the prior")
    evidence = first if part is likelihood else _evidence(likelihood, phi, prior, theta_star, settings)
    with threads_for(_largest(evidence)):
        if evidence is not first:
            top = evidence.at(search.top.log_scales)
            search = Search(top, (top.score,), search.interrupted)
        for round_ in range(settings.ablation.relinearise if not search.interrupted else 0):
            star = search.top.state.theta.mean
            again = _evidence(likelihood, phi, prior, star, settings)
            found = _search(again, search.top.log_scales, verbose, f"linearised again, {round_ + 1}")
            if found.top.score <= search.top.score:
                break
            evidence, theta_star = again, star
            search = Search(found.top, (*search.scores, *found.scores), found.interrupted)
        search, average = _average(cohort, network, evidence, search, settings, verbose)
    top = search.top
    parts = tuple(setting.state.theta.compact(math.inf) for setting in average.settings)
    theta: Gaussian = parts[0] if len(parts) == 1 else MixtureGaussian(average.shares, parts)
    solver = evidence.solver
    lost = solver.at(prior.multipliers(top.log_scales)).lost_information(top.state.curvature)
    report = SolverReport(solver.name, solver.reason, solver.rank, lost)
    return DefaultFit(
        phi=PointMass(phi),
        theta=theta,
        theta_star=theta_star,
        offset=evidence.offset,
        likelihood=likelihood,
        prior=prior,
        top=top,
        trace=search.scores,
        settings=len(average.settings),
        null_share=average.null_share,
        interrupted=search.interrupted,
        solver=report,
        epochs=epochs,
    )


def _average(
    cohort: Cohort,
    network: Additive,
    evidence: Evidence,
    search: Search,
    settings: DefaultSettings,
    verbose: bool | str | int,
) -> tuple[Search, Average]:
    """Return the search, which may go on, and the settings that the posterior averages over."""
    alone = Average.of(search.top)
    groups = [group.name for group in evidence.prior.groups]
    if search.interrupted or not settings.average or not groups or len(cohort) > _ROWS_TO_AVERAGE:
        return search, alone
    try:
        with bar("settings to average over", None, verbose) as advance:
            search, average = average_over(evidence, search, _words(advance))
            if search.interrupted or not evidence.hyper_priors or set(groups) <= set(TIME_GROUPS):
                return search, average
            null = network.without_covariates()
            likelihood, prior = _likelihood(cohort, null, settings), build_prior(null, settings)
            of_time = _evidence(likelihood, evidence.phi, prior, torch.zeros(null.size, dtype=torch.float64), settings)
            return search, average.with_null(*null_setting(evidence, of_time), PRIOR_SHARE)
    except KeyboardInterrupt:
        return replace(search, interrupted=True), alone


def _likelihood(cohort: Cohort, network: Additive, settings: DefaultSettings) -> AdditiveLikelihood:
    rule = ShiftedLog(settings.quadrature_points, network.basis.shift)
    points = build_points(cohort, rule, 1.0, network.causes)
    return AdditiveLikelihood(points, cohort.x, network, Constant(1 / settings.headroom), 1.0)


def _largest(evidence: Evidence) -> int:
    """Return how many numbers the largest tensor of a step of the ascent holds."""
    return max(evidence.solver.numbers, NODES * len(evidence.likelihood.points))


def _words(advance: Advance) -> Report:
    return lambda step, score: advance(step, f"setting {step}, score {score:.3f}")


def _search(evidence: Evidence, start: Tensor, verbose: bool | str | int, title: str) -> Search:
    with bar(title, None, verbose) as advance:
        return find_top(evidence, start, _words(advance))


def _evidence(
    likelihood: AdditiveLikelihood, phi: float, prior: GroupedPrior, theta_star: Tensor, settings: DefaultSettings
) -> Evidence:
    """Linearise the network; without one the rows are separable, else they are reduced."""
    points, network = likelihood.points, likelihood.network
    solver: ScaledSolver
    if network.inner is None:
        with threads_for(len(likelihood.x) * network.size):
            solver = _separable(network, likelihood, prior.unit)
        offset = network.offsets(points.time, points.cause)
    else:
        with threads_for(len(points) * network.size):
            lead, tail = network.rows_by_part(theta_star, points.time, likelihood.point_x)
            rows = lead if tail is None else tail.after(lead)
            offset = network.value(theta_star, points.time, likelihood.point_x) - rows.times(theta_star)
            # At the centre of the prior every unit of exposure carries about the crude rate of information.
            mass = phi * points.weight[points.events :]
            importance = torch.cat([torch.zeros(points.events, dtype=torch.float64), mass])
            solver = reduce_rows(lead, tail, network, prior, importance)
    return Evidence(
        likelihood=likelihood,
        phi=phi,
        offset=offset,
        solver=solver,
        prior=prior,
        tolerance=settings.tolerance,
        most=settings.max_sweeps,
        fisher=settings.ablation.curvature == "fisher",
        bounded=settings.ablation.curvature == "polya-gamma",
        hyper_priors=settings.ablation.hyper_priors,
    )


def _separable(network: Additive, likelihood: Likelihood, unit: Tensor) -> SeparableScales:
    points, features = likelihood.points, network.features(likelihood.x)
    if points.cause is not None:
        return cause_scales(network, points, features, unit)
    return separable_scales(points.row, separable_terms(network, features, points.time), unit)
