"""Are ranks uniform? Simultaneous bands for their distribution function (Säilynoja, Bürkner and Vehtari 2022)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy.stats import binom, ks_2samp

SIMULATIONS = 4000


def tails(counts: np.ndarray, replicates: int, draws: int) -> np.ndarray:
    """Return the smaller binomial tail of each count of ranks up to k = 0 … draws − 1; counts is (…, draws)."""
    share = np.arange(1, draws + 1) / (draws + 1)
    below, above = binom.cdf(counts, replicates, share), binom.sf(counts - 1, replicates, share)
    return np.minimum(below, above)


def counts_of(ranks: np.ndarray, draws: int) -> np.ndarray:
    """Return how many ranks (…, R) are at most k, for k = 0 … draws − 1, shape (…, draws)."""
    flat = ranks.reshape(-1, ranks.shape[-1])
    tables = np.stack([np.bincount(one, minlength=draws + 1)[:draws] for one in flat])
    return np.cumsum(tables, axis=1).reshape(*ranks.shape[:-1], draws)


@cache
def critical_tail(replicates: int, draws: int, level: float) -> float:
    """Return the tail that the smallest of all k undercuts with probability `level` if ranks are uniform."""
    rng = np.random.default_rng(0)
    ranks = rng.integers(0, draws + 1, (SIMULATIONS, replicates))
    smallest = tails(counts_of(ranks, draws), replicates, draws).min(axis=1)
    return float(np.quantile(smallest, level))


@dataclass(frozen=True)
class Verdict:
    """What the ranks of one quantity say.

    Attributes
    ----------
    share, difference, low, high : ndarray of shape (draws,)
        Where the distribution function is looked at; it minus that of uniform ranks; the band of that difference.
    uniform : bool
        Whether it stays within the band everywhere.
    spread : float
        Standard deviation of the ranks over that of uniform ones: above 1 where a posterior is too narrow.
    asymmetry : float
        p-value of the variational form: ranks counted from below and from above have one law where there is no bias.
    """

    share: np.ndarray
    difference: np.ndarray
    low: np.ndarray
    high: np.ndarray
    uniform: bool
    spread: float
    asymmetry: float


def judge(ranks: np.ndarray, draws: int, level: float) -> Verdict:
    """Judge ranks (R,) among `draws` draws; a right posterior fails with probability `level`."""
    replicates = len(ranks)
    share = np.arange(1, draws + 1) / (draws + 1)
    counts = counts_of(ranks, draws)
    tail = critical_tail(replicates, draws, level)
    return Verdict(
        share=share,
        difference=counts / replicates - share,
        low=binom.ppf(tail, replicates, share) / replicates - share,
        high=binom.isf(tail, replicates, share) / replicates - share,
        uniform=bool(tails(counts, replicates, draws).min() >= tail),
        spread=float(ranks.std() / np.sqrt(((draws + 1) ** 2 - 1) / 12)),
        asymmetry=float(ks_2samp(ranks, draws - ranks).pvalue),
    )
