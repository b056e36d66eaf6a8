r"""Rows reduced once, solved for many scales of the prior.

Where the prior of a group of weights is known up to a scale s, whitened rows are s times those at scale 1, in the same
basis. The reduction to few directions is therefore done once, and another scale costs a multiplication of columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from neuralsurv.solvers.lowrank import LowRankSolver, low_rank_solver, sampled_solver
from neuralsurv.solvers.rows import Rows


@dataclass(frozen=True)
class Block:
    """Neighbouring weights, and the directions of the basis that lie within them."""

    start: int
    stop: int
    first: int
    last: int
    # Whether each weight is a direction of its own; else the weights, which then share one scale, were reduced.
    whole: bool


@dataclass(frozen=True)
class GroupedSolver:
    """A low-rank solver for any scales of the prior."""

    unit: Tensor  # prior precisions at scale 1, shape (m,)
    basis: Tensor  # orthonormal directions, each within one block, shape (m, r)
    reduced: Tensor  # rows, whitened at scale 1, in that basis, shape (P, r)
    remainder: Tensor  # prior variance of each block across the basis, at scale 1, shape (P, B)
    blocks: tuple[Block, ...]  # in the order of their weights
    name: ClassVar[str] = "low-rank"
    reason: ClassVar[str] = "rows are reduced once for all scales of the prior"

    @property
    def rank(self) -> int:
        """Number of directions that are kept."""
        return self.basis.shape[1]

    @property
    def numbers(self) -> int:
        """How many numbers the largest matrix of a step holds: the reduced rows."""
        return self.reduced.numel()

    def at(self, multipliers: Tensor) -> LowRankSolver:
        """Return the solver for scales (m,), which must be one number over each block that was reduced."""
        columns = torch.cat(
            [
                multipliers[block.start : block.stop]
                if block.whole
                else multipliers[block.start].expand(block.last - block.first)
                for block in self.blocks
            ]
        )
        squares = torch.stack([multipliers[block.start].square() for block in self.blocks])
        return LowRankSolver(self.unit / multipliers**2, self.basis, self.reduced * columns, self.remainder @ squares)

    def directions(self, start: int, stop: int) -> slice:
        """Return the directions of weights that are part of a block of whole weights, or are a block themselves."""
        for block in self.blocks:
            if block.whole and block.start <= start and stop <= block.stop:
                return slice(block.first + start - block.start, block.first + stop - block.start)
            if (block.start, block.stop) == (start, stop):
                return slice(block.first, block.last)
        raise ValueError(f"no block has the weights {start} to {stop}")


def grouped_solver(
    parts: Sequence[tuple[Rows, bool]], unit: Tensor, importance: Tensor, *, tolerance: float, most: int
) -> GroupedSolver:
    """Keep some weights as they are and reduce others to the directions that carry information.

    The parts are rows of neighbouring weights, in their order, each with whether to keep these as directions; `unit`
    has the prior precisions at scale 1, and `importance`, shape (P,), is about the curvatures that are to come. In each
    reduced part `tolerance` nats at scale 1 may be given up, and `most` directions are kept.
    """
    blocks: list[Block] = []
    bases, reduced, remainders = [], [], []
    start = first = 0
    for rows, whole in parts:
        stop = start + rows.shape[1]
        precision = unit[start:stop]
        if whole:
            bases.append(torch.eye(stop - start, dtype=unit.dtype))
            reduced.append(rows.dense() / precision.sqrt())
            remainders.append(unit.new_zeros(rows.shape[0]))
        else:
            part = (
                sampled_solver(rows, precision, importance, most)
                if rows.recomputed
                else low_rank_solver(rows, precision, importance, tolerance=tolerance, most=most)
            )
            bases.append(part.basis)
            reduced.append(part.reduced)
            remainders.append(part.remainder)
        last = first + reduced[-1].shape[1]
        blocks.append(Block(start, stop, first, last, whole))
        start, first = stop, last
    basis = unit.new_zeros(len(unit), first)
    for block, part_basis in zip(blocks, bases, strict=True):
        basis[block.start : block.stop, block.first : block.last] = part_basis
    return GroupedSolver(unit, basis, torch.cat(reduced, 1), torch.stack(remainders, 1), tuple(blocks))
