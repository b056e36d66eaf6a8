"""The default preset, from a cohort to a posterior: points, scales of the prior, mixture."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from neuralsurv.inference.choices import DefaultChoices
from neuralsurv.inference.default.neighbourhood_choice import choose_neighbourhoods
from neuralsurv.inference.default.scales import Evidence, Report, Search, Setting, find_top, settings_around
from neuralsurv.inference.default.structure import build_network, build_prior, prior_spread, train_module
from neuralsurv.inference.footprint import require_additive
from neuralsurv.inference.paper.solving import SolverReport
from neuralsurv.inference.threads import threads_for
from neuralsurv.model.additive import Additive
from neuralsurv.model.hazard import Constant
from neuralsurv.model.likelihood import Likelihood
from neuralsurv.model.linearise import linearise_network
from neuralsurv.model.module_network import ModuleNetwork
from neuralsurv.model.points import build_points
from neuralsurv.model.prior import GroupedPrior, PointMass
from neuralsurv.model.quadrature import ShiftedLog
from neuralsurv.progress import Advance, bar
from neuralsurv.solvers.grouped import GroupedSolver, grouped_solver
from neuralsurv.solvers.interface import Gaussian
from neuralsurv.solvers.mixture import MixtureGaussian
from neuralsurv.solvers.rows import DenseRows, JoinedRows, LayeredRows, Rows

# Information of the products, and of the network, that may be given up at scale 1, in nats, and the most directions of
# each that are kept.
_INFORMATION_TOLERANCE = 0.1
_MOST_DIRECTIONS = 200
# With millions of weights fewer directions are kept: together they hold at most so many numbers (1 GiB).
_MOST_NUMBERS_OF_DIRECTIONS = 2**27
_FEWEST_DIRECTIONS = 32
# Between so many rows, and with at most so many encoded covariates, neighbourhoods take the place of the network.
_ROWS_FOR_NEIGHBOURHOODS = (2000, 50_000)
_COVARIATES_FOR_NEIGHBOURHOODS = 64
# With at least twice so many rows, the scales are sought on every k-th of them: they hardly depend on the rest.
_ROWS_TO_SEARCH = 1000
# With more rows than this the scales are known well enough not to be averaged over.
_ROWS_TO_AVERAGE = 1000


@dataclass(frozen=True)
class AdditiveFit:
    """Everything a fit of the default preset leaves behind.

    Attributes
    ----------
    phi, theta : PointMass, Gaussian
        The posterior.
    theta_star : Tensor of shape (m,)
        Where the network was linearised.
    offset : Tensor of shape (P,)
        The linearised g at theta = 0, at the points.
    likelihood : Likelihood
        What was fitted.
    prior : GroupedPrior
        The groups of weights.
    top : Setting
        The scales of the highest score.
    elbo : tuple of float
        The score of the best setting so far, after each that was tried in the search.
    settings : int
        How many settings the posterior averages over.
    interrupted : bool
        Whether the user stopped the search for the scales.
    solver : SolverReport
        Which solver was used.
    epochs : int
        Epochs of training that a network of the user's was linearised after.
    """

    phi: PointMass
    theta: Gaussian
    theta_star: Tensor
    offset: Tensor
    likelihood: Likelihood
    prior: GroupedPrior
    top: Setting
    elbo: tuple[float, ...]
    settings: int
    interrupted: bool
    solver: SolverReport
    epochs: int = 0

    @property
    def phi_prior(self) -> PointMass:
        """The prior of phi, which is held."""
        return self.phi

    @property
    def scales(self) -> dict[str, float]:
        """The scales of the highest score, by the name of their group."""
        names = [group.name for group in self.prior.groups]
        return dict(zip(names, self.top.log_scales.exp().tolist(), strict=True))


def reduce_rows(
    rows: LayeredRows | JoinedRows,
    network: Additive,
    prior: GroupedPrior,
    importance: Tensor,
    *,
    tolerance: float = _INFORMATION_TOLERANCE,
    most: int = _MOST_DIRECTIONS,
) -> GroupedSolver:
    """Keep the linear path, and of products and network the directions that carry information.

    Of a group of the linear path with more weights than there are points, only as many directions carry any.
    """
    tail: Rows | None
    if isinstance(rows, JoinedRows):
        lead, tail = rows.lead.dense(), rows.tail
    else:
        lead = LayeredRows(rows.layers[:1]).dense()
        tail = LayeredRows(rows.layers[1:]) if len(rows.layers) > 1 else None
    last = network.linear_size - 1
    first = last - network.products
    parts: list[tuple[Rows, bool]] = []
    done = 0
    for group in prior.groups:
        if group.stop <= first and group.stop - group.start > len(lead):
            parts += [
                (DenseRows(lead[:, done : group.start]), True),
                (DenseRows(lead[:, group.start : group.stop]), False),
            ]
            done = group.stop
    parts.append((DenseRows(lead[:, done:first]), True))
    if network.products:
        parts.append((DenseRows(lead[:, first:last]), False))
    parts.append((DenseRows(lead[:, last:]), True))
    if tail is not None:
        parts.append((tail, False))
    return grouped_solver(parts, prior.unit, importance, tolerance=tolerance, most=_most_directions(network.size, most))


def _most_directions(weights: int, most: int = _MOST_DIRECTIONS) -> int:
    return max(_FEWEST_DIRECTIONS, min(most, _MOST_NUMBERS_OF_DIRECTIONS // weights))


def fit_additive(
    time: Tensor,
    event: Tensor,
    entry: Tensor,
    weight: Tensor,
    x: Tensor,
    choices: DefaultChoices,
    *,
    seed: int,
    verbose: bool | str | int = False,
    module: ModuleNetwork | None = None,
) -> AdditiveFit:
    """Fit the model of the default preset.

    Parameters
    ----------
    time, entry, weight : Tensor of shape (N,)
        Scaled times (largest 1), scaled entries, row weights.
    event : bool Tensor of shape (N,)
        Event flags.
    x : Tensor of shape (N, d)
        Covariates, standardised.
    choices : DefaultChoices
        Everything that had to be chosen.
    seed : int
        Seed of the draw at which the network is linearised.
    verbose : bool or "auto"
        Whether to show progress.
    module : ModuleNetwork, optional
        A network of the user's in place of the one that `choices` describe.
    """
    near = None
    fewest, most = _ROWS_FOR_NEIGHBOURHOODS
    suits = fewest <= len(time) <= most and 0 < x.shape[1] <= _COVARIATES_FOR_NEIGHBOURHOODS
    if choices.neighbourhoods and module is None and suits:
        near = choose_neighbourhoods(
            time, event, entry, weight, x, count=choices.neighbourhoods, seed=seed, verbose=verbose
        )
    network = build_network(time[event], weight[event], x.shape[1], choices, seed, module, near)
    kept = _most_directions(network.size) if near is None else network.size
    sizes = {"linear": network.linear_size, "weights": network.size, "kept": kept}
    require_additive(len(time), int(event.sum()), x.shape[1], choices, **sizes)
    # The crude rate of events; the bias of g makes up for what it misses.
    phi = float(weight[event].sum()) / float((weight * (time - entry)).sum())
    likelihood = _likelihood(time, event, entry, weight, x, network, choices)
    epochs, spread = 0, 1.0
    if module is not None:
        likelihood, epochs = train_module(likelihood, phi, module, choices, seed, verbose)
        assert isinstance(likelihood.network, Additive)
        network, spread = likelihood.network, prior_spread(likelihood)
    prior = build_prior(network, choices, spread)
    theta_star = torch.zeros(network.size, dtype=torch.float64)
    step = len(time) // _ROWS_TO_SEARCH
    some = slice(None, None, step) if step > 1 and bool(event[::step].any()) else slice(None)
    part = likelihood
    if step > 1:
        part = _likelihood(time[some], event[some], entry[some], weight[some], x[some], network, choices)
    first = _evidence(part, phi, prior, theta_star, choices)
    with threads_for(len(part.points) * first.solver.reduced.shape[1]):
        search = _search(first, prior.medians, verbose, "scales of the prior")
    evidence = first if part is likelihood else _evidence(likelihood, phi, prior, theta_star, choices)
    with threads_for(len(likelihood.points) * evidence.solver.reduced.shape[1]):
        if evidence is not first:
            top = evidence.at(search.top.log_scales)
            search = Search(top, (top.score,), search.interrupted)
        for round_ in range(choices.relinearise if not search.interrupted else 0):
            star = search.top.state.theta.mean
            again = _evidence(likelihood, phi, prior, star, choices)
            found = _search(again, search.top.log_scales, verbose, f"linearised anew, {round_ + 1}")
            if found.top.score <= search.top.score:
                break
            evidence, theta_star = again, star
            search = Search(found.top, (*search.scores, *found.scores), found.interrupted)
        top = search.top
        settings, shares = [top], [1.0]
        interrupted = search.interrupted
        if choices.average and prior.groups and len(time) <= _ROWS_TO_AVERAGE and not interrupted:
            try:
                with bar("settings to average over", None, verbose) as advance:
                    settings, shares = settings_around(evidence, top, _words(advance))
            except KeyboardInterrupt:
                interrupted = True
    theta: Gaussian = top.state.theta
    if len(settings) > 1:
        theta = MixtureGaussian(tuple(shares), tuple(setting.state.theta for setting in settings))
    solver = evidence.solver
    lost = solver.at(prior.multipliers(top.log_scales)).lost_information(top.state.curvature)
    report = SolverReport("low-rank", "rows are reduced once for all scales of the prior", solver.basis.shape[1], lost)
    return AdditiveFit(
        phi=PointMass(phi),
        theta=theta,
        theta_star=theta_star,
        offset=evidence.offset,
        likelihood=likelihood,
        prior=prior,
        top=top,
        elbo=search.scores,
        settings=len(settings),
        interrupted=interrupted,
        solver=report,
        epochs=epochs,
    )


def _likelihood(
    time: Tensor, event: Tensor, entry: Tensor, weight: Tensor, x: Tensor, network: Additive, choices: DefaultChoices
) -> Likelihood:
    rule = ShiftedLog(choices.quadrature_points, network.basis.shift)
    points = build_points(time, event, entry, weight, rule, 1.0)
    return Likelihood(points, x, network, Constant(1 / choices.headroom), 1.0)


def _words(advance: Advance) -> Report:
    return lambda step, score: advance(step, f"setting {step}, score {score:.3f}")


def _search(evidence: Evidence, start: Tensor, verbose: bool | str | int, title: str) -> Search:
    with bar(title, None, verbose) as advance:
        return find_top(evidence, start, _words(advance))


def _evidence(
    likelihood: Likelihood, phi: float, prior: GroupedPrior, theta_star: Tensor, choices: DefaultChoices
) -> Evidence:
    """Linearise the network and reduce its rows."""
    points, network = likelihood.points, likelihood.network
    assert isinstance(network, Additive)
    with threads_for(len(points) * network.size):
        linearised = linearise_network(network, theta_star, points.time, likelihood.point_x)
        # In the middle of the prior every unit of exposure carries about the crude rate of information.
        importance = torch.cat([torch.zeros(points.events, dtype=torch.float64), phi * points.weight[points.events :]])
        assert isinstance(linearised.rows, LayeredRows | JoinedRows)
        solver = reduce_rows(linearised.rows, network, prior, importance)
    return Evidence(
        likelihood=likelihood,
        phi=phi,
        offset=linearised.offset,
        solver=solver,
        prior=prior,
        tolerance=choices.tolerance,
        most=choices.max_sweeps,
        fisher=choices.curvature == "fisher",
        bounded=choices.curvature == "polya-gamma",
        hyper_priors=choices.hyper_priors,
    )
