r"""Gaussian variational inference with exact one-dimensional expectations.

With φ fixed and the network linearised, g at every point is Gaussian under q(θ) = N(μ, Σ), so that no bound is needed:
every term of the ELBO is a one-dimensional integral, taken by Gauss–Hermite quadrature,

.. math:: \sum_\text{events} w\,\mathrm{E}\log\sigma(g) - \phi\sum_\text{nodes} c\,\mathrm{E}\sigma(g)
          - \mathrm{KL}(q\,\|\,p) + \text{const}.

q(θ) is given by a curvature κ and a slope b at every point, :math:`\Sigma^{-1} = T + J^\top\mathrm{diag}(\kappa)J` and
:math:`\mu = \Sigma J^\top b`, which is what the solvers take. The ELBO is highest where κ is minus the expected second
derivative of the point's log-likelihood and b its expected first derivative plus κ times the mean of J θ. A step moves
(κ, b) towards these; in these coordinates that is the natural gradient, so a short enough step raises the ELBO.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic

import numpy as np
import torch
from torch import Tensor

from neuralsurv.errors import NotFiniteError
from neuralsurv.model.augmentation import latent_intensity, log_sigmoid_bound, polya_gamma_mean
from neuralsurv.model.likelihood import Likelihood
from neuralsurv.solvers.interface import MovingSolver, Solved, Solver

# Nodes of the expectations; the error is below 1e-7 for a standard deviation of g up to 1, and below 2e-4 up to 2.
NODES = 15
# A step is halved at most this often before the ascent ends where it is.
_HALVINGS = 12
# Where the expected curvature of a point is negative (sigma(g) above one half), it is set to 0.
_LEAST_CURVATURE = 0.0

_POSITION, _MASS = (torch.from_numpy(a) for a in np.polynomial.hermite_e.hermegauss(NODES))
_MASS = _MASS / _MASS.sum()


@dataclass(frozen=True)
class Expectations:
    """Expectations under q: the likelihood part of the ELBO and its derivatives at the points.

    Attributes
    ----------
    value : float
        The expected log-likelihood, in nats.
    slope, curvature : Tensor of shape (P,)
        Expected first derivative with respect to g, and minus the expected second one.
    """

    value: float
    slope: Tensor
    curvature: Tensor


@dataclass(frozen=True)
class GaussianState(Generic[Solved]):
    """q(theta), its coordinates at the points, and the expectations under it."""

    theta: Solved
    curvature: Tensor
    slope: Tensor
    mean: Tensor
    expected: Expectations
    elbo: float

    @property
    def ahead(self) -> tuple[Tensor, Tensor]:
        """The curvature and the slope of the points after a full step."""
        curvature = self.expected.curvature
        return curvature, self.expected.slope + curvature * self.mean


@dataclass(frozen=True)
class GaussianInfo:
    """How the ascent went.

    Attributes
    ----------
    elbo : tuple of float
        The ELBO after each step; never falling.
    converged : bool
        Whether the last full step gained less than the tolerance.
    """

    elbo: tuple[float, ...]
    converged: bool

    @property
    def steps(self) -> int:
        """Number of steps."""
        return len(self.elbo)


def expectations(likelihood: Likelihood, phi: float, mean: Tensor, variance: Tensor, *, fisher: bool) -> Expectations:
    """Return the expectations where g has this mean and variance at the points.

    Parameters
    ----------
    likelihood : Likelihood
        The points.
    phi : float
        The value at which phi is fixed.
    mean, variance : Tensor of shape (P,)
        Moments of g.
    fisher : bool
        Whether the curvature is the Fisher information of the point process, which events do not enter, in place of
        the exact one.
    """
    events = likelihood.points.events
    g = torch.addcmul(mean, variance.clamp_min(0).sqrt(), _POSITION[:, None])
    weight, mass = likelihood.event_weight, phi * likelihood.baseline
    log_share = _MASS @ torch.nn.functional.logsigmoid(g[:, :events])
    # The first three moments of σ(g): its derivatives are polynomials of σ.
    share = g.sigmoid_()
    first, power = _MASS @ share, share.square()
    second = _MASS @ power
    third = _MASS @ power.mul_(share)
    value = float(weight @ log_share) - float(mass @ first[events:])
    inner = first - second
    slope = torch.cat([weight * (1 - first[:events]), -mass * inner[events:]])
    if fisher:
        information = inner[events:] - (second - third)[events:]
        curvature = torch.cat([torch.zeros_like(weight), mass * information])
    else:
        bend = inner[events:] - 2 * (second - third)[events:]
        curvature = torch.cat([weight * inner[:events], mass * bend]).clamp_min(_LEAST_CURVATURE)
    constant = likelihood.event_constant + likelihood.event_count * float(np.log(phi))
    return Expectations(value + constant, slope, curvature)


def bounded_expectations(likelihood: Likelihood, phi: float, mean: Tensor, variance: Tensor) -> Expectations:
    """Return the expectations by the Pólya–Gamma bound of the paper, with phi fixed; parameters as above.

    It replaces the exact expectations in a comparison: where sigma(g) is small the bound is loose and its curvature too
    large.
    """
    events = likelihood.points.events
    root = torch.sqrt(mean**2 + variance.clamp_min(0))
    pull = polya_gamma_mean(root)
    at_events = likelihood.event_weight * log_sigmoid_bound(mean[:events], root[:events])
    latent = latent_intensity(likelihood.baseline, mean[events:], root[events:], float(np.log(phi)))
    strength = torch.cat([likelihood.event_weight, latent])
    towards = torch.cat([likelihood.event_weight, -latent]) / 2
    curvature = strength * pull
    constant = likelihood.event_constant + likelihood.event_count * float(np.log(phi))
    value = float(at_events.sum()) + float(latent.sum()) - phi * float(likelihood.baseline.sum())
    return Expectations(value + constant, towards - curvature * mean, curvature)


@dataclass(frozen=True)
class Ascent(Generic[Solved]):
    """The ascent of the ELBO for one prior.

    Attributes
    ----------
    likelihood : Likelihood
        The points.
    phi : float
        The value at which phi is fixed.
    offset : Tensor of shape (P,)
        h, the linearised g at theta = 0.
    solver : Solver
        The linear algebra, with the prior in it.
    precision : Tensor of shape (m,)
        The prior precision.
    fisher : bool
        Which curvature is used; see `expectations`.
    bounded : bool
        Whether the Pólya–Gamma bound replaces the exact expectations.
    """

    likelihood: Likelihood
    phi: float
    offset: Tensor
    solver: Solver[Solved]
    precision: Tensor
    fisher: bool = False
    bounded: bool = False

    def _expected(self, mean: Tensor, variance: Tensor) -> Expectations:
        if self.bounded:
            return bounded_expectations(self.likelihood, self.phi, mean, variance)
        return expectations(self.likelihood, self.phi, mean, variance, fisher=self.fisher)

    def state(self, curvature: Tensor, slope: Tensor) -> GaussianState[Solved]:
        """Return q(theta) with these coordinates."""
        return self._of(self.solver.solve(curvature, slope), curvature, slope)

    def _of(self, theta: Solved, curvature: Tensor, slope: Tensor) -> GaussianState[Solved]:
        mean, variance = self.solver.moments(theta)
        expected = self._expected(self.offset + mean, variance)
        elbo = expected.value - theta.divergence(self.precision)
        if not np.isfinite(elbo):
            raise NotFiniteError(f"the ELBO became {elbo}; look for extreme covariates or weights.")
        return GaussianState(theta, curvature, slope, mean, expected, elbo)

    def begin(self) -> tuple[Tensor, Tensor]:
        """Return the curvature and the slope of the default start: one step from the prior mean."""
        expected = self._expected(self.offset, torch.zeros_like(self.offset))
        return expected.curvature, expected.slope

    def start(self) -> GaussianState[Solved]:
        """Return the default start."""
        return self.state(*self.begin())

    def settle(
        self, state: GaussianState[Solved], solver: MovingSolver[Solved], *, tolerance: float, most: int
    ) -> tuple[GaussianState[Solved], GaussianInfo]:
        """Take steps of the mean alone until one gains less than `tolerance` nats; the covariance stays as it is.

        Such a step costs a product with the columns in place of one of the columns with each other.
        """
        trace = [state.elbo]
        converged = False
        while len(trace) <= most and not converged:
            slope = state.expected.slope + state.curvature * state.mean
            theta = solver.moved(state.theta, state.expected.slope)
            following = self._of(theta, state.curvature, slope)
            converged = abs(following.elbo - state.elbo) < tolerance
            if following.elbo < state.elbo:
                break
            state = following
            trace.append(state.elbo)
        return state, GaussianInfo(tuple(trace), converged)

    def climb(
        self, state: GaussianState[Solved], *, tolerance: float, most: int
    ) -> tuple[GaussianState[Solved], GaussianInfo]:
        """Take steps until a full one gains less than `tolerance` nats; the ELBO never falls."""
        trace = [state.elbo]
        converged = False
        while len(trace) <= most and not converged:
            wanted_slope = state.expected.slope + state.expected.curvature * state.mean
            step = 1.0
            for _ in range(_HALVINGS):
                following = self.state(
                    torch.lerp(state.curvature, state.expected.curvature, step),
                    torch.lerp(state.slope, wanted_slope, step),
                )
                if following.elbo >= state.elbo:
                    break
                step /= 2
            else:
                # No step gains: this is the optimum up to rounding, or up to the curvature that is used.
                return state, GaussianInfo(tuple(trace), converged=True)
            converged = step == 1 and following.elbo - state.elbo < tolerance
            state = following
            trace.append(state.elbo)
        return state, GaussianInfo(tuple(trace), converged)
