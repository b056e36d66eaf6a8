r"""The scales of the prior: found by the evidence, and averaged over.

For given scales s the highest ELBO plus the log of their hyper-prior approximates the log posterior of log s.
Its gradient needs no further fit: whitened weights z = θ/s enter through the divergence alone, so

.. math:: \frac{\partial\,\mathrm{ELBO}}{\partial\log s_k} = \sum_{j \in k}\left(\mathrm{E}z_j^2 - 1\right).

Its second derivatives have a closed form as well, if the likelihood is taken as quadratic, and Newton's method finds
the top. Around it, a design of a centre and points on the axes of the coordinates in which
the log posterior is round gives settings to average over: exact for a Gaussian in its mean and covariance, corrected by
the ratio of the two densities where the posterior is not one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from neuralsurv.inference.default.expectations import Ascent, GaussianInfo, GaussianState
from neuralsurv.model.likelihood import Likelihood
from neuralsurv.model.prior import GroupedPrior
from neuralsurv.solvers.interface import MovingSolver, Solver
from neuralsurv.solvers.subspace import SubspaceGaussian

# The search stops where a step is expected to gain less than this many nats; steps of a log scale are no longer than
# the next.
_ENOUGH = 0.02
_LONGEST_STEP = 1.0
_MOST_STEPS = 30
_SHORTEST = 0.1
# The climb of a setting that is not the last stops after a step that gains less than this: the next would gain its
# square or so, since near the top every step is one of Newton's.
_CLOSE_ENOUGH = 0.3
# Information, in nats, of the directions without a covariance: in the first step from another setting, and after it.
_ROUGH, _FINE = 1.0, 0.1
# The gain at which steps of the mean alone stop, and their limit.
_SETTLED = 1e-3
_MOST_MOVES = 8
# Radius of the design, in standard deviations times the root of the number of scales; above 1, or the centre would
# have no weight.
_RADIUS = 1.1

# How often the search goes on from a setting of the design that is better than the top it found.
_MOST_TOPS = 3
# Settings that count for less are left out: they would only make predictions slower and files larger.
_LEAST_SHARE = 0.002
# The climb of a setting that would have less than this share of that of the top is not finished.
_NO_SHARE = 1e-4

Report = Callable[[int, float], None]


class SettingSolver(MovingSolver[SubspaceGaussian], Protocol):
    """A solver for given scales."""

    @property
    def precision(self) -> Tensor:
        """Diagonal of the prior precision, shape (m,)."""

    def lost_information(self, curvature: Tensor) -> float:
        """Return the information, in nats, that the solver leaves out at these curvatures (P,)."""

    def thinned(self, curvature: Tensor, tolerance: float) -> Solver[SubspaceGaussian]:
        """Return a solver that does less work and leaves out at most `tolerance` nats at these curvatures (P,)."""


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

    @property
    def numbers(self) -> int:
        """How many numbers the largest matrix of a step holds."""

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
    state : GaussianState
        q(theta).
    info : GaussianInfo
        How the climb to it went.
    """

    log_scales: Tensor
    score: float
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
        ascent = self._climber(log_scales)
        first = ascent.start() if warm is None else ascent.state(warm.curvature, warm.slope)
        state, info = ascent.climb(first, tolerance=max(self.tolerance, enough), most=self.most)
        return self._setting(log_scales, state, info)

    def finished(self, setting: Setting) -> Setting:
        """Return a setting after the rest of its climb, which may have stopped early."""
        ascent = self._climber(setting.log_scales)
        state, info = ascent.climb(setting.state, tolerance=self.tolerance, most=self.most)
        return self._setting(setting.log_scales, state, info)

    def beside(self, log_scales: Tensor, warm: GaussianState[SubspaceGaussian], least: float = -math.inf) -> Setting:
        """Return about the best q(theta) for scales that are only averaged over, from that of the best scales.

        Directions that carry little information keep their prior variance, which costs the score `_FINE` / 2 nats at
        most, and about the same everywhere. The mean is the best one for the covariance, in all directions. A setting
        that a step as long as the last would not bring up to a score of `least` is left before that.
        """
        solver, hyper = self.solver.at(self.prior.multipliers(log_scales)), self._hyper(log_scales)
        rough = solver.thinned(warm.curvature, _ROUGH)
        state = self._ascent(rough, solver.precision).state(warm.curvature, warm.slope)
        ascent = self._ascent(solver.thinned(state.expected.curvature, _FINE), solver.precision)
        trace = [state.elbo]
        while len(trace) <= self.most:
            following = ascent.state(*state.ahead)
            gain = following.elbo - state.elbo
            if gain < -_ROUGH:
                # Only steps that are shortened lead on from here.
                break
            state = following
            trace.append(state.elbo)
            if state.elbo + hyper + gain < least:
                return self._setting(log_scales, state, GaussianInfo(tuple(trace), converged=False))
            if gain < _CLOSE_ENOUGH:
                state, _ = ascent.settle(state, solver, tolerance=_SETTLED, most=_MOST_MOVES)
                return self._setting(log_scales, state, GaussianInfo(tuple(trace), converged=True))
        return self.at(log_scales, warm, enough=_CLOSE_ENOUGH)

    def _climber(self, log_scales: Tensor) -> Ascent[SubspaceGaussian]:
        solver = self.solver.at(self.prior.multipliers(log_scales))
        return self._ascent(solver, solver.precision)

    def _ascent(self, solver: Solver[SubspaceGaussian], precision: Tensor) -> Ascent[SubspaceGaussian]:
        return Ascent(self.likelihood, self.phi, self.offset, solver, precision, self.fisher, self.bounded)

    def _setting(self, log_scales: Tensor, state: GaussianState[SubspaceGaussian], info: GaussianInfo) -> Setting:
        return Setting(log_scales, state.elbo + self._hyper(log_scales), state, info)

    def _hyper(self, log_scales: Tensor) -> float:
        return self.prior.log_density(log_scales) if self.hyper_priors else 0.0

    def gradient(self, setting: Setting) -> Tensor:
        """Return the gradient of the score with respect to the log scales at a setting, shape (G,).

        It takes an inverse, which settings that are only averaged over can do without.
        """
        theta = setting.state.theta
        excess = theta.inner_mean.square() + theta.inner_covariance.diagonal() - 1
        parts = [excess[directions] for directions in self._directions()]
        found = torch.stack([part.sum() for part in parts]) if parts else excess.new_zeros(0)
        if self.hyper_priors:
            found = found - (setting.log_scales - self.prior.medians) / self.prior.spreads**2
        return found

    def _directions(self) -> list[slice | Tensor]:
        return [self.solver.directions(group.start, group.stop) for group in self.prior.groups]

    def information(self, setting: Setting) -> Tensor:
        r"""Return minus the second derivatives of the score at a setting, shape (G, G).

        The likelihood is taken as quadratic there. With mean m and covariance C of the whitened weights, and
        :math:`m_k` and :math:`C_{kl}` their parts of groups k and l, it is
        :math:`2\delta_{kl}(|m_k|^2 + \mathrm{tr}\,C_{kk}) - 4\,m_k^\top C_{kl}m_l - 2\,|C_{kl}|^2`,
        without the hyper-prior.
        """
        theta, directions = setting.state.theta, self._directions()
        mean, covariance = theta.inner_mean, theta.inner_covariance
        own = torch.zeros(len(mean), len(directions), dtype=mean.dtype)
        for group, place in enumerate(directions):
            own[place, group] = 1.0
        moved = own * mean[:, None]
        squares = own.T @ (mean.square() + covariance.diagonal())
        found = torch.diag(2 * squares) - 4 * moved.T @ covariance @ moved - 2 * own.T @ covariance.square() @ own
        return found + torch.diag(self.prior.spreads**-2) if self.hyper_priors else found


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
    if not len(start):
        top = evidence.at(start)
        return Search(top, (top.score,), interrupted=False)
    current = evidence.at(start, enough=_CLOSE_ENOUGH)
    scores = [current.score]
    try:
        for _ in range(_MOST_STEPS):
            axes = _axes(evidence, current)
            gradient = evidence.gradient(current)
            direction = axes @ (axes.T @ gradient)
            if float(direction @ gradient) / 2 < _ENOUGH:
                break
            direction = direction * min(1.0, _LONGEST_STEP / float(direction.abs().max().clamp_min(1e-300)))
            length = 1.0
            while True:
                following = evidence.at(current.log_scales + length * direction, current.state, enough=_CLOSE_ENOUGH)
                scores.append(max(scores[-1], following.score))
                report(len(scores), scores[-1])
                if following.score > current.score or length < _SHORTEST:
                    break
                length /= 2
            if following.score <= current.score:
                break
            current = following
        current = evidence.finished(current)
        scores.append(max(scores[-1], current.score))
        report(len(scores), scores[-1])
    except KeyboardInterrupt:
        return Search(current, tuple(scores), interrupted=True)
    return Search(current, tuple(scores), interrupted=False)


def _axes(evidence: Evidence, setting: Setting) -> Tensor:
    """Return the axes of the Gaussian that fits the log posterior at a setting, each a standard deviation long.

    A direction in which it is flatter than the widest hyper-prior is taken as wide as that.
    """
    values, vectors = torch.linalg.eigh(evidence.information(setting))
    flattest = float(evidence.prior.spreads.max()) ** -2
    axes: Tensor = vectors / values.clamp_min(flattest).sqrt()
    return axes


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


def _log_volume(evidence: Evidence, axes: Tensor) -> float:
    return float(torch.linalg.slogdet(axes).logabsdet - evidence.prior.spreads.log().sum())


def log_evidence(evidence: Evidence, top: Setting) -> float:
    """Return the log evidence, integrated over the scales as if it were a Gaussian around a top.

    It is up to a constant that is the same for all models of the same rows.
    """
    return top.score + _log_volume(evidence, _axes(evidence, top))


@dataclass(frozen=True)
class Average:
    """Settings to average over, with their shares."""

    settings: tuple[Setting, ...]
    shares: tuple[float, ...]
    log_evidence: float = 0.0  # integrated over the scales, up to a constant of the rows
    null_share: float = 0.0  # of the setting in which no covariate matters, which comes last if there is one

    @classmethod
    def of(cls, setting: Setting) -> Average:
        """Return a setting alone."""
        return cls((setting,), (1.0,))

    def with_null(self, setting: Setting, log_evidence: float, prior_share: float) -> Average:
        """Return the average with the setting in which no covariate matters, which has this share of the prior."""
        logs = [self.log_evidence + math.log1p(-prior_share), log_evidence + math.log(prior_share)]
        mine, null = torch.softmax(torch.tensor(logs, dtype=torch.float64), 0).tolist()
        if null < _LEAST_SHARE:
            return self
        return Average((*self.settings, setting), (*(mine * share for share in self.shares), null), null_share=null)


def settings_around(evidence: Evidence, top: Setting, report: Report = lambda step, score: None) -> Average:
    """Return settings to average over."""
    axes = _axes(evidence, top)
    points, weights = axis_design(len(top.log_scales))
    # The top itself by the same means, so that what these cost the score cancels.
    cost = top.score - evidence.beside(top.log_scales, top.state).score
    settings, logs = [top], [math.log(float(weights[0]))]
    for number, (point, weight) in enumerate(zip(points[1:], weights[1:], strict=True), 1):
        share = math.log(float(weight)) - top.score + 0.5 * float(point @ point)
        least = logs[0] + math.log(_NO_SHARE) - share
        setting = evidence.beside(top.log_scales + axes @ point, top.state, least - cost)
        setting = replace(setting, score=setting.score + cost)
        settings.append(setting)
        logs.append(share + setting.score)
        report(number, setting.score)
    densities = torch.tensor(logs, dtype=torch.float64)
    shares = torch.softmax(densities, 0)
    kept = (shares >= _LEAST_SHARE).nonzero().squeeze(1).tolist()
    integral = top.score + _log_volume(evidence, axes) + float(torch.logsumexp(densities, 0))
    return Average(tuple(settings[k] for k in kept), tuple((shares[kept] / shares[kept].sum()).tolist()), integral)


def average_over(
    evidence: Evidence, search: Search, report: Report = lambda step, score: None
) -> tuple[Search, Average]:
    """Return the search, and settings to average over.

    The design reaches far enough to meet another, higher top. Its own point there would then have nearly all of the
    weight, so the search goes on from it, and the design is placed again.
    """
    for _ in range(_MOST_TOPS):
        average = settings_around(evidence, search.top, report)
        best = max(average.settings, key=lambda setting: setting.score)
        if best.score <= search.top.score + _ENOUGH:
            break
        found = find_top(evidence, best.log_scales, report)
        scores = tuple(max(search.scores[-1], score) for score in found.scores)
        search = Search(found.top, (*search.scores, *scores), found.interrupted)
        if found.interrupted:
            return search, Average.of(search.top)
    return search, average
