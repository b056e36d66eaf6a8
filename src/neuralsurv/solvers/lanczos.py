"""Lanczos vectors: directions that hold the information, and the log-determinant with random probes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

PROBES = 32
_MOST_STEPS = 200


def complement(candidates: Tensor, basis: Tensor, generator: torch.Generator) -> Tensor:
    """Return orthonormal columns across the basis, in the span of the candidates as far as these reach."""
    columns = candidates
    for attempt in range(8):
        columns, triangle = torch.linalg.qr(torch.addmm(columns, basis, basis.T @ columns, alpha=-1))
        length = triangle.diagonal().abs()
        # The first pass takes out the basis, a later one says whether rounding had left some of it.
        if attempt > 0 and bool((length > 0.5).all()):
            break
        if attempt > 0 and bool((length < 1e-12).any()):
            # A candidate in the span of the others leaves room for any direction.
            lost = length < 1e-12
            noise = torch.randn(len(columns), int(lost.sum()), generator=generator, dtype=columns.dtype)
            columns[:, lost] = noise / len(columns) ** 0.5
    return columns


@dataclass(frozen=True)
class Directions:
    """An orthonormal basis Q, a precision in it, and the information that is left out.

    Attributes
    ----------
    basis : Tensor of shape (m, k)
        Q.
    factor : Tensor of shape (k, k)
        Lower Cholesky factor of the precision in the basis; across it the precision is I.
    left : float
        What is missing from tr H, in nats.
    complete : bool
        Whether that is no more than was allowed, but for rounding.
    """

    basis: Tensor
    factor: Tensor
    left: float
    complete: bool

    def whiten(self, vectors: Tensor) -> Tensor:
        """Return W⁻¹·vectors, where W Wᵀ is the precision."""
        inside = self.basis.T @ vectors
        solved = torch.linalg.solve_triangular(self.factor, inside, upper=False)
        return torch.addmm(vectors, self.basis, solved - inside)

    def unwhiten(self, vectors: Tensor) -> Tensor:
        """Return W⁻ᵀ·vectors."""
        inside = self.basis.T @ vectors
        solved = torch.linalg.solve_triangular(self.factor.T, inside, upper=True)
        return torch.addmm(vectors, self.basis, solved - inside)


@dataclass(frozen=True)
class LogDeterminant:
    """Log-determinant of S, with its error.

    Attributes
    ----------
    value : float
        The log-determinant.
    bound : float
        Where the directions suffice, the truth lies between `value` and `value + bound`; else 0.
    standard_error : float
        Where they do not, the standard error of the random probes; else 0.
    """

    value: float
    bound: float
    standard_error: float


def stochastic_log_determinant(
    apply: Callable[[Tensor], Tensor], size: int, generator: torch.Generator
) -> tuple[float, float]:
    """Estimate log det K by Lanczos quadrature of random probes; return it with its standard error.

    The nearer K is to a diagonal matrix, the smaller the error; for a diagonal one there is none.
    """
    signs = torch.randint(0, 2, (size, PROBES), generator=generator).to(torch.float64) * 2 - 1
    current, previous = signs / size**0.5, torch.zeros_like(signs)
    diagonal: list[Tensor] = []
    beside: list[Tensor] = []
    values = signs.new_zeros(PROBES)
    for step in range(min(size, _MOST_STEPS)):
        image = apply(current)
        diagonal.append((image * current).sum(0))
        image = image - diagonal[-1] * current - (beside[-1] * previous if beside else 0)
        matrix = torch.diag_embed(torch.stack(diagonal, 1))
        if beside:
            off = torch.diag_embed(torch.stack(beside, 1), 1)
            matrix = matrix + off + off.transpose(1, 2)
        nodes, vectors = torch.linalg.eigh(matrix)
        # A probe whose Krylov space is exhausted goes on with nodes of no weight, which may be anything.
        logarithms = nodes.clamp_min(torch.finfo(nodes.dtype).tiny).log()
        before, values = values, size * (vectors[:, 0, :].square() * logarithms).sum(1)
        beside.append(image.square().sum(0).sqrt())
        still = (values - before).abs() <= 1e-8 * (1 + values.abs())
        if step > 0 and bool((still | (beside[-1] < 1e-12)).all()):
            break
        previous, current = current, image / beside[-1].clamp_min(torch.finfo(image.dtype).tiny)
    return float(values.mean()), float(values.std()) / PROBES**0.5
