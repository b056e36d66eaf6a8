"""The distributions of simulated cohorts: covariates, event times given them, the true survival, and censoring."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Protocol

import numpy as np
import pandas as pd
from scipy.optimize import brentq
from scipy.special import expit, gammaincc, gammainccinv
from scipy.stats import norm

from neuralsurv.arguments import real_number
from neuralsurv.errors import InputError

# The rate is found from this many event times of a separate sample.
_PILOT_ROWS = 20_000
_PILOT_SEED = 20_250_101


class Design(Protocol):
    """A distribution of covariates, and one of event times for each value of them."""

    @property
    def end(self) -> float:
        """End of follow-up: later events are not seen."""

    def __hash__(self) -> int:
        """Return a hash: censoring rates are cached by design."""

    def covariates(self, n: int, rng: np.random.Generator) -> pd.DataFrame:
        """Draw n rows of covariates."""

    def survival(self, x: pd.DataFrame, times: np.ndarray) -> np.ndarray:
        """Return the true S(t | x), shape (len(x), len(times))."""

    def event_times(self, x: pd.DataFrame, rng: np.random.Generator) -> np.ndarray:
        """Draw an event time for each row; infinite where it lies beyond the end of follow-up and is not drawn."""


def with_noise(columns: dict[str, np.ndarray], noise: int, rng: np.random.Generator) -> pd.DataFrame:
    """Return the columns, followed by standard normal ones without effect."""
    rows = len(next(iter(columns.values())))
    return pd.DataFrame(columns | {f"noise{k}": rng.standard_normal(rows) for k in range(1, noise + 1)})


def floats(x: pd.DataFrame, *names: str) -> list[np.ndarray]:
    """Return columns as numbers, each of shape (len(x),)."""
    return [x[name].to_numpy(dtype=np.float64) for name in names]


def _group(x: pd.DataFrame) -> np.ndarray:
    return np.asarray(x["group"].to_numpy(dtype=np.int64))


@dataclass(frozen=True)
class LogNormalGroups:
    """Two groups with log-normal event times whose hazards cross (section 5.1 of the paper)."""

    noise: int = 3
    end: ClassVar[float] = np.inf
    location: ClassVar[tuple[float, float]] = (3.0, 3.5)
    scale: ClassVar[tuple[float, float]] = (0.8, 1.0)

    def covariates(self, n: int, rng: np.random.Generator) -> pd.DataFrame:
        """Draw the group, 0 or 1 with equal chances, and noise."""
        return with_noise({"group": rng.integers(0, 2, n).astype(float)}, self.noise, rng)

    def survival(self, x: pd.DataFrame, times: np.ndarray) -> np.ndarray:
        """Return the true S(t | x), shape (len(x), len(times))."""
        with np.errstate(divide="ignore"):
            logs = np.log(times)
        group = _group(x)[:, None]
        return np.asarray(norm.sf((logs - np.take(self.location, group)) / np.take(self.scale, group)))

    def event_times(self, x: pd.DataFrame, rng: np.random.Generator) -> np.ndarray:
        """Draw an event time for each row."""
        group = _group(x)
        return np.asarray(
            np.exp(np.take(self.location, group) + np.take(self.scale, group) * rng.standard_normal(len(x)))
        )


@dataclass(frozen=True)
class MixedCovariates:
    """The covariates of several designs: x1 and x2, standard normal, b, 0 or 1 with equal chances, and noise."""

    noise: int = 2
    end: ClassVar[float] = np.inf

    def covariates(self, n: int, rng: np.random.Generator) -> pd.DataFrame:
        """Draw x1, x2, b and noise."""
        columns = {name: rng.standard_normal(n) for name in ("x1", "x2")}
        return with_noise(columns | {"b": rng.integers(0, 2, n).astype(float)}, self.noise, rng)


class WeibullTimes(ABC):
    r"""Proportional hazards over a Weibull baseline, :math:`S(t|x) = \exp(-(t/s)^k e^{\eta(x)})`."""

    shape: ClassVar[float]
    scale: ClassVar[float]

    @abstractmethod
    def log_risk(self, x: pd.DataFrame) -> np.ndarray:
        """Return η(x), shape (len(x),)."""

    def survival(self, x: pd.DataFrame, times: np.ndarray) -> np.ndarray:
        """Return the true S(t | x), shape (len(x), len(times))."""
        return np.asarray(np.exp(-np.exp(self.log_risk(x))[:, None] * (times / self.scale) ** self.shape))

    def event_times(self, x: pd.DataFrame, rng: np.random.Generator) -> np.ndarray:
        """Draw an event time for each row."""
        spent = rng.standard_exponential(len(x)) / np.exp(self.log_risk(x))
        return np.asarray(self.scale * spent ** (1 / self.shape))


@dataclass(frozen=True)
class WeibullHazards(MixedCovariates, WeibullTimes):
    r"""Proportional hazards, :math:`\eta = 0.8 x_1 - 0.5 x_2 + 0.6 (b - 1/2)` plus ``interaction`` times x1 x2."""

    interaction: float = 0.0
    shape: ClassVar[float] = 1.5
    scale: ClassVar[float] = 30.0

    def log_risk(self, x: pd.DataFrame) -> np.ndarray:
        """Return η(x), shape (len(x),)."""
        x1, x2, b = floats(x, "x1", "x2", "b")
        return np.asarray(0.8 * x1 - 0.5 * x2 + 0.6 * (b - 0.5) + self.interaction * x1 * x2)


@dataclass(frozen=True)
class CrossingHazards:
    """Two groups, one whose hazard falls and one whose hazard rises, with the same median.

    Group 0 has Weibull times of shape 0.8, group 1 gamma times of shape 4; both have a median of 20 where x1 and x2,
    which are standard normal, are 0. Elsewhere time runs faster by the factor exp(0.5 x1 - 0.3 x2).
    """

    noise: int = 2
    end: ClassVar[float] = np.inf
    median: ClassVar[float] = 20.0
    weibull_shape: ClassVar[float] = 0.8
    gamma_shape: ClassVar[float] = 4.0

    def covariates(self, n: int, rng: np.random.Generator) -> pd.DataFrame:
        """Draw the group, x1, x2 and noise."""
        columns = {"group": rng.integers(0, 2, n).astype(float)}
        return with_noise(columns | {name: rng.standard_normal(n) for name in ("x1", "x2")}, self.noise, rng)

    def speed(self, x: pd.DataFrame) -> np.ndarray:
        """Return how many times as fast a row's time runs, shape (len(x),)."""
        x1, x2 = floats(x, "x1", "x2")
        return np.asarray(np.exp(0.5 * x1 - 0.3 * x2))

    @property
    def _scales(self) -> tuple[float, float]:
        weibull = self.median / np.log(2) ** (1 / self.weibull_shape)
        return float(weibull), float(self.median / gammainccinv(self.gamma_shape, 0.5))

    def survival(self, x: pd.DataFrame, times: np.ndarray) -> np.ndarray:
        """Return the true S(t | x), shape (len(x), len(times))."""
        run = self.speed(x)[:, None] * times
        falling, rising = self._scales
        weibull, gamma = np.exp(-((run / falling) ** self.weibull_shape)), gammaincc(self.gamma_shape, run / rising)
        return np.asarray(np.where(_group(x)[:, None] == 0, weibull, gamma))

    def event_times(self, x: pd.DataFrame, rng: np.random.Generator) -> np.ndarray:
        """Draw an event time for each row."""
        falling, rising = self._scales
        weibull = falling * rng.standard_exponential(len(x)) ** (1 / self.weibull_shape)
        gamma = rising * rng.gamma(self.gamma_shape, size=len(x))
        return np.asarray(np.where(_group(x) == 0, weibull, gamma) / self.speed(x))


@dataclass(frozen=True)
class SineAcceleratingConstant:
    """Hazards whose logit mixes a sine, a line that rises and a constant, in shares that differ between people.

    Nine hidden numbers of a person, each uniform between -1 and 1, say how the three are mixed and what each looks
    like; each hidden number is the sum of `spread` covariates, none of which shows it alone.
    """

    spread: int = 5
    end: float = 100.0
    step: ClassVar[float] = 0.1
    _hidden: ClassVar[int] = 9
    # People whose hazards are held at once: 1,000 steps each, or more with a later end.
    _block: ClassVar[int] = 2_000

    @property
    def _grid(self) -> np.ndarray:
        """0 and the ends of the steps."""
        steps = self.step * np.arange(np.ceil(self.end / self.step - 1e-9) + 1)
        steps[-1] = self.end
        return np.asarray(steps)

    def covariates(self, n: int, rng: np.random.Generator) -> pd.DataFrame:
        """Draw the hidden numbers and the covariates that add up to them."""
        uniform = rng.uniform(-1, 1, (n, self._hidden, self.spread))
        # Differences of neighbours: their sum leaves the first number, the hidden one.
        parts = np.concatenate([uniform[:, :, :-1] - uniform[:, :, 1:], uniform[:, :, -1:]], axis=2)
        values = parts.reshape(n, -1)
        return pd.DataFrame(values, columns=[f"x{k}" for k in range(values.shape[1])])

    def hidden(self, x: pd.DataFrame) -> np.ndarray:
        """Return the hidden numbers, shape (len(x), 9)."""
        return np.asarray(x.to_numpy(dtype=np.float64).reshape(len(x), self._hidden, self.spread).sum(axis=2))

    def _logits(self, hidden: np.ndarray) -> np.ndarray:
        """Return the logit of the chance of an event within each step, shape (n, steps)."""
        ends = self._grid[1:]
        mix, height, octave, shift, level, constant, slope = np.split(hidden[:, :, None], [3, 4, 5, 6, 7, 8], axis=1)
        shares = np.exp(5 * (mix[:, :, 0] + [0.6, 0, 0]))
        shares /= shares.sum(axis=1, keepdims=True)
        height = 5 * height[:, 0]
        # Periods of 200, 100, 50, 25 and 12.5, equally likely.
        speed = 2 * np.pi / 100 * 2.0 ** (np.floor(2.5 * (octave[:, 0] + 1)).clip(0, 4) - 1)
        sine = height * np.sin(speed * (ends + 15 * shift[:, 0])) + 2 * level[:, 0] - 6 - np.abs(height) / 2
        flat = 2.5 * (constant[:, 0] + 1) - 8
        rising = expit(3 * (slope[:, 0] + 1) - 5) * ends - 10
        return np.asarray(shares[:, :1] * sine + shares[:, 1:2] * flat + shares[:, 2:] * rising)

    def _cumulative(self, x: pd.DataFrame) -> np.ndarray:
        """Return the cumulative hazard at 0 and at the end of each step, shape (n, 1 + steps)."""
        hazards = np.logaddexp(0, self._logits(self.hidden(x)))
        return np.concatenate([np.zeros((len(x), 1)), hazards.cumsum(axis=1)], axis=1)

    def _blocks(self, x: pd.DataFrame) -> list[pd.DataFrame]:
        return [x.iloc[first : first + self._block] for first in range(0, len(x), self._block)]

    def survival(self, x: pd.DataFrame, times: np.ndarray) -> np.ndarray:
        """Return the true S(t | x), shape (len(x), len(times)); NaN beyond the end, where there is no hazard."""
        grid = self._grid
        curves = [
            np.interp(times, grid, row, right=np.nan) for part in self._blocks(x) for row in self._cumulative(part)
        ]
        return np.exp(-np.reshape(curves, (len(x), len(times))))

    def event_times(self, x: pd.DataFrame, rng: np.random.Generator) -> np.ndarray:
        """Draw an event time for each row; infinite beyond the end."""
        spent = rng.standard_exponential(len(x))
        grid = self._grid
        rows = (row for part in self._blocks(x) for row in self._cumulative(part))
        return np.array([np.interp(e, row, grid, right=np.inf) for e, row in zip(spent, rows, strict=True)])


def censoring_rate_for(design: Design, share: float) -> float:
    """Return the rate of exponential censoring times with which a share of the rows is censored, on average.

    The share, in [0, 1), includes the rows whose follow-up ends.

    Examples
    --------
    >>> from neuralsurv.data.simulate.designs import censoring_rate_for
    >>> from neuralsurv.data.simulate.designs import LogNormalGroups
    >>> round(censoring_rate_for(LogNormalGroups(), 0.5), 3)
    0.025
    """
    words = "a share of the rows: 0 or more, and below 1"
    wanted = real_number("censoring", share, lambda number: 0 <= number < 1, words)
    if wanted == 0 and design.end == np.inf:
        return 0.0
    return _rate_from_pilot(design, wanted)


@lru_cache(maxsize=128)
def _rate_from_pilot(design: Design, share: float) -> float:
    times = _pilot_times(design)
    late = float(np.mean(times > design.end))
    if share < late:
        raise InputError(
            f"censoring={share:g} cannot be reached: {late:.1%} of the rows are free of the event when follow-up ends "
            f"at {design.end:g}; ask for more, or for a later end."
        )
    seen = times[times <= design.end]
    typical = 1 / float(np.median(seen))

    def excess(log_rate: float) -> float:
        # An event at t is censored with probability 1 − exp(−rate·t).
        return late + (1 - late) * float(-np.expm1(-np.exp(log_rate) * typical * seen).mean()) - share

    lowest, highest = -25.0, 25.0
    return typical * float(np.exp(brentq(excess, lowest, highest))) if excess(lowest) < 0 else 0.0


@lru_cache(maxsize=16)
def _pilot_times(design: Design) -> np.ndarray:
    rng = np.random.default_rng(_PILOT_SEED)
    return design.event_times(design.covariates(_PILOT_ROWS, rng), rng)


def censoring_times(rows: int, rate: float, rng: np.random.Generator) -> np.ndarray:
    """Draw exponential censoring times; infinite where the rate is 0."""
    return rng.exponential(1 / rate, rows) if rate > 0 else np.full(rows, np.inf)
