"""Coordinates of the weights in which the mean of a Gaussian can be searched at little cost."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from neuralsurv.solvers.rows import Rows


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
