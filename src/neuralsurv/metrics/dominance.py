"""Dominance sums in O(n log n): the weight of the rows that come early in one order and low in another."""

from __future__ import annotations

import numpy as np


def dominance_sums(rank: np.ndarray, weight: np.ndarray, prefix: np.ndarray, limit: np.ndarray) -> np.ndarray:
    """Return, for each query, the total weight of the rows among the first `prefix` whose rank is below `limit`.

    Ranks start at 0 and, like the weights, are in the order that `prefix` counts in.

    Notes
    -----
    Ranks are taken apart bit by bit from the highest, everything with a 0 moved before everything with a 1 (a wavelet
    matrix). A query follows its limit's bits: where that is 1, what has a 0 in its range is below the limit. There are
    log2(n) rounds of a few array operations over all rows and all queries at once.

    Examples
    --------
    >>> import numpy as np
    >>> rank, weight = np.array([2, 0, 1, 3]), np.ones(4)
    >>> dominance_sums(rank, weight, prefix=np.array([2, 4]), limit=np.array([2, 3])).tolist()
    [1.0, 3.0]
    """
    top = max(int(rank.max(initial=0)), int(limit.max(initial=0)))
    low, high = np.zeros_like(prefix), prefix
    total = np.zeros(len(prefix))
    for bit in range(top.bit_length() - 1, -1, -1):
        is_zero = (rank >> bit) & 1 == 0
        zeros = np.concatenate([[0], np.cumsum(is_zero)])
        zero_weight = np.concatenate([[0.0], np.cumsum(np.where(is_zero, weight, 0.0))])
        zeros_low, zeros_high = zeros[low], zeros[high]
        ones = (limit >> bit) & 1 == 1
        total += np.where(ones, zero_weight[high] - zero_weight[low], 0.0)
        low = np.where(ones, zeros[-1] + low - zeros_low, zeros_low)
        high = np.where(ones, zeros[-1] + high - zeros_high, zeros_high)
        order = np.concatenate([np.flatnonzero(is_zero), np.flatnonzero(~is_zero)])
        rank, weight = rank[order], weight[order]
    return total
