"""Calibration at one time, in groups of people with similar predictions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import chdtrc

from neuralsurv.arguments import whole_number
from neuralsurv.errors import InputError
from neuralsurv.metrics.calibration import check_probabilities
from neuralsurv.metrics.curves import check_outcome
from neuralsurv.metrics.kaplan_meier import survival_curve
from neuralsurv.names import counted


@dataclass(frozen=True)
class OneCalibration:
    """Result of :func:`one_calibration`.

    Attributes
    ----------
    statistic : float
        Sum over groups of (observed − expected)² / variance.
    p_value : float
        Of the χ² distribution with `degrees_of_freedom`.
    degrees_of_freedom : int
        Number of groups, or one less with binomial variances.
    observed, expected : ndarray of shape (G,)
        Kaplan–Meier and mean predicted probability of the event, from the highest predicted risk to the lowest.
    size : int ndarray of shape (G,)
        Rows in each group.
    """

    statistic: float
    p_value: float
    degrees_of_freedom: int
    observed: np.ndarray
    expected: np.ndarray
    size: np.ndarray


def one_calibration(
    time: Any, event: Any, survival_at: Any, at: float, *, bins: int = 10, variance: str = "greenwood"
) -> OneCalibration:
    """Test calibration at one time, in groups of people with similar predictions.

    Rows are sorted by predicted risk 1 − S(at|x) and cut into `bins` groups as equal in size as can be; rows with
    equal predictions stay together, in the group of the first, so that the result does not depend on their order, and
    groups that are left empty are dropped. In each group the Kaplan–Meier probability of the event by `at` is compared
    with the mean predicted one: Σ (observed − expected)² / variance.

    Parameters
    ----------
    time, event : array-like of shape (n,)
        Observed times and event flags.
    survival_at : array-like of shape (n,)
        Predicted survival at the time `at`.
    at : float
        The time.
    bins : int
        Number of groups, at least 2.
    variance : {"greenwood", "binomial"}
        "greenwood": the variance of the Kaplan–Meier estimate, which grows with censoring; as many degrees of freedom
        as groups, which is right for predictions made without these rows. "binomial": p (1 − p) / rows with p the mean
        prediction, and one degree of freedom less, the test of D'Agostino and Nam; with censoring it rejects too often.

    Returns
    -------
    OneCalibration

    Raises
    ------
    InputError
        If in a group no row is followed up to `at`, or its variance is 0 (with "greenwood": nobody, or everybody, has
        the event by then): use fewer bins, or another time.

    Notes
    -----
    Both tests are approximations for many rows. Greenwood's variance is far too small in a group where nearly nobody
    or nearly everybody has the event by `at`: look at `observed` and `size` before the p-value.

    References
    ----------
    R. B. D'Agostino, B.-H. Nam (2003), Evaluation of the performance of survival analysis models, Handbook of
    Statistics 23. O. V. Demler, N. P. Paynter, N. R. Cook (2015), Tests of calibration and goodness-of-fit in the
    survival setting, Statistics in Medicine 34.

    Examples
    --------
    >>> from neuralsurv.metrics import one_calibration
    >>> predicted = [0.2, 0.3, 0.3, 0.4, 0.7, 0.8, 0.8, 0.9]
    >>> result = one_calibration([1, 2, 9, 3, 4, 9, 9, 9], [1, 1, 0, 1, 1, 0, 0, 0], predicted, at=5, bins=2)
    >>> result.observed.tolist(), round(result.p_value, 2)
    ([0.75, 0.25], 0.95)
    """
    outcome = check_outcome(time, event)
    chance = check_probabilities(survival_at, "survival_at")
    if len(chance) != len(outcome):
        raise InputError(f"survival_at has {counted(len(chance), 'value')} for {counted(len(outcome), 'row')}.")
    if not (np.ndim(at) == 0 and 0 < float(at) < np.inf):
        raise InputError(f"at={at!r} must be one finite time above 0.")
    if variance not in ("greenwood", "binomial"):
        raise InputError(f"variance={variance!r} is not known; use 'greenwood' or 'binomial'.")
    whole_number("bins", bins, least=2)
    groups = _risk_groups(chance, bins)
    curves = [survival_curve(outcome.select(rows)) for rows in groups]
    short = [curve for curve in curves if curve.last < at and curve.after(at) > 0]
    if short:
        raise InputError(
            f"in {len(short)} of the {len(groups)} groups no row is followed up to {at:g}, so that the observed "
            "probability is not defined; use fewer bins or an earlier time."
        )
    observed = np.array([1 - float(curve.after(at)) for curve in curves])
    expected = np.array([float((1 - chance[rows]).mean()) for rows in groups])
    size = np.array([len(rows) for rows in groups])
    if variance == "greenwood":
        spread = np.array([float(curve.variance(at)) for curve in curves])
        freedom = len(groups)
    else:
        spread = expected * (1 - expected) / size
        freedom = len(groups) - 1
    if (spread == 0).any() or freedom == 0:
        raise InputError(
            f"the variance is 0 in {int((spread == 0).sum())} of the {len(groups)} groups and {freedom} degrees of "
            "freedom are left, so that the test is not defined; use fewer bins or another time."
        )
    statistic = float(((observed - expected) ** 2 / spread).sum())
    return OneCalibration(statistic, float(chdtrc(freedom, statistic)), freedom, observed, expected, size)


def _risk_groups(chance: np.ndarray, bins: int) -> list[np.ndarray]:
    """Return the rows of each group, from the highest risk to the lowest."""
    order = np.argsort(chance, kind="stable")
    sizes = [len(part) for part in np.array_split(order, bins)]
    group = np.repeat(np.arange(bins), sizes)
    first_of_equals = np.searchsorted(chance[order], chance[order], side="left")
    group = group[first_of_equals]
    return [order[group == k] for k in range(bins) if (group == k).any()]
