r"""Coordinate-ascent variational inference (algorithm 2 of the paper).

One sweep updates q(omega), q(Psi), q(phi) and q(theta). The update of q(phi) depends on q(Psi) and the other way
round through one number, so the pair is solved to the end in every sweep: it costs nothing and removes most of
the slow zig-zag between phi and theta. All arithmetic is float64, but for the first sweeps of a large problem, whose
products of matrices may be in single precision (`rough`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from scipy.special import digamma, zeta
from torch import Tensor

from neuralsurv.errors import NotConvergedError, NotFiniteError, NotPositiveDefiniteError
from neuralsurv.inference.optimise.anderson import Anderson
from neuralsurv.inference.paper.elbo import elbo
from neuralsurv.inference.paper.mean_search import search_mean
from neuralsurv.inference.paper.problem import PaperProblem
from neuralsurv.model.augmentation import latent_intensity, log_thinning, polya_gamma_mean
from neuralsurv.model.linearise import Linearised
from neuralsurv.model.prior import Gamma
from neuralsurv.solvers.coordinates import Coordinates
from neuralsurv.solvers.interface import Gaussian, Solver

_TINY = torch.finfo(torch.float64).tiny
# A fall of the ELBO by less than this, relative to its size, is rounding.
_ROUNDING = 1e-12
# How large an extrapolation may make the variance of g.
_LARGEST_LOG_VARIANCE = 50.0
# The search for a mean ends when it promises less than this, in nats, or than this share of what the last sweep gained.
_COARSEST_SEARCH = 1e-4
_SEARCH_SHARE = 1e-3
# Rough sweeps have done their part when a sweep changes no block of parameters by more than this.
_ROUGH_CHANGE = 1e-4


@dataclass(frozen=True)
class CaviState:
    """What the next sweep needs: q(phi), q(theta), and the moments of g at the points."""

    phi: Gamma
    theta: Gaussian | None
    theta_mean: Tensor
    m: Tensor
    v: Tensor


@dataclass(frozen=True)
class CaviInfo:
    """How the iteration went.

    Attributes
    ----------
    elbo : tuple of float
        The ELBO of what is kept after each sweep, in nats.
    change : tuple of float
        The largest relative change of a block of parameters in each sweep.
    converged : bool
        Whether the last change was below the tolerance.
    interrupted : bool
        Whether the user stopped the sweeps (Ctrl-C) after at least one of them.
    latent_points : float
        Expected number of latent points, Σλ, at the end.
    rough_sweeps : int
        Sweeps in single precision before these.
    """

    elbo: tuple[float, ...]
    change: tuple[float, ...]
    converged: bool
    interrupted: bool
    latent_points: float
    rough_sweeps: int = 0

    @property
    def sweeps(self) -> int:
        """Number of sweeps that were run, the rough ones aside."""
        return len(self.elbo)


def phi_shape(shape: float, thinned: float, rate: float) -> float:
    r"""Solve :math:`\alpha = A + (B/\beta)\,e^{\psi(\alpha)}` for the shape of q(phi).

    The function :math:`\alpha - A - (B/\beta)e^{\psi(\alpha)}` rises and is concave where B < β, so Newton's
    steps from A go up to its only root and never past it.

    Parameters
    ----------
    shape : float
        A: prior shape plus the weighted number of events.
    thinned : float
        B: Σ c σ(s) exp(−(m+s)/2), the latent mass for φ = 1.
    rate : float
        β.
    """
    ratio, alpha = thinned / rate, shape
    for _ in range(100):
        power = ratio * math.exp(float(digamma(alpha)))
        # The derivative of the digamma function is Hurwitz's zeta function of 2.
        step = (shape + power - alpha) / (1 - power * float(zeta(2.0, alpha)))
        alpha += step
        if not abs(step) > 1e-14 * alpha:
            break
    if not math.isfinite(alpha):
        raise NotFiniteError(f"the shape of q(phi) became {alpha}; the baseline exposure is {rate:.3g}.")
    return alpha


def start(problem: PaperProblem, linearised: Linearised, theta: Tensor, phi: float, spread: str = "mode") -> CaviState:
    """Return where the sweeps start: E[phi] = phi_MAP and q(theta) around theta_MAP.

    Parameters
    ----------
    problem, linearised : PaperProblem, Linearised
        The data and the linearised points.
    theta, phi : Tensor of shape (m,), float
        The mode.
    spread : {"mode", "prior"}
        ``"prior"`` gives q(theta) the prior's covariance, as the text of the paper does. The variance of g is then so
        large that the bound sees no latent point, and the first sweeps run into the collapsed optimum. ``"mode"``
        starts with all mass at the mode, where the bound is exact, so that the first sweep is a Laplace step.
    """
    variance = torch.zeros_like(linearised.offset)
    if spread == "prior":
        variance = linearised.rows.squared_norms(1 / problem.weight_prior.precision)
    mean = linearised.offset + linearised.rows.times(theta)
    return CaviState(Gamma(phi * problem.phi_rate, problem.phi_rate), None, theta, mean, variance)


def update_phi(problem: PaperProblem, m: Tensor, v: Tensor) -> Gamma:
    """Return q(phi), with q(Psi) at its optimum for it (eq. A14)."""
    events = problem.points.events
    s = torch.sqrt(m**2 + v)[events:]
    thinned = float((problem.baseline * torch.exp(log_thinning(m[events:], s))).sum())
    known = problem.phi_prior.shape + problem.event_count
    return Gamma(phi_shape(known, thinned, problem.phi_rate), problem.phi_rate)


def curvature_and_slope(problem: PaperProblem, m: Tensor, v: Tensor, phi: Gamma) -> tuple[Tensor, Tensor]:
    """Return κ and a of every point: what q(omega) and q(Psi) leave for q(theta) (appendix G.4)."""
    events = problem.points.events
    s = torch.sqrt(m**2 + v)
    omega = polya_gamma_mean(s)
    latent = latent_intensity(problem.baseline, m[events:], s[events:], phi.mean_log)
    curvature = torch.cat([problem.event_weight, latent]) * omega
    slope = torch.cat([problem.event_weight, -latent]) / 2
    return curvature, slope


def sweep(problem: PaperProblem, linearised: Linearised, solver: Solver[Any], state: CaviState) -> CaviState:
    """Update q(omega), q(Psi), q(phi), then q(theta)."""
    phi = update_phi(problem, state.m, state.v)
    curvature, slope = curvature_and_slope(problem, state.m, state.v, phi)
    theta = solver.solve(curvature, slope - curvature * linearised.offset)
    mean, variance = solver.moments(theta)
    return CaviState(phi, theta, theta.mean, linearised.offset + mean, variance)


def _relative_change(new: CaviState, old: CaviState, weight: Tensor) -> float:
    def change(a: Tensor, b: Tensor, by: Tensor) -> float:
        return float(((by * (a - b) ** 2).sum() / (by * b**2).sum().clamp_min(_TINY)).sqrt())

    return max(
        abs(new.phi.shape - old.phi.shape) / max(old.phi.shape, _TINY),
        change(new.theta_mean, old.theta_mean, torch.ones_like(old.theta_mean)),
        change(new.v, old.v, weight),
    )


def _bound(problem: PaperProblem, state: CaviState) -> float:
    assert state.theta is not None
    return elbo(problem, state.m, state.v, state.phi, state.theta.divergence(problem.weight_prior.precision))


class Shortcut:
    """Sweeps that start beyond where the last one ended.

    From the last few of them the limit of the variances is guessed (Anderson), and the best mean for them is searched.
    Any moments are a valid start, since q(omega), q(Psi) and q(phi) are free; what they lead to is only kept if the
    ELBO has not fallen. A solver without coordinates has its means guessed as well, not searched.
    """

    def __init__(self, problem: PaperProblem, linearised: Linearised) -> None:
        self._problem, self._linearised = problem, linearised
        self._memory: Anderson | None = None
        self._last_gain = math.inf

    def __call__(self, solver: Solver[Any], state: CaviState, reached: float) -> tuple[CaviState, float] | None:
        """Return the state after a sweep with its ELBO, or None where all that was tried has lowered it.

        Parameters
        ----------
        solver : Solver
            The algebra of the sweep.
        state : CaviState
            Where the last sweep ended.
        reached : float
            The ELBO there.
        """
        assert state.theta is not None
        coordinates = solver.coordinates(state.theta)
        if self._memory is None:
            weight = self._problem.points.weight
            self._memory = Anderson(weight if coordinates is not None else torch.cat([weight, weight]))
        found = None
        guess = self._memory.guess()
        if guess is not None:
            found = self._sweep_beyond(solver, self._unpacked(guess, state), coordinates, reached)
            if found is None:
                self._memory.forget()
        if found is None:
            found = self._sweep_beyond(solver, state, coordinates, reached)
        if found is not None:
            self._last_gain = found[1] - reached
        return found

    def _sweep_beyond(
        self, solver: Solver[Any], begin: CaviState, coordinates: Coordinates | None, reached: float
    ) -> tuple[CaviState, float] | None:
        """Search the mean and sweep; return the end of it if the ELBO has not fallen."""
        problem, linearised = self._problem, self._linearised
        assert self._memory is not None
        try:
            if coordinates is not None:
                tolerance = min(_COARSEST_SEARCH, _SEARCH_SHARE * self._last_gain)
                tolerance = max(tolerance, _ROUNDING * abs(reached))
                v = begin.v
                m = search_mean(
                    problem, coordinates, linearised.offset, v, lambda m: update_phi(problem, m, v), tolerance
                )
                begin = replace(begin, m=m)
            new = sweep(problem, linearised, solver, begin)
            bound = _bound(problem, new)
        except (NotPositiveDefiniteError, NotFiniteError, NotConvergedError):
            return None
        if not bound >= reached - _ROUNDING * abs(reached):
            return None
        self._memory.add(self._packed(begin, coordinates), self._packed(new, coordinates))
        return new, bound

    @staticmethod
    def _packed(state: CaviState, coordinates: Coordinates | None) -> Tensor:
        """Return what is extrapolated: the variance of g on the log scale, and the mean of g if it is not searched."""
        variance = torch.log(state.v + _TINY)
        return variance if coordinates is not None else torch.cat([variance, state.m])

    @staticmethod
    def _unpacked(values: Tensor, state: CaviState) -> CaviState:
        count = len(state.m)
        variance = torch.exp(values[:count].clamp(max=_LARGEST_LOG_VARIANCE))
        return replace(state, v=variance, m=values[count:] if len(values) > count else state.m)


def fit(
    problem: PaperProblem,
    linearised: Linearised,
    solver: Solver[Any],
    state: CaviState,
    *,
    tolerance: float = 1e-6,
    max_sweeps: int = 1000,
    accelerate: bool = True,
    rough: Solver[Any] | None = None,
    report: Callable[[int, float, float], None] | None = None,
) -> tuple[CaviState, CaviInfo]:
    """Sweep until the parameters stand still.

    Parameters
    ----------
    problem, linearised, solver : PaperProblem, Linearised, Solver
        The data, the linearised points, and the algebra.
    state : CaviState
        Where to start.
    tolerance : float
        Stop when no block of parameters (the shape of q(phi), the mean of q(theta), the variances of g at the
        points) changes by more than this, relative to its size: the rule of the paper.
    max_sweeps : int
        Stop after so many sweeps in any case.
    accelerate : bool
        Whether sweeps start where the last ones seem to lead (:class:`Shortcut`). The end is a fixed point of the
        sweeps either way; where there are several it need not be the same one.
    rough : Solver, optional
        The same algebra, cheaper and less exact, for the first sweeps. They end when they change little, or gain
        nothing any more; the others, and all that is reported of the ELBO, are the solver's own.
    report : callable, optional
        Called after each sweep with its number, the ELBO and the change.
    """
    trace: list[float] = []
    changes: list[float] = []
    shortcut = Shortcut(problem, linearised)
    reached, rough_sweeps = -math.inf, 0
    converged = interrupted = False
    while len(trace) + rough_sweeps < max_sweeps and not converged and not interrupted:
        try:
            found = None
            if accelerate and state.theta is not None:
                found = shortcut(rough or solver, state, reached)
            if found is None:
                new = sweep(problem, linearised, rough or solver, state)
                found = new, _bound(problem, new)
        except KeyboardInterrupt:
            # The state of the last finished sweep is a posterior like any other, only not the final one.
            if state.theta is None:
                raise
            interrupted = True
            continue
        new, bound = found
        if not math.isfinite(bound):
            number = len(trace) + rough_sweeps + 1
            raise NotFiniteError(f"the ELBO became {bound} in sweep {number}; look for extreme covariates.")
        change = _relative_change(new, state, problem.points.weight)
        if rough is None:
            trace.append(bound)
            changes.append(change)
            converged = change < tolerance
            state, reached = new, bound
        else:
            rough_sweeps += 1
            state = new
            if change < _ROUGH_CHANGE or not bound > reached or rough_sweeps == max_sweeps - 1:
                rough = None
                state, bound = _exactly(problem, linearised, solver, state)
            reached = bound
        if report is not None:
            try:
                report(len(trace) + rough_sweeps, bound, change)
            except KeyboardInterrupt:
                interrupted = True
    latent = state.phi.shape - problem.phi_prior.shape - problem.event_count
    return state, CaviInfo(tuple(trace), tuple(changes), converged, interrupted, latent, rough_sweeps)


def _exactly(
    problem: PaperProblem, linearised: Linearised, solver: Solver[Any], state: CaviState
) -> tuple[CaviState, float]:
    """Work the moments of g and the ELBO out anew, with a solver that is more exact than the one of the sweep."""
    assert state.theta is not None
    mean, variance = solver.moments(state.theta)
    state = replace(state, m=linearised.offset + mean, v=variance)
    return state, _bound(problem, state)
