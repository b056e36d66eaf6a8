"""A low-rank solver from one pass over rows that are too large to hold.

The directions are spanned by some of the rows themselves, spread evenly over the importance. Picking them one after
another, each where most is left to know (as `low_rank_solver` does otherwise), takes a pass over all rows for each.
"""

from __future__ import annotations

import torch
from torch import Tensor

from neuralsurv.solvers.lowrank import LowRankSolver
from neuralsurv.solvers.primal import eigenvectors
from neuralsurv.solvers.rows import Rows, row_slices

# Directions of less than this share of the largest variance are rounding, and would not come out orthonormal.
_LEAST_SHARE = 1e-9


def spread_sample(importance: Tensor, count: int) -> Tensor:
    """Return `count` places, or fewer, that cut the importance (P,) into equal shares; always the same ones.

    Examples
    --------
    >>> import torch
    >>> from neuralsurv.solvers.sampled import spread_sample
    >>> spread_sample(torch.tensor([0.0, 1.0, 1.0, 2.0]), 2).tolist()
    [1, 3]
    """
    total = importance.cumsum(0)
    levels = (torch.arange(count, dtype=importance.dtype) + 0.5) / count * total[-1]
    places: Tensor = torch.unique(torch.searchsorted(total, levels).clamp_max(len(importance) - 1))
    return places


def sampled_solver(rows: Rows, precision: Tensor, importance: Tensor, most: int) -> LowRankSolver:
    """Reduce the rows to at most `most` directions of a sample; `importance` is about the curvatures to come."""
    root = precision.sqrt()
    chosen = rows.take(spread_sample(importance, most)).dense() / root
    values, vectors = eigenvectors(chosen @ chosen.T)
    kept = values > _LEAST_SHARE * values[-1]
    basis = chosen.T @ (vectors[:, kept] / values[kept].sqrt())
    del chosen
    reduced = precision.new_empty(rows.shape[0], basis.shape[1])
    remainder = precision.new_empty(rows.shape[0])
    for part in row_slices(*rows.shape):
        whitened = rows.take(part).dense() / root
        torch.mm(whitened, basis, out=reduced[part])
        remainder[part] = (whitened.square().sum(1) - reduced[part].square().sum(1)).clamp_min(0)
    return LowRankSolver(precision, basis, reduced, remainder)
