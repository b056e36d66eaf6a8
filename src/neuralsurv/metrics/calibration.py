"""Calibration, of whole curves or at one time: whether events happen as often as the predicted probabilities say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import chdtrc

from neuralsurv.arguments import whole_number
from neuralsurv.data.row_values import rows_phrase
from neuralsurv.errors import InputError
from neuralsurv.metrics.curves import TOLERANCE, Curves, as_floats, check_outcome
from neuralsurv.metrics.kaplan_meier import survival_curve
from neuralsurv.names import counted


@dataclass(frozen=True)
class DCalibration:
    """Result of :func:`d_calibration`.

    Attributes
    ----------
    statistic : float
        χ² of the histogram against equal bins.
    p_value : float
        Of the χ² distribution with one degree of freedom less than there are bins.
    histogram : ndarray of shape (bins,)
        Weight in each bin, from survival 0 (first) to 1 (last).
    """

    statistic: float
    p_value: float
    histogram: np.ndarray


def d_calibration(event: Any, survival_at_time: Any, *, bins: int = 10, weight: Any = None) -> DCalibration:
    """Test whether the predicted survival at the event times is uniform, as it is for the true curves.

    Each event counts 1 in the bin of its survival probability; bin k of B is [k/B, (k+1)/B), the last one closed. A
    row censored at survival c is known only to have its event at a lower one, which under calibration is uniform on
    [0, c]: it is spread over the bins below in that proportion, (c − k/B) / c in its own bin and 1 / (B c) in each
    lower one. A row censored at c = 0 counts 1 in the lowest bin.

    Parameters
    ----------
    event : array-like of shape (n,)
        Event flags.
    survival_at_time : array-like of shape (n,)
        Each row's survival at its own observed time; see :func:`survival_at`.
    bins : int
        Number of bins, at least 2.
    weight : array-like of shape (n,), optional
        Row weights, read as counts of rows: the statistic grows with their sum.

    Returns
    -------
    DCalibration

    Raises
    ------
    InputError
        If a probability is NaN or outside [0, 1].

    Notes
    -----
    The p-value treats the spread of a censored row as if it had been seen, so with much censoring it is too large, and
    a test of few rows has little power: with 25 rows and 10 bins next to nothing is rejected.

    References
    ----------
    H. Haider, B. Hoehn, S. Davis, R. Greiner (2020), Effective ways to build and evaluate individual survival
    distributions, Journal of Machine Learning Research 21.

    Examples
    --------
    >>> from neuralsurv.metrics import d_calibration
    >>> result = d_calibration([1, 1, 1, 0], [0.1, 0.3, 0.9, 0.8], bins=2)
    >>> result.histogram.tolist(), round(result.p_value, 2)
    ([2.625, 1.375], 0.53)
    """
    chance = check_probabilities(survival_at_time, "survival_at_time")
    outcome = check_outcome(np.ones(len(chance)), event, None, weight, names=("survival_at_time", "event", "weight"))
    whole_number("bins", bins, least=2)
    position = np.searchsorted(np.arange(1, bins) / bins, chance, side="right")
    histogram = np.bincount(position[outcome.event], weights=outcome.weight[outcome.event], minlength=bins).astype(
        np.float64
    )
    censored_at_zero = ~outcome.event & (chance == 0)
    histogram[0] += outcome.weight[censored_at_zero].sum()
    spread = ~outcome.event & (chance > 0)
    height = outcome.weight[spread] / chance[spread]
    inside = height * (chance[spread] - position[spread] / bins)
    histogram += np.bincount(position[spread], weights=inside, minlength=bins)
    # Every bin below that of a censored row gets height / bins of it.
    per_bin = np.bincount(position[spread], weights=height / bins, minlength=bins)
    histogram[:-1] += np.cumsum(per_bin[::-1])[::-1][1:]
    expected = outcome.weight.sum() / bins
    statistic = float(((histogram - expected) ** 2).sum() / expected)
    return DCalibration(statistic, float(chdtrc(bins - 1, statistic)), histogram)


def km_calibration(
    time: Any, event: Any, survival: Any, times: Any, *, weight: Any = None, rule: str = "exact"
) -> float:
    """Return the mean squared distance between the mean predicted curve and the Kaplan–Meier curve of the same rows.

    1/τ ∫ (mean S(t|x) − KM(t))² dt from 0 to τ, the last event time: 0 is perfect. Kaplan–Meier is a step function and
    the mean curve is linear between the times of the grid, and with ``rule="exact"`` they are integrated as that.

    Parameters
    ----------
    time, event : array-like of shape (n,)
        Observed times and event flags.
    survival : array-like of shape (n, T)
        Survival at `times`.
    times : array-like of shape (T,)
        The grid, strictly increasing, up to the last event time or further.
    weight : array-like of shape (n,), optional
        Row weights, for both curves.
    rule : {"exact", "trapezoid"}
        "trapezoid" takes the squared distance at 0 and at the event times only, and joins these by straight lines, as
        SurvivalEVAL does.

    Returns
    -------
    float

    Raises
    ------
    InputError
        If no row has an event, or the grid ends before the last event.

    References
    ----------
    P. Chapfuwa et al. (2020), Calibration and uncertainty in neural time-to-event modeling, IEEE Transactions on
    Neural Networks and Learning Systems. S. Qi et al. (2023), SurvivalEVAL: a comprehensive open-source Python package
    for evaluating individual survival distributions.

    Examples
    --------
    >>> from neuralsurv.metrics import km_calibration
    >>> round(km_calibration([1, 2], [1, 1], [[0.5, 0.0], [0.5, 0.0]], times=[1, 2]), 4)
    0.0833
    """
    if rule not in ("exact", "trapezoid"):
        raise InputError(f"rule={rule!r} is not known; use 'exact' or 'trapezoid'.")
    outcome = check_outcome(time, event, None, weight)
    curves = Curves.read(survival, times, len(outcome))
    observed = survival_curve(outcome)
    if len(observed.times) == 0:
        raise InputError(f"none of the {len(outcome)} rows has an event: there is no last event time to compare up to.")
    curves.locate(observed.times, "event times", "give curves on a longer grid")
    share = outcome.weight / outcome.weight.sum()
    mean = np.array([float(share @ curves.column(k)) for k in range(len(curves.knots))])
    until = observed.times[-1]
    falls = np.concatenate([[0.0], observed.times])
    if rule == "trapezoid":
        squared = (np.interp(falls, curves.knots, mean) - observed.after(falls)) ** 2
        return float(np.sum(np.diff(falls) * (squared[1:] + squared[:-1]) / 2) / until)
    edges = np.union1d(falls, curves.knots[curves.knots < until])
    left, right = np.interp(edges[:-1], curves.knots, mean), np.interp(edges[1:], curves.knots, mean)
    level = observed.after(edges[:-1])
    left, right = left - level, right - level
    # The integral of a squared straight line over an interval.
    return float(np.sum(np.diff(edges) * (left**2 + left * right + right**2) / 3) / until)


def check_probabilities(values: Any, name: str) -> np.ndarray:
    """Return one probability for each row, clipped to [0, 1] if it lies up to 1e-6 outside by rounding."""
    chance = as_floats(values, name)
    if chance.ndim != 1 or len(chance) == 0:
        raise InputError(f"{name} has shape {chance.shape}; give one probability for each row.")
    if np.isnan(chance).any():
        raise InputError(f"{name} is missing (NaN) in {rows_phrase(np.isnan(chance))}; no value is filled in.")
    outside = (chance < -TOLERANCE) | (chance > 1 + TOLERANCE)
    if outside.any():
        raise InputError(f"{name} is outside [0, 1] in {rows_phrase(outside)}; give survival probabilities.")
    return np.asarray(np.clip(chance, 0.0, 1.0))


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
    groups = risk_groups(chance, bins)
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


def risk_groups(chance: np.ndarray, bins: int) -> list[np.ndarray]:
    """Return the rows of each group, from the highest risk to the lowest."""
    order = np.argsort(chance, kind="stable")
    sizes = [len(part) for part in np.array_split(order, bins)]
    group = np.repeat(np.arange(bins), sizes)
    first_of_equals = np.searchsorted(chance[order], chance[order], side="left")
    group = group[first_of_equals]
    return [order[group == k] for k in range(bins) if (group == k).any()]
