r"""Contrasts between K causes of events.

What the causes have in common is estimated once; what sets cause k apart is :math:`\sum_j C_{kj} u_j`, with K - 1
independent u of variance s². :math:`CC^\top = \frac{K}{K-1}(I - 11^\top/K)`, so that every cause has a deviation of
variance s², all pairs of causes are treated alike, and no cause is a reference. A common part of variance c² beside it
makes the functions of two causes correlated by :math:`(c^2 - s^2/(K-1)) / (c^2 + s^2)`: equal where s = 0, independent
where :math:`c = s/\sqrt{K-1}`, opposite for two causes where c = 0. This is every covariance that treats the causes
alike.
"""

from __future__ import annotations

import torch
from torch import Tensor


def cause_contrasts(causes: int) -> Tensor:
    """Return C, shape (K, K - 1): Helmert contrasts, scaled.

    Examples
    --------
    >>> from neuralsurv.model.contrasts import cause_contrasts
    >>> cause_contrasts(2).T.tolist()
    [[1.0, -1.0]]
    """
    found = torch.zeros(causes, causes - 1, dtype=torch.float64)
    for j in range(causes - 1):
        found[: j + 1, j] = 1.0
        found[j + 1, j] = -(j + 1.0)
        # The squares of the column add up to (j + 1)(j + 2).
        found[:, j] *= (causes / ((causes - 1) * (j + 1) * (j + 2))) ** 0.5
    return found
