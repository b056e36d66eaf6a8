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

    Attributes
    ----------
    rows : Rows of shape (P, r)
        The rows in these coordinates.
    precision : Tensor of shape (r,)
        Diagonal of the prior precision of z.
    factor : Tensor of shape (r, r)
        Lower Cholesky factor of the Gaussian's precision of z.
    place : Tensor of shape (r,)
        The mean of z.
    """

    rows: Rows
    precision: Tensor
    factor: Tensor
    place: Tensor

    def covariance_times(self, vector: Tensor) -> Tensor:
        """Return Σ·vector, shape (r,)."""
        return torch.cholesky_solve(vector[:, None], self.factor).squeeze(1)
