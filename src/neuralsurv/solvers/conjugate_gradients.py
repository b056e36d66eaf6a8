"""Conjugate gradients for many right-hand sides at once, in the Krylov space that they share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from neuralsurv.errors import NotConvergedError, NotFiniteError
from neuralsurv.solvers.primal import cholesky


def block_conjugate_gradients(
    apply: Callable[[Tensor], Tensor], right: Tensor, goal: float, most: int, energy: Tensor | float = 0.0
) -> tuple[Tensor, int]:
    """Solve K X = B for all columns of B at once, in the Krylov space that they share.

    The residuals are kept as Q C with orthonormal Q (Dubrulle 2001), so that columns may depend on each other.

    Parameters
    ----------
    apply : callable
        Product with K, symmetric and positive definite, of shape (m, m).
    right : Tensor of shape (m, s)
        B.
    goal : float
        Stop when every squared residual is at most this share of xᵀKx.
    most : int
        Largest number of iterations.
    energy : Tensor of shape (s,) or float
        What xᵀKx has already where B is what an earlier solution left.

    Returns
    -------
    Tensor of shape (m, s)
        X.
    int
        Number of iterations: products with K, each for at most s columns.
    """
    if not bool(torch.isfinite(right).all()):
        raise NotFiniteError("the right-hand side of a linear system holds NaN or infinite values; look at the slopes.")
    solution = torch.zeros_like(right)
    basis, coordinates = torch.linalg.qr(right)
    search = basis
    for iteration in range(most + 1):
        residual = coordinates.square().sum(0)
        reached = energy + (solution * right).sum(0)
        if bool((residual <= goal * reached).all()):
            return solution, iteration
        if iteration == most:
            break
        image = apply(search)
        factor = cholesky(search.T @ image)
        solution += search @ torch.cholesky_solve(coordinates, factor)
        basis, triangle = torch.linalg.qr(basis - torch.cholesky_solve(image.T, factor).T)
        search = basis + search @ triangle.T
        coordinates = triangle @ coordinates
    share = float((residual / reached.clamp_min(torch.finfo(right.dtype).tiny)).max().sqrt())
    raise NotConvergedError(
        f"conjugate gradients did not converge in {most} iterations: the largest residual is {share:.3g} of its "
        f"solution, {goal**0.5:.3g} is asked for; raise max_iterations or rank, or loosen tolerance."
    )


@dataclass(frozen=True)
class Solution:
    """Solutions d of S d = u − r for the columns u, shape (m, s).

    Attributes
    ----------
    solution, left : Tensor of shape (m, s)
        d and the true residual r.
    error : Tensor of shape (s,)
        rᵀC⁻¹r, at least the squared error of d in the norm of S.
    seen : Tensor of shape (P, s)
        κ^½A d.
    iterations : int
        Iterations of conjugate gradients.
    """

    solution: Tensor
    left: Tensor
    error: Tensor
    seen: Tensor
    iterations: int

    def squares(self) -> Tensor:
        """Return dᵀ(u + r) = dᵀSd + 2dᵀr, the lower end of uᵀS⁻¹u."""
        return (self.solution * (self.solution + 2 * self.left)).sum(0) + self.seen.square().sum(0)
