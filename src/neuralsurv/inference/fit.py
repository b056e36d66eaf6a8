"""From a cohort to a posterior: mode, linearisation, coordinate ascent."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from neuralsurv.errors import InputError
from neuralsurv.inference import cavi, mode
from neuralsurv.inference.linearise import linearise
from neuralsurv.inference.problem import Problem
from neuralsurv.inference.threads import threads_for
from neuralsurv.model.hazard import ClosedForm, Half, MonteCarlo, Normaliser
from neuralsurv.model.network import MLP, Network
from neuralsurv.model.points import build_points
from neuralsurv.model.prior import Gamma, WeightPrior
from neuralsurv.model.quadrature import GaussLegendre, Rule, Trapezoid, missing_share
from neuralsurv.presets import Choices
from neuralsurv.progress import Advance, bar
from neuralsurv.solvers.interface import Gaussian
from neuralsurv.solvers.primal import PrimalSolver


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
    """

    phi: Gamma
    theta: Gaussian
    mode: mode.Mode
    objectives: tuple[float, ...]
    info: cavi.CaviInfo
    problem: Problem
    missing_exposure: float


def quadrature_rule(choices: Choices) -> Rule:
    """Return the quadrature rule that was chosen."""
    if choices.quadrature == "trapezoid":
        return Trapezoid(choices.quadrature_points)
    return GaussLegendre(choices.quadrature_points)


def choose_normaliser(choices: Choices, network: Network, prior: WeightPrior, seed: int) -> Normaliser:
    """Return Z: one half where that is exact, else as chosen."""
    kind = choices.normaliser
    if kind == "auto":
        kind = "half" if network.symmetric else "closed-form"
    if kind == "half":
        if not network.symmetric:
            raise InputError("normaliser='half' is only right for a network whose prior is symmetric about 0.")
        return Half()
    return ClosedForm(network, prior) if kind == "closed-form" else MonteCarlo(network, prior, seed=seed)


def build_problem(
    time: Tensor, event: Tensor, entry: Tensor, weight: Tensor, x: Tensor, choices: Choices, seed: int
) -> Problem:
    """Put data and model together, in scaled time."""
    network = MLP(x.shape[1], choices.hidden, choices.activation)
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


def _words(advance: Advance) -> mode.Report:
    return lambda step, value: advance(step, f"step {step}, U = {value:.4f}")


def find_mode(
    problem: Problem, choices: Choices, seed: int, verbose: bool | str | int, warm: Tensor | None = None
) -> tuple[mode.Mode, list[float]]:
    """Search from several seeded starts, or from where an earlier fit ended, and keep the best mode."""
    search = mode.em if choices.mode == "em" else mode.direct
    usable = warm is not None and len(warm) == problem.network.size
    starts = [warm] if warm is not None and usable else mode.random_starts(problem, choices.starts, seed)
    found = []
    for number, theta in enumerate(starts, 1):
        title = f"mode, start {number} of {len(starts)}"
        with bar(title, None, verbose) as advance:
            found.append(search(problem, theta, tolerance=choices.mode_tolerance, report=_words(advance)))
    return mode.best_of(found), [one.objective for one in found]


def fit(
    time: Tensor,
    event: Tensor,
    entry: Tensor,
    weight: Tensor,
    x: Tensor,
    choices: Choices,
    *,
    seed: int,
    verbose: bool | str | int = False,
    warm: Tensor | None = None,
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
    choices : Choices
        Everything that had to be chosen.
    seed : int
        Seed of the random starts.
    verbose : bool or "auto"
        Whether to show progress.
    warm : Tensor of shape (m,), optional
        The mode of an earlier fit, to start from in place of random draws; ignored if the network has changed.
    """
    problem = build_problem(time, event, entry, weight, x, choices, seed)
    if problem.phi_prior.shape - 1 + problem.event_count <= 0:
        raise InputError(
            f"the weights of the events add up to {problem.event_count:g}, too little for phi_prior with shape "
            f"{problem.phi_prior.shape:g}: their sum must exceed 1 for phi to have a mode. Rescale the weights."
        )
    widest = max([x.shape[1] + 1, *choices.hidden])
    with threads_for(len(problem.points) * widest):
        start, objectives = find_mode(problem, choices, seed, verbose, warm)
    linearised = linearise(problem, start.theta)
    solver = PrimalSolver(linearised.jacobian, problem.weight_prior.precision)
    state = cavi.start(problem, linearised, start.theta, start.phi, choices.spread)
    with threads_for(linearised.jacobian.numel()), bar("variational sweeps", None, verbose) as advance:
        state, info = cavi.fit(
            problem,
            linearised,
            solver,
            state,
            tolerance=choices.tolerance,
            max_sweeps=choices.max_sweeps,
            accelerate=choices.accelerate,
            report=lambda k, bound, change: advance(k, f"sweep {k}, ELBO {bound:.4f}, change {change:.1e}"),
        )
    assert state.theta is not None
    nodes = quadrature_rule(choices).nodes(entry, time, choices.rho)
    missing = missing_share(entry, time, weight, nodes, choices.rho)
    return Fit(state.phi, state.theta, start, tuple(objectives), info, problem, missing)


def latent_share(fit: Fit) -> float:
    """Return the average of 1 − σ(g) over the baseline exposure: latent points over all points that phi gives."""
    return fit.info.latent_points / (fit.phi.mean * float(fit.problem.baseline.sum()))


def to_double(array: object) -> Tensor:
    """Return a float64 tensor copy of an array."""
    return torch.as_tensor(array, dtype=torch.float64).clone()
