r"""The mode (MAP) that the network is linearised at: the paper's EM (algorithm 1) and a direct solver.

phi has a closed form given theta, so both climb the same hill: the direct solver minimises

.. math:: U(\theta) = \sum_\text{events} w\,\mathrm{softplus}(-g) + (\alpha_0 - 1 + D)\log\Big(\beta_0 +
          \sum_\text{nodes} c\,\sigma(g)\Big) + \tfrac12\theta^\top T\theta

in one go, EM minimises a quadratic-in-g upper bound of it again and again. At theta = 0 the gradient of an MLP with a
hidden layer vanishes but for its last bias, and a search from there never leaves the constant g: every start is a
seeded random draw.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import softplus

from neuralsurv.errors import NotFiniteError
from neuralsurv.inference.paper.descent import Answer, Function, InverseHessian, descend, descend_together
from neuralsurv.inference.paper.problem import PaperProblem
from neuralsurv.model.augmentation import latent_intensity, polya_gamma_mean
from neuralsurv.model.network import Pullback

IterationReport = Callable[[int, float], None]


@dataclass(frozen=True)
class Mode:
    """A mode."""

    theta: Tensor  # shape (m,)
    phi: float  # the best phi for them
    objective: float  # U, in nats; lower is better
    # The objective after each iteration (for EM at the phi of that iteration, which may still be improving)
    trace: tuple[float, ...]
    converged: bool  # whether the search ended by its rule, and not at its limit or where no step could be found
    # What the direct solver has learned of the curvature, for a similar problem.
    inverse_hessian: InverseHessian | None = field(default=None, repr=False, compare=False)


def best_phi(problem: PaperProblem, g_nodes: Tensor) -> float:
    """Return the phi that maximises the posterior for given g at the nodes."""
    exposure = problem.phi_prior.rate + float((problem.baseline * torch.sigmoid(g_nodes)).sum())
    return (problem.phi_prior.shape - 1 + problem.event_count) / exposure


def value_and_slope(problem: PaperProblem, theta: Tensor) -> Answer:
    """Return U and a function that returns its gradient; value alone takes a third of the time of both."""
    return _value_and_slope(problem, theta, *problem.evaluate(theta))


def values_and_slopes(problem: PaperProblem, thetas: Sequence[Tensor]) -> list[Answer]:
    """Return what `value_and_slope` gives for each, in less time."""
    evaluated = problem.evaluate_together(thetas)
    return [_value_and_slope(problem, theta, *one) for theta, one in zip(thetas, evaluated, strict=True)]


def _value_and_slope(problem: PaperProblem, theta: Tensor, g: Tensor, pullback: Pullback) -> Answer:
    events = problem.points.events
    share = torch.sigmoid(g[events:])
    exposure = problem.phi_prior.rate + float(problem.baseline @ share)
    factor = problem.phi_prior.shape - 1 + problem.event_count
    penalty = problem.weight_prior.precision * theta
    value = (
        float(problem.event_weight @ softplus(-g[:events])) + factor * math.log(exposure) + float(theta @ penalty) / 2
    )

    def gradient() -> Tensor:
        slope = torch.empty_like(g)
        torch.mul(torch.sigmoid(-g[:events]), -problem.event_weight, out=slope[:events])
        torch.mul(share - share.square(), problem.baseline, out=slope[events:]).mul_(factor / exposure)
        return pullback(slope) + penalty

    return value, gradient


def objective(problem: PaperProblem, theta: Tensor, phi: float | None = None) -> float:
    """Return U, or at a given phi the joint objective whose minimum over phi is U.

    EM lowers the joint objective in every iteration; U alone need not fall while phi is still on its way.
    """
    value, _ = value_and_slope(problem, theta)
    if phi is None:
        return value
    g = problem.evaluate(theta)[0]
    best = best_phi(problem, g[problem.points.events :])
    factor = problem.phi_prior.shape - 1 + problem.event_count
    return value + factor * (phi / best - 1 - math.log(phi / best))


def direct(
    problem: PaperProblem, theta: Tensor, *, inverse_hessian: InverseHessian | None = None, **options: Any
) -> Mode:
    """Minimise U from `theta`; `inverse_hessian` is what the search on a similar problem has learned."""
    return direct_together(problem, [theta], inverse_hessians=[inverse_hessian], **options)[0]


def direct_together(
    problem: PaperProblem,
    thetas: Sequence[Tensor],
    *,
    tolerance: float = 1e-6,
    max_iterations: int = 3000,
    inverse_hessians: Sequence[InverseHessian | None] | None = None,
    report: IterationReport = lambda iteration, value: None,
) -> list[Mode]:
    """Minimise U by BFGS from several starts at once: one pass through the network serves all that have not ended.

    A search ends when an iteration gains less than `tolerance` times U, on average over twenty. `report` gets the
    number of each iteration of any start and the lowest U of all.
    """
    traces = [[value] for value, _ in values_and_slopes(problem, thetas)]

    def noting(trace: list[float]) -> Callable[[float], None]:
        def note(value: float) -> None:
            trace.append(value)
            report(len(trace) - 1, min(other[-1] for other in traces))

        return note

    descents = descend_together(
        lambda places: values_and_slopes(problem, places),
        thetas,
        tolerance=tolerance,
        max_iterations=max_iterations,
        inverse_hessians=[None] * len(thetas) if inverse_hessians is None else inverse_hessians,
        callbacks=[noting(trace) for trace in traces],
    )
    return [
        replace(_finish(problem, one.theta, one.value, trace, one.converged), inverse_hessian=one.inverse_hessian)
        for one, trace in zip(descents, traces, strict=True)
    ]


def _bound(problem: PaperProblem, theta_now: Tensor, phi_now: float) -> tuple[Function, float, float]:
    """Return −Q as a function of theta with its gradient, the best phi of the bound, and the φ part of −Q.

    The latent variables of the current point enter Q (appendix F) through the curvature κ and the slope a of each
    point, so that −Q(θ) = Σ [κ g²/2 − a g] + θᵀTθ/2 up to the φ part, which separates.
    """
    events = problem.points.events
    g = problem.evaluate(theta_now)[0]
    latent = latent_intensity(problem.baseline, g[events:], g[events:].abs(), math.log(phi_now))
    omega = polya_gamma_mean(g.abs())
    curvature = torch.cat([problem.event_weight, latent]) * omega
    slope = torch.cat([problem.event_weight, -latent]) / 2
    factor = problem.phi_prior.shape - 1 + problem.event_count + float(latent.sum())
    phi = factor / problem.phi_rate
    phi_part = phi * problem.phi_rate - factor * math.log(phi)

    def negative_q(theta: Tensor) -> tuple[float, Callable[[], Tensor]]:
        g, pullback = problem.evaluate(theta)
        penalty = problem.weight_prior.precision * theta
        value = float((curvature * g**2 / 2 - slope * g).sum()) + float(theta @ penalty) / 2
        return value, lambda: pullback(curvature * g - slope) + penalty

    return negative_q, phi, phi_part


def em(
    problem: PaperProblem,
    theta: Tensor,
    *,
    phi: float | None = None,
    tolerance: float = 1e-6,
    max_iterations: int = 2000,
    inner_iterations: int = 50,
    inner_tolerance: float = 1e-7,
    report: IterationReport = lambda iteration, value: None,
) -> Mode:
    """Run the paper's expectation–maximisation from `theta` and the prior mean of phi, maximising by BFGS.

    It ends when Q changes by less than `tolerance`, relative to its size, in two successive iterations; the descent
    within each ends by the rule of the direct solver. `report` gets the number of each iteration and the objective at
    the current phi.
    """
    phi = problem.phi_prior.mean if phi is None else phi
    trace = [objective(problem, theta, phi)]
    previous, quiet, converged = math.inf, 0, False
    inverse: InverseHessian | None = None
    for iteration in range(1, max_iterations + 1):
        negative_q, phi_next, phi_part = _bound(problem, theta, phi)
        found = descend(
            negative_q, theta, tolerance=inner_tolerance, max_iterations=inner_iterations, inverse_hessians=[inverse]
        )
        theta, phi, inverse = found.theta, phi_next, found.inverse_hessian
        trace.append(objective(problem, theta, phi))
        report(iteration, trace[-1])
        q = found.value + phi_part
        quiet = quiet + 1 if abs(q - previous) < tolerance * abs(previous) else 0
        previous, converged = q, quiet >= 2
        if converged:
            break
    return _finish(problem, theta, objective(problem, theta), trace, converged)


def _finish(problem: PaperProblem, theta: Tensor, value: float, trace: list[float], converged: bool) -> Mode:
    if not math.isfinite(value):
        raise NotFiniteError(f"the search for the mode reached U = {value}; look for extreme covariates or times.")
    g = problem.evaluate(theta)[0]
    return Mode(theta, best_phi(problem, g[problem.points.events :]), value, tuple(trace), converged)


def best_of(modes: Sequence[Mode]) -> Mode:
    """Return the mode with the lowest objective."""
    return min(modes, key=lambda mode: mode.objective)


def random_starts(problem: PaperProblem, count: int, seed: int) -> list[Tensor]:
    """Return `count` seeded starts; they depend on the network alone, so that no order of rows can change them."""
    generator = torch.Generator().manual_seed(seed)
    return [problem.network.initial(generator) for _ in range(count)]
