"""From a cohort to a posterior: mode, linearisation, coordinate ascent."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from neuralsurv.errors import InputError
from neuralsurv.inference.choices import PaperChoices
from neuralsurv.inference.footprint import require_paper
from neuralsurv.inference.paper import cavi, mode
from neuralsurv.inference.paper.solving import (
    MOST_NUMBERS_OF_DIRECTIONS,
    SolverReport,
    make_solver,
    report_solver,
    rough_solver,
)
from neuralsurv.inference.threads import threads_for
from neuralsurv.model.hazard import ClosedForm, Constant, MonteCarlo, Normaliser
from neuralsurv.model.likelihood import Problem
from neuralsurv.model.linearise import Linearised, linearise
from neuralsurv.model.module_network import ModuleNetwork
from neuralsurv.model.network import MLP, Network
from neuralsurv.model.points import build_points
from neuralsurv.model.prior import Gamma, WeightPrior
from neuralsurv.model.quadrature import GaussLegendre, Rule, Trapezoid, missing_share
from neuralsurv.progress import Advance, bar
from neuralsurv.solvers.choose import Choice, choose
from neuralsurv.solvers.dual import DualGaussian
from neuralsurv.solvers.interface import Gaussian
from neuralsurv.solvers.lowrank import LowRankSolver
from neuralsurv.solvers.rows import CACHE_NUMBERS, row_slices

# A problem with more points than this many times those of the coarse problem is first solved coarsely.
_WORTH_A_COARSE_PROBLEM = 3
_COARSE_RULE = GaussLegendre(8)
_COARSE_ROWS = 1500
# What the algebra of the sweeps may hold in memory.
_MEMORY = 3 * 2**30


@dataclass(frozen=True)
class Fit:
    """Everything a fit leaves behind.

    Attributes
    ----------
    phi, theta : Gamma, Gaussian
        The variational factors.
    mode : Mode
        Where the network was linearised.
    objectives : tuple of float
        U at the end of every start.
    info : CaviInfo
        How the sweeps went.
    problem : Problem
        What was fitted.
    missing_exposure : float
        Part of the time at risk that the quadrature rule leaves out.
    solver : SolverReport
        Which solver was used.
    coarse_sweeps : int
        Sweeps that were run on a coarser quadrature rule, or in single precision, before those of `info`.
    """

    phi: Gamma
    theta: Gaussian
    mode: mode.Mode
    objectives: tuple[float, ...]
    info: cavi.CaviInfo
    problem: Problem
    missing_exposure: float
    solver: SolverReport
    coarse_sweeps: int

    @property
    def theta_star(self) -> Tensor:
        """Where the network was linearised, shape (m,)."""
        return self.mode.theta

    @property
    def likelihood(self) -> Problem:
        """What was fitted."""
        return self.problem

    @property
    def phi_prior(self) -> Gamma:
        """The prior of phi."""
        return self.problem.phi_prior

    @property
    def elbo(self) -> tuple[float, ...]:
        """The ELBO after each sweep."""
        return self.info.elbo


def quadrature_rule(choices: PaperChoices) -> Rule:
    """Return the quadrature rule that was chosen."""
    if choices.quadrature == "trapezoid":
        return Trapezoid(choices.quadrature_points)
    return GaussLegendre(choices.quadrature_points)


def choose_normaliser(choices: PaperChoices, network: Network, prior: WeightPrior, seed: int) -> Normaliser:
    """Return Z: one half where that is exact, else as chosen."""
    kind = choices.normaliser
    if kind == "auto":
        # The closed form is linearised at zero weights, where a deep module has no derivative but its last bias's.
        other = "monte-carlo" if isinstance(network, ModuleNetwork) else "closed-form"
        kind = "half" if network.symmetric else other
    if kind == "half":
        if not network.symmetric:
            raise InputError("normaliser='half' is only right for a network whose prior is symmetric about 0.")
        return Constant(0.5)
    return ClosedForm(network, prior) if kind == "closed-form" else MonteCarlo(network, prior, seed=seed)


def build_problem(
    time: Tensor,
    event: Tensor,
    entry: Tensor,
    weight: Tensor,
    x: Tensor,
    choices: PaperChoices,
    seed: int,
    module: ModuleNetwork | None = None,
) -> Problem:
    """Put data and model together, in scaled time; a module takes the place of the network of `choices`."""
    network = MLP(x.shape[1], choices.hidden, choices.activation) if module is None else module
    prior = WeightPrior.isotropic(network.size)
    return Problem(
        points=build_points(time, event, entry, weight, quadrature_rule(choices), choices.rho),
        x=x,
        network=network,
        weight_prior=prior,
        phi_prior=Gamma(*choices.phi_prior),
        normaliser=choose_normaliser(choices, network, prior, seed),
        rho=choices.rho,
    )


def coarse_problem(
    problem: Problem, time: Tensor, event: Tensor, entry: Tensor, weight: Tensor, choices: PaperChoices
) -> Problem | None:
    """Return the problem with few quadrature nodes and some of the rows, where that is much smaller.

    It only says where to start: mode and sweeps end on the problem itself. The rows are every k-th of the canonical
    order, with weights that make up for the others. None where there is little to save, or where shortcuts are off.
    """
    if not choices.accelerate or choices.mode == "em":
        return None
    some = torch.arange(0, len(time), max(1, len(time) // _COARSE_ROWS))
    # Without events there is nothing to start from; they are the scarce rows.
    some = torch.unique(torch.cat([some, torch.nonzero(event).squeeze(1)[:1]]))
    share = float(weight.sum() / weight[some].sum())
    part = build_points(time[some], event[some], entry[some], share * weight[some], _COARSE_RULE, choices.rho)
    points = replace(part, row=some[part.row])
    return replace(problem, points=points) if len(problem.points) > _WORTH_A_COARSE_PROBLEM * len(points) else None


def over_some(
    problem: Problem, found: mode.Mode, module: ModuleNetwork, choices: PaperChoices, seed: int
) -> tuple[Problem, mode.Mode]:
    """Hold all weights of a module at the mode but those that are Bayesian."""
    assert isinstance(problem.network, ModuleNetwork)
    network = replace(problem.network.with_weights(found.theta), names=module.names, symmetric=module.symmetric)
    prior = WeightPrior.isotropic(network.size)
    normaliser = choose_normaliser(choices, network, prior, seed)
    part = replace(problem, network=network, weight_prior=prior, normaliser=normaliser)
    return part, replace(found, theta=network.own, inverse_hessian=None)


def _words(advance: Advance) -> mode.Report:
    return lambda step, value: advance(step, f"step {step}, U = {value:.4f}")


def find_mode(
    problem: Problem,
    choices: PaperChoices,
    seed: int,
    verbose: bool | str | int,
    warm: Tensor | None = None,
    coarse: Problem | None = None,
) -> tuple[mode.Mode, list[float]]:
    """Search from several seeded starts, or from where an earlier fit ended, and keep the best mode.

    With a coarse problem all starts run on that, to ten times the tolerance; only the best goes on to the mode of the
    coarse problem and then of the problem itself. The direct search runs from all starts together; EM, whose bound is
    another one for each start, from one after the other.
    """
    usable = warm is not None and len(warm) == problem.network.size
    starts = [warm] if warm is not None and usable else mode.random_starts(problem, choices.starts, seed)
    if choices.mode == "em":
        found = []
        for number, theta in enumerate(starts, 1):
            with bar(f"mode, start {number} of {len(starts)}", None, verbose) as advance:
                found.append(mode.em(problem, theta, tolerance=choices.mode_tolerance, report=_words(advance)))
    else:
        tolerance = choices.mode_tolerance if coarse is None else 10 * choices.mode_tolerance
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
                    tolerance=choices.mode_tolerance,
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
    problem: Problem, linearised: Linearised, coarse: Problem, start: mode.Mode, choices: PaperChoices
) -> tuple[cavi.CaviState, int]:
    """Sweep on the coarse rule until that stands still; return the state at the points of the problem."""
    rough = linearise(coarse, start.theta)
    state = cavi.start(coarse, rough, start.theta, start.phi, choices.spread)
    with threads_for(len(coarse.points) * coarse.network.size):
        solver = make_solver(choose(len(coarse.points), coarse.network.size, _MEMORY).solver, coarse, rough, state)
        state, info = cavi.fit(coarse, rough, solver, state, tolerance=choices.tolerance, max_sweeps=choices.max_sweeps)
    assert state.theta is not None
    with threads_for(len(problem.points) * problem.network.size):
        mean, variance = _moments(linearised, state.theta)
    return cavi.CaviState(state.phi, None, state.theta_mean, mean, variance), info.sweeps


def _room_for_directions(points: int, weights: int) -> bool:
    """Return whether a basis of as many directions as there are points fits into memory, with two copies."""
    return 3 * 8 * weights * min(points, weights) <= _MEMORY


def fit(
    time: Tensor,
    event: Tensor,
    entry: Tensor,
    weight: Tensor,
    x: Tensor,
    choices: PaperChoices,
    *,
    seed: int,
    verbose: bool | str | int = False,
    warm: Tensor | None = None,
    module: ModuleNetwork | None = None,
) -> Fit:
    """Fit the model of the paper.

    Parameters
    ----------
    time, entry, weight : Tensor of shape (N,)
        Scaled times (largest 1), scaled entries, row weights.
    event : bool Tensor of shape (N,)
        Event flags.
    x : Tensor of shape (N, d)
        Covariates.
    choices : PaperChoices
        Everything that had to be chosen.
    seed : int
        Seed of the random starts.
    verbose : bool or "auto"
        Whether to show progress.
    warm : Tensor of shape (m,), optional
        The mode of an earlier fit, to start from in place of random draws; ignored if the network has changed.
    module : ModuleNetwork, optional
        A network of the user's in place of the MLP; the search for its mode starts at its own weights.
    """
    if module is not None:
        choices = replace(choices, starts=1)
    whole = None if module is None else module.over(module.trained) if module.names != module.trained else module
    require_paper(time, event, entry, x, choices, module, memory=_MEMORY, directions=MOST_NUMBERS_OF_DIRECTIONS)
    problem = build_problem(time, event, entry, weight, x, choices, seed, whole)
    if problem.phi_prior.shape - 1 + problem.event_count <= 0:
        raise InputError(
            f"the weights of the events add up to {problem.event_count:g}, too little for phi_prior with shape "
            f"{problem.phi_prior.shape:g}: their sum must exceed 1 for phi to have a mode. Rescale the weights."
        )
    coarse = coarse_problem(problem, time, event, entry, weight, choices)
    widest = max([x.shape[1] + 1, *choices.hidden])
    with threads_for(len(problem.points) * widest):
        start, objectives = find_mode(problem, choices, seed, verbose, warm, coarse)
    if module is not None and module.names != module.trained:
        problem, start = over_some(problem, start, module, choices, seed)
        coarse = None
    linearised = linearise(problem, start.theta)
    choice = (
        choose(len(problem.points), problem.network.size, _MEMORY)
        if choices.solver == "auto"
        else Choice(choices.solver, "asked for")
    )
    coarse_sweeps = 0
    # Fewer nodes of the same rows lead nearly to the same posterior; some of the rows lead to one that the others take
    # longer to move than a start from the mode.
    if coarse is None or len(time) >= 2 * _COARSE_ROWS:
        state = cavi.start(problem, linearised, start.theta, start.phi, choices.spread)
    else:
        state, coarse_sweeps = sweep_coarsely(problem, linearised, coarse, start, choices)
    with threads_for(len(problem.points) * problem.network.size):
        solver = make_solver(choice.solver, problem, linearised, state)
    rank = solver.rank if isinstance(solver, LowRankSolver) else problem.network.size
    with threads_for(len(problem.points) * rank), bar("variational sweeps", None, verbose) as advance:
        state, info = cavi.fit(
            problem,
            linearised,
            solver,
            state,
            tolerance=choices.tolerance,
            max_sweeps=choices.max_sweeps,
            accelerate=choices.accelerate,
            rough=rough_solver(solver, choices),
            report=lambda k, bound, change: advance(k, f"sweep {k}, ELBO {bound:.4f}, change {change:.1e}"),
        )
    theta = state.theta
    assert theta is not None
    if isinstance(theta, DualGaussian) and _room_for_directions(*linearised.rows.shape):
        # The same law without the training rows.
        theta = theta.compact()
    nodes = quadrature_rule(choices).nodes(entry, time, choices.rho)
    missing = missing_share(entry, time, weight, nodes, choices.rho)
    used = report_solver(choice, solver, problem, state)
    coarse_sweeps += info.rough_sweeps
    return Fit(state.phi, theta, start, tuple(objectives), info, problem, missing, used, coarse_sweeps)


def latent_share(fit: Fit) -> float:
    """Return the average of 1 − σ(g) over the baseline exposure: latent points over all points that phi gives."""
    whole = fit.phi.mean * float(fit.problem.baseline.sum())
    # Entries may be so late that rounding leaves nothing of the exposure.
    return fit.info.latent_points / whole if whole > 0 else 0.0


def to_double(array: object) -> Tensor:
    """Return a float64 tensor copy of an array."""
    return torch.as_tensor(array, dtype=torch.float64).clone()
