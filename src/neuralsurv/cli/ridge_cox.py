"""A ridge-penalised Cox model, the baseline of ``neuralsurv evaluate``.

It minimises −ℓ(β)/Σw + ½·penalty·‖β‖², where ℓ is the partial log-likelihood with Efron's correction for ties, by
Newton's method. The scale of the penalty is that of lifelines, with covariates of spread 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from neuralsurv.data.outcome import Outcome
from neuralsurv.errors import InputError, NotConvergedError

# Why not lifelines, against which the tests check this: depending on it would keep pandas below 3 on users' machines.
_MOST_STEPS = 100


@dataclass(frozen=True)
class RidgeCox:
    """A fitted model."""

    coefficients: np.ndarray  # log hazard ratios, shape (p,)
    times: np.ndarray  # the different event times, shape (D,)
    baseline: np.ndarray  # Breslow's cumulative hazard of x = 0 at each of them, shape (D,)

    def survival(self, x: np.ndarray, times: np.ndarray) -> np.ndarray:
        """Return survival of each row of x at each time, shape (n, T); flat after the last event.

        The baseline is joined by straight lines. Steps would tie all people before the first training event, and count
        against the model where it has an order.
        """
        hazard = np.interp(times, np.concatenate([[0.0], self.times]), np.concatenate([[0.0], self.baseline]))
        with np.errstate(over="ignore"):
            return np.asarray(np.exp(-np.exp(x @ self.coefficients)[:, None] * hazard[None, :]))


@dataclass(frozen=True)
class _Slots:
    """One slot for each event: Efron takes a share of the tied events out of the risk set of the later ones."""

    order: np.ndarray
    time: np.ndarray
    share: np.ndarray
    first: np.ndarray
    weight: np.ndarray


def fit_ridge_cox(x: np.ndarray, outcome: Outcome, penalty: float = 0.1) -> RidgeCox:
    """Fit the model to centered and scaled covariates, shape (N, p); late entry and weights count.

    References
    ----------
    B. Efron (1977), The efficiency of Cox's likelihood function for censored data, JASA 72. P. J. Verweij, H. C. van
    Houwelingen (1994), Penalized likelihood in Cox regression, Statistics in Medicine 13.

    Examples
    --------
    >>> import numpy as np
    >>> from neuralsurv.data.outcome import Outcome
    >>> x = np.array([[1.0], [0.5], [-0.5], [-1.0]])
    >>> model = fit_ridge_cox(x, Outcome.from_arrays([1, 3, 2, 4], [1, 1, 1, 0]), penalty=0.1)
    >>> bool(model.coefficients[0] > 0)
    True
    """
    if not 0 < penalty < np.inf:
        raise InputError(f"the penalty of the ridge Cox model is {penalty!r}; it must be a positive number.")
    there = outcome.weight > 0
    outcome, x = outcome.select(there), x[there]
    slots = _slots(outcome)
    total = float(outcome.weight.sum())
    beta = np.zeros(x.shape[1])
    value, gradient, hessian = _loss(beta, x, outcome, slots, total, penalty)
    for _ in range(_MOST_STEPS):
        step = np.linalg.solve(hessian, gradient)
        decrement = float(gradient @ step)
        if decrement < 1e-18:
            break
        size = 1.0
        # The loss is convex, so a step along Newton's direction that is short enough lowers it, up to rounding.
        while True:
            candidate = _loss(beta - size * step, x, outcome, slots, total, penalty)
            if candidate[0] <= value - 0.25 * size * decrement or size * decrement < 1e-14:
                break
            size /= 2
        beta = beta - size * step
        value, gradient, hessian = candidate
    else:
        raise NotConvergedError(f"the ridge Cox model did not converge in {_MOST_STEPS} Newton steps.")
    return RidgeCox(beta, *_baseline(beta, x, outcome))


def _slots(outcome: Outcome) -> _Slots:
    events = np.flatnonzero(outcome.event)
    order = events[np.argsort(outcome.time[events], kind="stable")]
    time = outcome.time[order]
    _, first, inverse, count = np.unique(time, return_index=True, return_inverse=True, return_counts=True)
    share = (np.arange(len(time)) - first[inverse]) / count[inverse]
    # With weights every slot of a tie counts their mean.
    weight = (np.add.reduceat(outcome.weight[order], first) / count)[inverse]
    return _Slots(order, time, share, first, weight)


def _at_risk(values: np.ndarray, outcome: Outcome, times: np.ndarray) -> np.ndarray:
    """Return the sum of `values` (N, k) over the rows at risk at each time: entered before it, and not gone."""
    result = np.zeros((len(times), values.shape[1]))
    for moment, sign, side in ((outcome.time, 1.0, "left"), (outcome.entry, -1.0, "left")):
        order = np.argsort(moment, kind="stable")
        upwards = np.concatenate([np.cumsum(values[order][::-1], axis=0)[::-1], np.zeros((1, values.shape[1]))])
        # Gone before t: time < t. Not entered: entry >= t.
        result += sign * upwards[np.searchsorted(moment[order], times, side=side)]  # type: ignore[call-overload]
    return result


def _loss(
    beta: np.ndarray, x: np.ndarray, outcome: Outcome, slots: _Slots, total: float, penalty: float
) -> tuple[float, np.ndarray, np.ndarray]:
    """Return the loss, its gradient and its Hessian."""
    linear = x @ beta
    shift = float(linear.max())
    risk = outcome.weight * np.exp(linear - shift)
    moments = np.column_stack([risk, risk[:, None] * x])
    tied = np.add.reduceat(moments[slots.order], slots.first)
    which = np.searchsorted(slots.time[slots.first], slots.time)
    sums = _at_risk(moments, outcome, slots.time) - slots.share[:, None] * tied[which]
    zeroth, mean = sums[:, 0], sums[:, 1:] / sums[:, :1]
    weight = outcome.weight[slots.order]
    value = -(float(weight @ linear[slots.order]) - float(slots.weight @ (np.log(zeroth) + shift)))
    gradient = -(weight @ x[slots.order] - slots.weight @ mean)
    # Σ over slots of S2/S0 is Σ over rows of risk·x·xᵀ times the slots' hazards that the row was there for.
    hazard = slots.weight / zeroth
    cumulative = np.concatenate([[0.0], np.cumsum(hazard)])
    upto = cumulative[np.searchsorted(slots.time, outcome.time, side="right")]
    exposed = upto - cumulative[np.searchsorted(slots.time, outcome.entry, side="right")]
    exposed[slots.order] -= np.add.reduceat(hazard * slots.share, slots.first)[which]
    hessian = (x * (risk * exposed)[:, None]).T @ x - (mean * slots.weight[:, None]).T @ mean
    ridge = penalty * np.eye(len(beta))
    return (
        value / total + 0.5 * penalty * float(beta @ beta),
        gradient / total + penalty * beta,
        hessian / total + ridge,
    )


def _baseline(beta: np.ndarray, x: np.ndarray, outcome: Outcome) -> tuple[np.ndarray, np.ndarray]:
    """Return the event times and Breslow's cumulative hazard of x = 0."""
    times, which = np.unique(outcome.time[outcome.event], return_inverse=True)
    events = np.bincount(which, weights=outcome.weight[outcome.event], minlength=len(times))
    at_risk = _at_risk((outcome.weight * np.exp(x @ beta))[:, None], outcome, times)[:, 0]
    return times, np.cumsum(events / at_risk)
