r"""Pareto-smoothed importance weights, and the shape of their tail as a diagnostic (Vehtari et al. 2024).

The largest weights are replaced by the expected order statistics of a generalised Pareto distribution that is fitted to
them (Zhang and Stephens 2009). Its shape k says how far the weights can be trusted: the mean of the weights converges
fast for k below 0.5, usefully up to 0.7, and does not exist above 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

# Fewer weights than this have no tail to look at.
_FEWEST_IN_TAIL = 5
# A weak prior of the shape: this many pseudo-observations with a shape of one half.
_PRIOR_WEIGHTS = 10
# Log weights that differ by less than this differ by rounding alone: they are even, and there is no tail.
_EVEN = 1e-10


@dataclass(frozen=True)
class Smoothed:
    """Smoothed weights."""

    weights: np.ndarray  # they add up to 1, shape (S,)
    k_hat: float  # shape of the tail; infinite where too few weights are of any size to tell

    @property
    def effective(self) -> float:
        """The number of equally weighted draws that would be worth as much."""
        return float(1 / np.square(self.weights).sum())


def smooth_weights(log_weights: np.ndarray) -> Smoothed:
    """Smooth importance weights, given by their logarithms (S,).

    Examples
    --------
    >>> import numpy as np
    >>> from neuralsurv.inference.check.pareto import smooth_weights
    >>> even = smooth_weights(1e-3 * np.random.default_rng(0).standard_normal(1000))
    >>> even.k_hat < 0.5, round(even.effective)
    (True, 1000)
    """
    values = log_weights - log_weights.max()
    count = len(values)
    if values.min() > -_EVEN:
        return Smoothed(np.full(count, 1 / count), math.inf)
    tail = math.ceil(min(count / 5, 3 * math.sqrt(count)))
    order = np.argsort(values, kind="stable")
    largest = order[count - tail :]
    # Weights that are 0 in floating point are no part of a tail.
    cutoff = max(float(values[order[count - tail - 1]]), math.log(np.finfo(np.float64).tiny))
    largest = largest[values[largest] > cutoff]
    k_hat = math.inf
    if len(largest) >= _FEWEST_IN_TAIL:
        threshold = math.exp(cutoff)
        k_hat, sigma = fit_pareto(np.exp(values[largest]) - threshold)
        if math.isfinite(k_hat):
            place = (np.arange(len(largest)) + 0.5) / len(largest)
            with np.errstate(over="ignore"):
                lengths = -np.log1p(-place) if k_hat == 0 else np.expm1(-k_hat * np.log1p(-place)) / k_hat
                excess = lengths * sigma
            # No smoothed weight exceeds the largest raw one.
            values[largest] = np.minimum(np.log(excess + threshold), 0)
    weights = np.exp(values - values.max())
    return Smoothed(weights / weights.sum(), k_hat)


def fit_pareto(excess: np.ndarray) -> tuple[float, float]:
    """Return shape and scale of a generalised Pareto distribution for sorted, positive excesses.

    With b = −k/σ the likelihood has a profile in b alone; b is averaged over a grid with weights by that profile, which
    needs no iteration and never fails.
    """
    count = len(excess)
    grid = 30 + int(math.sqrt(count))
    quarter = excess[int(count / 4 + 0.5) - 1]
    b = 1 / excess[-1] + (1 - np.sqrt(grid / (np.arange(1, grid + 1) - 0.5))) / (3 * quarter)
    k = np.log1p(-b[:, None] * excess).mean(1)
    profile = count * (np.log(-b / k) - k - 1)
    share = np.exp(profile - profile.max())
    b_mean = float(b @ share / share.sum())
    shape = float(np.log1p(-b_mean * excess).mean())
    sigma = -shape / b_mean
    return (count * shape + _PRIOR_WEIGHTS * 0.5) / (count + _PRIOR_WEIGHTS), sigma
