"""The choice of the directions in which the posterior of a large cohort is computed."""

from __future__ import annotations

import torch
from torch import Tensor

from neuralsurv.inference.stream.kept_directions import KeptDirections
from neuralsurv.model.prior import GroupedPrior
from neuralsurv.solvers.lowrank import low_rank_solver
from neuralsurv.solvers.rows import Rows

# Up to this many weights all directions are kept.
KEEP_ALL = 300
# Information of the tail that may be given up at scale 1 in the rows that the directions are chosen by, in nats.
_INFORMATION_TOLERANCE = 1e-3


def choose_directions(
    prior: GroupedPrior, leading: int, rows: Rows, importance: Tensor, mode: Tensor, most: int, keep_all: int = KEEP_ALL
) -> KeptDirections:
    """Keep all weights if they are few; else the leading ones and the directions of the tail that carry information.

    The weights after the leading ones, those of the first layer, must be one group of the prior. `importance`, shape
    (P,), approximates the curvatures at the points of `rows`. The direction of the mode itself, where the network is
    linearised, is always kept: a mean that cannot be as large as the mode would lose what was learned.
    """
    size = len(prior.unit)
    if size <= keep_all or leading >= size:
        return KeptDirections.all(prior)
    tail = rows.split()[1]
    unit = prior.unit[leading:]
    shape = torch.ones_like(prior.unit)
    shape[leading:] = 1 / (1 + tail.squares().transposed_times(importance) / unit)
    width = (unit / shape[leading:]).contiguous()
    chosen = low_rank_solver(tail, width, importance, tolerance=_INFORMATION_TOLERANCE, most=most).basis
    own = mode[leading:, None] * width[:, None].sqrt()
    inner = torch.cat([own, chosen], 1) if bool(own.any()) else chosen
    orthonormal, triangle = torch.linalg.qr(inner)
    independent = triangle.diagonal().abs() > 1e-8 * triangle.diagonal().abs().max()
    kept = orthonormal[:, independent]
    basis = prior.unit.new_zeros(size, leading + kept.shape[1])
    basis[:leading, :leading] = torch.eye(leading, dtype=basis.dtype)
    basis[leading:, leading:] = kept
    return KeptDirections(prior, basis, leading, shape)
