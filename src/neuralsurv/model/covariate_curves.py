r"""Curved effects of single covariates: a hidden layer whose units respond to one covariate near a place.

.. math:: f(x) = \sum_j f_j(u_j), \qquad \mathrm{cov}(f_j(u), f_j(u')) = a_j^2\,e^{-|u-u'|} + b_j^2\,m(|u-u'|)

with :math:`u_j` the normal score of the j-th covariate: the standard normal quantile at its rank among the training
rows, which for a normal covariate is the covariate itself. The first kernel is rough: its functions may jump, as
effects with a threshold do. The second, a Matérn kernel of order 5/2, is smooth. Both are spanned by units at a few
centres, and the columns are those combinations of all units that vary most over the training rows, with the amplitudes
:math:`a_j, b_j` in them: independent weights of variance :math:`s^2` stand for a random function of mean variance
:math:`s^2`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from neuralsurv.model.neighbourhoods import rank_of
from neuralsurv.solvers.rows import CACHE_NUMBERS, row_slices

# Distance over which smooth functions change, in normal scores; rough ones change over 1.
_SMOOTH_LENGTH = 1.5
# Ranks lie between these, so that scores are finite.
_LEAST_RANK = 1e-6
# Kernels, and so units at each centre.
KERNELS = 2


@dataclass(frozen=True)
class CovariateCurves:
    """Units of single covariates and the combinations of them that are used.

    Attributes
    ----------
    which : Tensor of shape (k,)
        The covariates with a curve, as places among all of them.
    values, ranks : Tensor of shape (k, q)
        Their values, not falling, and the ranks of these among the training rows, as in `Neighbourhoods`.
    centres : Tensor of shape (k, c)
        Normal scores that the units of each are centred at.
    mix : Tensor of shape (2kc, r)
        The combinations: first the rough units of all covariates, then the smooth ones.
    mean : Tensor of shape (r,)
        Their means over the training rows, which are taken off.

    Examples
    --------
    >>> import torch
    >>> from neuralsurv.model.covariate_curves import CovariateCurves
    >>> half, one = torch.tensor([[0.0, 1.0]], dtype=torch.float64), torch.ones(1, 1, dtype=torch.float64)
    >>> mix = torch.tensor([[1.0], [0.0]], dtype=torch.float64)  # the rough unit alone
    >>> curves = CovariateCurves(torch.tensor([0]), half, half, 0 * one, mix, 0 * one[0])
    >>> curves.columns(torch.tensor([[0.5]], dtype=torch.float64)).tolist()
    [[1.0]]
    """

    which: Tensor
    values: Tensor
    ranks: Tensor
    centres: Tensor
    mix: Tensor
    mean: Tensor

    @property
    def size(self) -> int:
        """Number of columns r."""
        return self.mix.shape[1]

    def columns(self, x: Tensor) -> Tensor:
        """Return the columns of n rows of covariates, shape (n, r)."""
        out = x.new_empty(len(x), self.size)
        for part in row_slices(len(x), len(self.mix), CACHE_NUMBERS):
            scores = normal_scores(self.values, self.ranks, x[part][:, self.which])
            out[part] = units(scores, self.centres) @ self.mix - self.mean
        return out


def normal_scores(values: Tensor, ranks: Tensor, x: Tensor) -> Tensor:
    """Return the normal scores of n rows, shape (n, k); `values` and `ranks`, shape (k, q), are as above."""
    scores: Tensor = torch.special.ndtri(rank_of(values, ranks, x).clamp(_LEAST_RANK, 1 - _LEAST_RANK))
    return scores


def units(scores: Tensor, centres: Tensor) -> Tensor:
    """Return rough and smooth units, shape (n, 2kc), for scores (n, k) and the centres (k, c) of each covariate."""
    apart = (scores[:, :, None] - centres).abs().reshape(len(scores), -1)
    near = apart * (math.sqrt(5) / _SMOOTH_LENGTH)
    return torch.cat([torch.exp(-apart), (1 + near + near.square() / 3) * torch.exp(-near)], 1)
