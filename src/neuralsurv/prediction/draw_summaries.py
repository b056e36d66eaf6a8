"""Summaries over draws, some of which may be infinite: mean, standard deviation, quantiles, share of infinite draws."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np


def spread(block: np.ndarray) -> np.ndarray:
    """Return the standard deviation over the draws; infinite where some draws are."""
    infinite = np.isinf(block).any(axis=0)
    finite = np.where(infinite, 0.0, block)
    # Moving the exponents changes no digit, and keeps squares of huge and of tiny numbers in range.
    exponent = np.frexp(np.abs(finite).max(axis=0, initial=0.0))[1]
    return np.asarray(np.where(infinite, np.inf, np.ldexp(np.ldexp(finite, -exponent).std(axis=0), exponent)))


def quantile(block: np.ndarray, probability: float) -> np.ndarray:
    """Return a quantile over the draws; between a finite and an infinite draw, the finite one."""
    infinite = np.isinf(block).any(axis=0)
    if not infinite.any():
        return np.asarray(np.quantile(block, probability, axis=0))
    result = np.quantile(np.where(infinite, 0.0, block), probability, axis=0)
    draws = block[:, infinite]
    unreached = np.isinf(np.quantile(draws, probability, axis=0, method="lower"))
    # The next draw after the largest finite one is infinite; with that one in its place the mean of both is finite.
    largest = np.max(draws, axis=0, initial=-np.inf, where=np.isfinite(draws))
    capped = np.quantile(np.minimum(draws, np.where(np.isfinite(largest), largest, 0.0)), probability, axis=0)
    result[infinite] = np.where(unreached, np.inf, capped)
    return np.asarray(result)


# Summaries by name: from draws of shape (S, n, k) to values of shape (n, k).
SUMMARIES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "mean": lambda block: np.asarray(block.mean(axis=0)),
    "std": spread,
    "unreached": lambda block: np.asarray(np.isinf(block).mean(axis=0)),
}
