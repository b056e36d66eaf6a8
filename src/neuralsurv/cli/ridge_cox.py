"""A ridge-penalised Cox model, the baseline of ``neuralsurv evaluate``.

It minimises −ℓ(β)/Σw + ½·penalty·‖β‖², where ℓ is the partial log-likelihood with Efron's correction for ties, by
Newton's method. The scale of the penalty is that of lifelines, with covariates of spread 1. See B. Efron (1977), The
efficiency of Cox's likelihood function for censored data, JASA 72, and P. J. Verweij, H. C. van Houwelingen (1994),
Penalized likelihood in Cox regression, Statistics in Medicine 13.
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


def fit_ridge_cox(x: np.ndarray, outcome: Outcome, penalty: float = 0.1) -> RidgeCox:
    """Fit the model to centered and scaled covariates, shape (N, p); late entry and weights count."""
    if not 0 < penalty < np.inf:
        raise InputError(f"the penalty of the ridge Cox model is {penalty!r}; it must be a positive number.")
    there = outcome.weight > 0
    outcome, x = outcome.select(there), x[there]
    loss = _Loss(x, outcome, penalty)
    beta = np.zeros(x.shape[1])
    value, gradient, hessian = loss(beta)
    for _ in range(_MOST_STEPS):
        step = np.linalg.solve(hessian, gradient)
        decrement = float(gradient @ step)
        if decrement < 1e-18:
            break
        size = 1.0
        # The loss is convex, so a step along Newton's direction that is short enough lowers it, up to rounding.
        while True:
            candidate = loss(beta - size * step)
            if candidate[0] <= value - 0.25 * size * decrement or size * decrement < 1e-14:
                break
            size /= 2
        beta = beta - size * step
        value, gradient, hessian = candidate
    else:
        raise NotConvergedError(f"the ridge Cox model did not converge in {_MOST_STEPS} Newton steps.")
    return RidgeCox(beta, *_baseline(beta, x, outcome))


class _Loss:
    """The loss with its gradient and Hessian; each event has a slot, whose risk set leaves out a share of its ties."""

    def __init__(self, x: np.ndarray, outcome: Outcome, penalty: float) -> None:
        self.x, self.outcome, self.penalty = x, outcome, penalty
        events = np.flatnonzero(outcome.event)
        self.order = events[np.argsort(outcome.time[events], kind="stable")]
        self.time = outcome.time[self.order]
        _, self.first, self.tie, count = np.unique(
            self.time, return_index=True, return_inverse=True, return_counts=True
        )
        self.share = (np.arange(len(self.time)) - self.first[self.tie]) / count[self.tie]
        # With weights every slot of a tie counts their mean.
        self.weight = (np.add.reduceat(outcome.weight[self.order], self.first) / count)[self.tie]

    def __call__(self, beta: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        x, outcome, order, total = self.x, self.outcome, self.order, float(self.outcome.weight.sum())
        linear = x @ beta
        shift = float(linear.max())
        risk = outcome.weight * np.exp(linear - shift)
        moments = np.column_stack([risk, risk[:, None] * x])
        tied = np.add.reduceat(moments[order], self.first)
        sums = _at_risk(moments, outcome, self.time) - self.share[:, None] * tied[self.tie]
        zeroth, mean = sums[:, 0], sums[:, 1:] / sums[:, :1]
        weight = outcome.weight[order]
        value = float(self.weight @ (np.log(zeroth) + shift)) - float(weight @ linear[order])
        gradient = self.weight @ mean - weight @ x[order]
        # Σ over slots of S2/S0 is Σ over rows of risk·x·xᵀ times the slots' hazards that the row was there for.
        hazard = self.weight / zeroth
        cumulative = np.concatenate([[0.0], np.cumsum(hazard)])
        upto = cumulative[np.searchsorted(self.time, outcome.time, side="right")]
        exposed = upto - cumulative[np.searchsorted(self.time, outcome.entry, side="right")]
        exposed[order] -= np.add.reduceat(hazard * self.share, self.first)[self.tie]
        hessian = (x * (risk * exposed)[:, None]).T @ x - (mean * self.weight[:, None]).T @ mean
        return (
            value / total + 0.5 * self.penalty * float(beta @ beta),
            gradient / total + self.penalty * beta,
            hessian / total + self.penalty * np.eye(len(beta)),
        )


def _at_risk(values: np.ndarray, outcome: Outcome, times: np.ndarray) -> np.ndarray:
    """Return the sum of `values` (N, k) over the rows at risk at each time: entered before it, and not gone."""
    result = np.zeros((len(times), values.shape[1]))
    for moment, sign in ((outcome.time, 1.0), (outcome.entry, -1.0)):
        order = np.argsort(moment, kind="stable")
        upwards = np.concatenate([np.cumsum(values[order][::-1], axis=0)[::-1], np.zeros((1, values.shape[1]))])
        # Gone before t: time < t. Not entered: entry >= t.
        result += sign * upwards[np.searchsorted(moment[order], times)]
    return result


def _baseline(beta: np.ndarray, x: np.ndarray, outcome: Outcome) -> tuple[np.ndarray, np.ndarray]:
    """Return the event times and Breslow's cumulative hazard of x = 0."""
    times, which = np.unique(outcome.time[outcome.event], return_inverse=True)
    events = np.bincount(which, weights=outcome.weight[outcome.event], minlength=len(times))
    at_risk = _at_risk((outcome.weight * np.exp(x @ beta))[:, None], outcome, times)[:, 0]
    return times, np.cumsum(events / at_risk)
