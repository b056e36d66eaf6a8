r"""The interface of solvers: the Gaussian over theta for a log-likelihood that is quadratic in J·theta.

Given rows :math:`J` (P×m), a diagonal prior precision :math:`T`, curvatures :math:`\kappa \ge 0` and slopes
:math:`b`, the Gaussian has :math:`\Sigma^{-1} = T + J^\top\mathrm{diag}(\kappa)J` and :math:`\mu = \Sigma J^\top b`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from neuralsurv.solvers.rows import Rows


class Description(NamedTuple):
    """What an object is made of, in a form that a model file can hold."""

    values: dict[str, Any]  # plain numbers, text and lists of them
    arrays: dict[str, Tensor]


class DenseForm(NamedTuple):
    """A Gaussian over theta as a dense one over coordinates z; across these coordinates it equals its prior."""

    # shape (m, r) or None: theta is basis·z and, across the basis, a draw of its prior; z is standard normal by the
    # prior. None where z is theta itself.
    basis: Tensor | None
    mean: Tensor  # of z, shape (r,)
    factor: Tensor  # lower Cholesky factor of the precision of z, shape (r, r)


class Gaussian(Protocol):
    """A Gaussian over the weights."""

    @property
    def mean(self) -> Tensor:
        """The mean, shape (m,)."""

    def variance(self, rows: Tensor) -> Tensor:
        """Return the variance of ``rows @ theta`` for each of Q rows, shape (Q,)."""

    def covariance(self) -> Tensor | None:
        """Return the covariance of theta, shape (m, m), to four digits or more; None where it is too large."""

    def divergence(self, precision: Tensor) -> float:
        """Return the Kullback–Leibler divergence to N(0, diag(precision)⁻¹)."""

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Return `count` independent draws of theta, shape (count, m)."""

    def describe(self) -> Description:
        """Return what the Gaussian is made of; raise a StorageError if that is too large for a file."""


class SolvedGaussian(Gaussian, Protocol):
    """A Gaussian that a solver returns."""

    def compact(self, memory: float) -> SolvedGaussian:
        """Return the same law without the rows it was solved for; itself where that takes more than `memory` bytes."""

    def dense_form(self) -> DenseForm | None:
        """Return the dense Gaussian of few coordinates that this one is; None where it has as many as points."""


Solved = TypeVar("Solved", bound=SolvedGaussian)


class Solver(Protocol[Solved]):
    """Solves for the Gaussian repeatedly while J and T stay the same."""

    def solve(self, curvature: Tensor, slope: Tensor) -> Solved:
        """Return the Gaussian for curvatures (P,) and slopes (P,)."""

    def moments(self, gaussian: Solved) -> tuple[Tensor, Tensor]:
        """Return mean and variance of J·theta at the solver's own rows, each of shape (P,)."""


class MovingSolver(Solver[Solved], Protocol[Solved]):
    """A solver that can move the mean of a Gaussian without solving for its covariance again."""

    def moved(self, gaussian: Solved, slope: Tensor) -> Solved:
        """Return the Gaussian after a Newton step of its mean, where the points have these slopes (P,)."""


class SearchableSolver(Solver[Solved], Protocol[Solved]):
    """A solver in whose coordinates a mean can be searched."""

    def coordinates(self, gaussian: Solved) -> Coordinates:
        """Return coordinates in which the mean of a Gaussian of this solver is searched."""


@dataclass(frozen=True)
class Coordinates:
    """Coordinates z of theta, with J·theta = rows·z and independent zero-mean Gaussians as the prior of z.

    A product with its rows costs O(P r), where the solver's own step costs O(P r²).
    """

    rows: Rows  # the rows in these coordinates, shape (P, r)
    precision: Tensor  # diagonal of the prior precision of z, shape (r,)
    factor: Tensor  # lower Cholesky factor of the Gaussian's precision of z, shape (r, r)
    place: Tensor  # the mean of z, shape (r,)

    def covariance_times(self, vector: Tensor) -> Tensor:
        """Return Σ·vector, shape (r,)."""
        return torch.cholesky_solve(vector[:, None], self.factor).squeeze(1)
