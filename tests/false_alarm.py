"""How far a random result may lie from what is claimed.

One false-alarm rate holds for every random test: with a fresh seed, a test of a true claim would fail with about this
probability. The seeds are fixed, so a test that passes keeps passing; a tolerance is never chosen by looking at a run.
"""

from scipy.stats import norm

FALSE_ALARM = 2e-5


def z_bound(number_of_comparisons: int = 1) -> float:
    """Return the two-sided bound on standard normal scores, the rate shared out over the comparisons (Bonferroni)."""
    return float(norm.isf(FALSE_ALARM / (2 * number_of_comparisons)))
