r"""The scales of the prior: found by the evidence, and averaged over.

For given scales s the highest ELBO plus the log of their hyper-prior approximates the log posterior of log s.
Its gradient needs no further fit: whitened weights z = θ/s enter through the divergence alone, so

.. math:: \frac{\partial\,\mathrm{ELBO}}{\partial\log s_k} = \sum_{j \in k}\left(\mathrm{E}z_j^2 - 1\right).

A quasi-Newton search finds the top. Around it, a design of a centre and points on the axes of the coordinates in which
the log posterior is round gives settings to average over: exact for a Gaussian in its mean and covariance, corrected by
the ratio of the two densities where the posterior is not one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from neuralsurv.inference.default.expectations import Ascent, GaussianInfo, GaussianState
from neuralsurv.model.likelihood import Likelihood
from neuralsurv.model.prior import GroupedPrior
from neuralsurv.solvers.interface import Solver
from neuralsurv.solvers.subspace import SubspaceGaussian

# The search stops when a step gains less than this many nats; steps of a log scale are no longer than this.
_ENOUGH = 0.02
_LONGEST_STEP = 1.0
_MOST_STEPS = 30
_SHORTEST = 0.1
# The climb of a setting to average over stops at this gain: it changes the weight of the setting by no more.
_CLOSE_ENOUGH = 0.05
# Step of the differences that give the curvature at the top, in log scales.
_DIFFERENCE = 0.1
# Radius of the design, in standard deviations times the root of the number of scales; above 1, or the centre would
# have no weight.
_RADIUS = 1.1

# Settings that count for less are left out: they would only make predictions slower and files larger.
_LEAST_SHARE = 0.002

Report = Callable[[int, float], None]


class SettingSolver(Solver[SubspaceGaussian], Protocol):
    """A solver for given scales."""

    @property
    def precision(self) -> Tensor:
        """Diagonal of the prior precision, shape (m,)."""

    def lost_information(self, curvature: Tensor) -> float:
        """Return the information, in nats, that the solver leaves out at these curvatures (P,)."""


class ScaledSolver(Protocol):
    """Solvers of the same rows for any scales of the prior."""

    @property
    def name(self) -> str:
        """What kind of solver it is."""

    @property
    def reason(self) -> str:
        """Why it suits."""

    @property
    def rank(self) -> int:
        """Number of directions r."""

    def at(self, multipliers: Tensor) -> SettingSolver:
        """Return the solver for scales (m,)."""

    def directions(self, start: int, stop: int) -> slice | Tensor:
        """Return the directions of the weights of a group."""


@dataclass(frozen=True)
class Setting:
    """The best q(theta) for given scales.

    Attributes
    ----------
    log_scales : Tensor of shape (G,)
        Logarithms of the scales.
    score : float
        ELBO plus log hyper-prior, in nats.
    gradient : Tensor of shape (G,)
        Its gradient with respect to the log scales.
    state : GaussianState
        q(theta).
    info : GaussianInfo
        How the climb to it went.
    """

    log_scales: Tensor
    score: float
    gradient: Tensor
    state: GaussianState[SubspaceGaussian]
    info: GaussianInfo


@dataclass(frozen=True)
class Evidence:
    """The log posterior of the log scales.

    Attributes
    ----------
    likelihood, phi, offset
        As in `Ascent`.
    solver : ScaledSolver
        The rows, for any scales.
    prior : GroupedPrior
        The groups of weights and the hyper-prior of their scales.
    tolerance, most : float, int
        Gain in nats at which the climb for one setting stops, and its limit of steps.
    fisher, bounded : bool
        Which curvature is used, as in `Ascent`.
    hyper_priors : bool
        Whether the hyper-prior counts; without it the bare ELBO decides.
    """

    likelihood: Likelihood
    phi: float
    offset: Tensor
    solver: ScaledSolver
    prior: GroupedPrior
    tolerance: float
    most: int
    fisher: bool = False
    bounded: bool = False
    hyper_priors: bool = True

    def at(
        self, log_scales: Tensor, warm: GaussianState[SubspaceGaussian] | None = None, *, enough: float = 0.0
    ) -> Setting:
        """Return the best q(theta) for these scales, climbing from where another setting ended.

        The climb stops at a gain of `enough` nats where that is more than the tolerance.
        """
        multipliers = self.prior.multipliers(log_scales)
        solver = self.solver.at(multipliers)
        ascent = Ascent(self.likelihood, self.phi, self.offset, solver, solver.precision, self.fisher, self.bounded)
        first = ascent.start() if warm is None else ascent.state(warm.curvature, warm.slope)
        state, info = ascent.climb(first, tolerance=max(self.tolerance, enough), most=self.most)
        gradient = self._gradient(state.theta)
        score = state.elbo
        if self.hyper_priors:
            score += self.prior.log_density(log_scales)
            gradient = gradient - (log_scales - self.prior.medians) / self.prior.spreads**2
        return Setting(log_scales, score, gradient, state, info)

    def _gradient(self, theta: SubspaceGaussian) -> Tensor:
        inverse = torch.linalg.solve_triangular(
            theta.inner_factor, torch.eye(len(theta.inner_mean), dtype=theta.inner_mean.dtype), upper=False
        )
        excess = theta.inner_mean.square() + inverse.square().sum(0) - 1
        parts = [excess[self.solver.directions(group.start, group.stop)] for group in self.prior.groups]
        return torch.stack([part.sum() for part in parts]) if parts else excess.new_zeros(0)


@dataclass(frozen=True)
class Search:
    """The outcome of the search for the top.

    Attributes
    ----------
    top : Setting
        The best setting.
    scores : tuple of float
        The best score so far, after each setting that was tried.
    interrupted : bool
        Whether the user stopped it (Ctrl-C) after at least one setting.
    """

    top: Setting
    scores: tuple[float, ...]
    interrupted: bool


def find_top(evidence: Evidence, start: Tensor, report: Report = lambda step, score: None) -> Search:
    """Search for the scales of the highest score, from `start`."""
    current = evidence.at(start)
    inverse_hessian = torch.diag(evidence.prior.spreads**2) / 2
    scores = [current.score]
    try:
        for _ in range(_MOST_STEPS if len(start) else 0):
            direction = inverse_hessian @ current.gradient
            direction = direction * min(1.0, _LONGEST_STEP / float(direction.abs().max().clamp_min(1e-300)))
            length = 1.0
            while True:
                following = evidence.at(current.log_scales + length * direction, current.state)
                scores.append(max(scores[-1], following.score))
                report(len(scores), scores[-1])
                if following.score > current.score or length < _SHORTEST:
                    break
                length /= 2
            gain = following.score - current.score
            if gain <= 0:
                break
            inverse_hessian = _updated(
                inverse_hessian, following.log_scales - current.log_scales, current.gradient - following.gradient
            )
            current = following
            if gain < _ENOUGH:
                break
    except KeyboardInterrupt:
        return Search(current, tuple(scores), interrupted=True)
    return Search(current, tuple(scores), interrupted=False)


def _updated(inverse_hessian: Tensor, step: Tensor, change: Tensor) -> Tensor:
    """Return the BFGS update of an inverse Hessian; as it was where the curvature along the step is not positive."""
    product = float(step @ change)
    if product <= 1e-10:
        return inverse_hessian
    left = torch.eye(len(step), dtype=step.dtype) - torch.outer(step, change) / product
    return left @ inverse_hessian @ left.T + torch.outer(step, step) / product


def axis_design(count: int) -> tuple[Tensor, Tensor]:
    """Return the points (2·count + 1, count) of a design on the axes and their weights for a standard Gaussian.

    With a weight of 1 − 1/f² at the centre and the rest spread evenly over the points at a distance of f√count on the
    axes, the weighted points have the mean and the covariance of the Gaussian.

    Examples
    --------
    >>> from neuralsurv.inference.default.scales import axis_design
    >>> points, weights = axis_design(2)
    >>> tuple(points.shape), round(float(weights.sum()), 9)
    ((5, 2), 1.0)
    """
    axes = torch.eye(count, dtype=torch.float64) * math.sqrt(count) * _RADIUS
    points = torch.cat([axes.new_zeros(1, count), axes, -axes])
    weights = torch.full((len(points),), 1 / (2 * count * _RADIUS**2), dtype=torch.float64)
    weights[0] = 1 - 1 / _RADIUS**2
    return points, weights


def settings_around(
    evidence: Evidence, top: Setting, report: Report = lambda step, score: None
) -> tuple[list[Setting], list[float]]:
    """Return settings to average over, and their weights.

    The curvature of the log posterior at the top comes from differences of its gradient; a direction in which it is
    flatter than the widest hyper-prior is taken as wide as that.
    """
    count = len(top.log_scales)
    hessian = torch.stack(
        [
            (top.gradient - evidence.at(top.log_scales + shift, top.state).gradient) / _DIFFERENCE
            for shift in _DIFFERENCE * torch.eye(count, dtype=torch.float64)
        ]
    )
    values, vectors = torch.linalg.eigh((hessian + hessian.T) / 2)
    flattest = float(evidence.prior.spreads.max()) ** -2
    axes = vectors / values.clamp_min(flattest).sqrt()
    points, weights = axis_design(count)
    settings, logs = [top], [math.log(float(weights[0]))]
    for number, (point, weight) in enumerate(zip(points[1:], weights[1:], strict=True), 1):
        setting = evidence.at(top.log_scales + axes @ point, top.state, enough=_CLOSE_ENOUGH)
        settings.append(setting)
        logs.append(math.log(float(weight)) + setting.score - top.score + 0.5 * float(point @ point))
        report(number, setting.score)
    shares = torch.softmax(torch.tensor(logs, dtype=torch.float64), 0)
    kept = (shares >= _LEAST_SHARE).nonzero().squeeze(1).tolist()
    return [settings[k] for k in kept], (shares[kept] / shares[kept].sum()).tolist()
