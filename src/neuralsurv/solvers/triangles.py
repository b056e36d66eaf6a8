"""Products of tall matrices of which only a triangle is needed: five eighths of the work of a full product.

Only the blocks on and below the diagonal are worked out, in blocks of columns, and rows are taken in blocks that stay
in a cache. Rows in single precision are multiplied in it, at less than half the cost; sums over blocks of rows are in
double precision whatever the rows are.
"""

from __future__ import annotations

from torch import Tensor

from neuralsurv.solvers.rows import CACHE_NUMBERS, row_slices

_COLUMNS = 128


def add_weighted_gram(matrix: Tensor, rows: Tensor, weight: Tensor) -> None:
    """Add rowsᵀ diag(weight) rows to the lower triangle of `matrix`; what is above the diagonal is left undefined.

    The root of a negative weight is NaN, and so is the result.
    """
    if 2 * int(weight.count_nonzero()) < len(weight):
        # Rows without weight are left out where that saves more than the copy costs.
        informed = weight.nonzero().squeeze(1)
        rows, weight = rows[informed], weight[informed]
    root = weight.sqrt()[:, None].to(rows.dtype)
    for part in row_slices(len(rows), rows.shape[1], CACHE_NUMBERS):
        scaled = rows[part] * root[part]
        for first in range(0, scaled.shape[1], _COLUMNS):
            stop = first + _COLUMNS
            left, right = scaled[:, first:].T, scaled[:, first:stop]
            if rows.dtype == matrix.dtype:
                matrix[first:, first:stop].addmm_(left, right)
            else:
                matrix[first:, first:stop] += left @ right


def mirrored(matrix: Tensor) -> Tensor:
    """Return the symmetric matrix whose lower triangle is that of `matrix`."""
    return matrix.tril() + matrix.tril(-1).T


def squared_lengths(rows: Tensor, lower: Tensor) -> Tensor:
    """Return the squared length of each row of rows·lowerᵀ, shape (P,), for a lower triangular (r, r) matrix."""
    total = lower.new_zeros(len(rows))
    lower = lower.to(rows.dtype)
    for part in row_slices(len(rows), rows.shape[1], CACHE_NUMBERS):
        for first in range(0, len(lower), _COLUMNS):
            stop = first + _COLUMNS
            total[part] += (rows[part, :stop] @ lower[first:stop, :stop].T).square_().sum(1)
    return total
