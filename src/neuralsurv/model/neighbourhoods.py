r"""Units that respond to a neighbourhood: how close a row is to each of some training rows.

.. math:: k(x, x') = \exp\Bigl(-\sum_j w_j\,|u_j - u'_j|\Bigr)

with :math:`u_j` the rank of the j-th covariate among the training rows, scaled to variance 1, and a relevance
:math:`w_j` for each. Functions with this kernel may bend anywhere, in any combination of covariates, and are robust to
outliers; so do forests, whose average over random trees has a kernel of this kind. The columns are those combinations
of M such units that vary most over the training rows, so that independent weights of variance :math:`s^2` stand for a
random function of that kernel with mean variance :math:`s^2`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from neuralsurv.solvers.rows import CACHE_NUMBERS, row_slices

_UNIFORM_SPREAD = 1 / math.sqrt(12)


@dataclass(frozen=True)
class Neighbourhoods:
    """A layer of such units and the combinations of them that are used.

    Attributes
    ----------
    values, ranks : Tensor of shape (d, q)
        Values of each covariate, not falling, and their ranks among the training rows, between 0 and 1; linear between
        them, constant beyond.
    centres : Tensor of shape (M, d)
        Rank scores of the rows that the units are centred at.
    relevance : Tensor of shape (d,)
        w.
    mix : Tensor of shape (M, r)
        The combinations.
    mean : Tensor of shape (r,)
        Their means over the training rows, which are taken off.

    Examples
    --------
    >>> import torch
    >>> from neuralsurv.model.neighbourhoods import Neighbourhoods
    >>> half = torch.tensor([[0.0, 1.0]], dtype=torch.float64)
    >>> one = torch.ones(1, 1, dtype=torch.float64)
    >>> near = Neighbourhoods(half, half, 0 * one, one[0], one, 0 * one[0])
    >>> near.columns(torch.tensor([[0.5]], dtype=torch.float64)).tolist()
    [[1.0]]
    """

    values: Tensor
    ranks: Tensor
    centres: Tensor
    relevance: Tensor
    mix: Tensor
    mean: Tensor

    @property
    def size(self) -> int:
        """Number of columns r."""
        return self.mix.shape[1]

    def columns(self, x: Tensor) -> Tensor:
        """Return the columns of n rows of covariates, shape (n, r)."""
        out = x.new_empty(len(x), self.size)
        for part in row_slices(len(x), len(self.centres), CACHE_NUMBERS):
            scores = rank_scores(self.values, self.ranks, x[part])
            out[part] = proximity(scores, self.centres, self.relevance) @ self.mix - self.mean
        return out


def rank_scores(values: Tensor, ranks: Tensor, x: Tensor) -> Tensor:
    """Return the rank scores of n rows, shape (n, d): mean 0 and variance 1 over the training rows.

    `values` and `ranks`, shape (d, q), are those of :class:`Neighbourhoods`.
    """
    return (rank_of(values, ranks, x) - 0.5) / _UNIFORM_SPREAD


def rank_of(values: Tensor, ranks: Tensor, x: Tensor) -> Tensor:
    """Return the ranks of n rows among the training rows, between 0 and 1, shape (n, d)."""
    found = torch.empty_like(x)
    for j, (known, rank) in enumerate(zip(values, ranks, strict=True)):
        above = torch.searchsorted(known, x[:, j].contiguous()).clamp(1, len(known) - 1)
        low, high = known[above - 1], known[above]
        width = torch.where(high > low, high - low, torch.ones_like(low))
        share = torch.where(high > low, (x[:, j] - low) / width, torch.ones_like(low)).clamp(0, 1)
        found[:, j] = torch.lerp(rank[above - 1], rank[above], share)
    return found


def proximity(scores: Tensor, centres: Tensor, relevance: Tensor) -> Tensor:
    """Return k between rows and centres, shape (n, M), from their rank scores."""
    return torch.exp(-torch.cdist(scores * relevance, centres * relevance, p=1.0))
