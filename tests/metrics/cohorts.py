"""Small cohorts with what is hard for a metric, and the definitions written out as loops."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Cohort:
    time: np.ndarray
    event: np.ndarray
    survival: np.ndarray
    times: np.ndarray
    risk: np.ndarray
    weight: np.ndarray
    entry: np.ndarray
    train_time: np.ndarray
    train_event: np.ndarray

    @property
    def training(self) -> dict[str, np.ndarray]:
        return {"train_time": self.train_time, "train_event": self.train_event}


def cohort(
    seed: int, n: int = 40, *, tied: bool = False, event_share: float = 0.6, columns: int = 7, m: int = 50
) -> Cohort:
    """Make curves that cross, for rows whose times and predictions are tied or not.

    If tied, times are whole numbers from 1 to 9, the grid holds all of them, and survival is in steps of a fifth: the
    curves tie at event times, and reading a curve there is exact. Training rows are watched for longer than the others.
    """
    rng = np.random.default_rng(seed)
    if tied:
        time, train_time = rng.integers(1, 10, n).astype(float), rng.integers(1, 13, m).astype(float)
        times = np.arange(1.0, 10.0)
        survival = np.sort(rng.integers(0, 6, (n, 9)), axis=1)[:, ::-1] / 5.0
        risk = rng.integers(0, 5, n).astype(float)
        entry = np.floor(rng.random(n) * time)
    else:
        time, train_time = rng.exponential(size=n) + 0.01, rng.exponential(size=m) * 2 + 0.01
        times = np.linspace(0.3, 1.01 * time.max(), columns)
        pace, shape = rng.uniform(0.1, 0.6, (n, 1)), rng.uniform(0.3, 1.8, (n, 1))
        survival = np.exp(-pace * times**shape)
        risk = rng.normal(size=n)
        entry = rng.random(n) * time
    event, train_event = rng.random(n) < event_share, rng.random(m) < 0.5
    # The last training row has the event, later than all others: censoring weights are defined everywhere.
    train_time = np.append(train_time, max(time.max(), train_time.max()) + 1)
    train_event = np.append(train_event, True)
    weight = rng.integers(0, 4, n).astype(float)
    return Cohort(time, event, np.ascontiguousarray(survival), times, risk, weight, entry, train_time, train_event)


def comparable(c: Cohort, i: int, j: int, late_entry: bool = False) -> bool:
    longer = c.time[j] > c.time[i] or (c.time[j] == c.time[i] and not c.event[j])
    return bool(i != j and c.event[i] and longer and (not late_entry or c.entry[j] < c.time[i]))


def concordance_loop(c: Cohort, own_and_other, *, pair=None, late_entry=False, tau=np.inf, weight=None) -> float:
    """Go through all pairs.

    `own_and_other(i, j)` returns a number of i and one of j, lower for who should be first; `pair[i]` is what a pair
    counts besides the weights.
    """
    n = len(c.time)
    pair = np.ones(n) if pair is None else pair
    weight = np.ones(n) if weight is None else weight
    concordant = total = 0.0
    for i in range(n):
        for j in range(n):
            if comparable(c, i, j, late_entry) and c.time[i] < tau:
                own, other = own_and_other(i, j)
                counts = pair[i] * weight[i] * weight[j]
                total += counts
                concordant += counts * (1.0 if own < other else 0.5 if own == other else 0.0)
    return concordant / total


def censoring_loop(time, event, at: float, *, left: bool = False) -> float:
    """G at one time: at every censoring time, one less the share that is censored of those without the event yet."""
    chance = 1.0
    for moment in sorted({t for t, e in zip(time, event, strict=True) if not e}):
        if moment < at or (moment == at and not left):
            at_risk = sum(1 for t, e in zip(time, event, strict=True) if t > moment or (t == moment and not e))
            censored = sum(1 for t, e in zip(time, event, strict=True) if t == moment and not e)
            chance *= 1 - censored / at_risk
    return chance


def brier_loop(c: Cohort, k: int, *, left: bool = True, weight=None) -> float:
    """Brier score at the grid time k; `left`: with G just before the events."""
    weight = np.ones(len(c.time)) if weight is None else weight
    t = c.times[k]
    total = 0.0
    for i in range(len(c.time)):
        if c.time[i] <= t and c.event[i]:
            chance = censoring_loop(c.train_time, c.train_event, c.time[i], left=left)
            total += weight[i] * c.survival[i, k] ** 2 / chance
        elif c.time[i] > t:
            total += weight[i] * (1 - c.survival[i, k]) ** 2 / censoring_loop(c.train_time, c.train_event, t)
    return total / weight.sum()
