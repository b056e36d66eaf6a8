r"""Rows reduced once, solved for many scales of the prior.

Where the prior of a group of weights is known up to a scale s, whitened rows are s times those at scale 1, in the same
basis. The reduction to few directions is therefore done once, and another scale costs a multiplication of columns.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from neuralsurv.model.rows import Rows
from neuralsurv.solvers.lowrank import LowRankSolver, low_rank_solver


@dataclass(frozen=True)
class GroupedSolver:
    """What to make a low-rank solver of, for any scales.

    Attributes
    ----------
    unit : Tensor of shape (m,)
        Prior precisions at scale 1.
    basis : Tensor of shape (m, r)
        Orthonormal directions, each within the leading weights or within the tail.
    reduced : Tensor of shape (P, r)
        Rows, whitened at scale 1, in that basis.
    remainder : Tensor of shape (P,)
        Prior variance of the tail across the basis, at scale 1.
    leading : int
        The first so many weights and directions are kept as they are; those after them are the tail.
    """

    unit: Tensor
    basis: Tensor
    reduced: Tensor
    remainder: Tensor
    leading: int

    def at(self, multipliers: Tensor) -> LowRankSolver:
        """Return the solver for scales (m,), which must be one number over the whole tail."""
        tail = multipliers[self.leading :]
        last = tail[0] if len(tail) else multipliers.new_ones(())
        columns = torch.cat([multipliers[: self.leading], last.expand(self.basis.shape[1] - self.leading)])
        return LowRankSolver(
            self.unit / multipliers**2, self.basis, self.reduced * columns, self.remainder * last.square()
        )


def grouped_solver(
    lead: Tensor, tail: Rows | None, unit: Tensor, importance: Tensor, *, tolerance: float, most: int
) -> GroupedSolver:
    """Keep the leading weights as they are and reduce the tail to the directions that carry information.

    Parameters
    ----------
    lead : Tensor of shape (P, l)
        Rows of the leading weights.
    tail : Rows of shape (P, m − l) or None
        Rows of the weights after them.
    unit : Tensor of shape (m,)
        Prior precisions at scale 1.
    importance : Tensor of shape (P,)
        About the curvatures that are to come.
    tolerance : float
        Information of the tail that may be given up at scale 1, in nats.
    most : int
        Largest number of directions of the tail.
    """
    leading = lead.shape[1]
    reduced = lead / unit[:leading].sqrt()
    basis = torch.eye(leading, dtype=unit.dtype)
    if tail is None:
        return GroupedSolver(unit, basis, reduced, unit.new_zeros(len(lead)), leading)
    part = low_rank_solver(tail, unit[leading:], importance, tolerance=tolerance, most=most)
    both = unit.new_zeros(len(unit), leading + part.rank)
    both[:leading, :leading] = basis
    both[leading:, leading:] = part.basis
    return GroupedSolver(
        unit,
        both,
        torch.cat([reduced, part.reduced], 1),
        part.remainder,
        leading,
    )
