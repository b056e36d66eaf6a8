"""Designs that models are checked on: their coefficients are frozen, and no model is developed on them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pandas as pd
from scipy.special import expit
from scipy.stats import norm

from neuralsurv.data.simulate.designs import MixedCovariates, WeibullTimes, floats, with_noise


@dataclass(frozen=True)
class AcceleratedTimes:
    r"""Log-normal times whose location has a sine, a threshold and a square.

    :math:`\log T = 3 + 0.8 \sin(2 x_1) + 0.9 \cdot 1(x_2 > 0.3) - 0.3 x_3^2 + 0.7 \varepsilon`, all standard normal.
    """

    noise: int = 2
    end: ClassVar[float] = np.inf
    scale: ClassVar[float] = 0.7

    def covariates(self, n: int, rng: np.random.Generator) -> pd.DataFrame:
        """Draw x1, x2, x3 and noise."""
        return with_noise({name: rng.standard_normal(n) for name in ("x1", "x2", "x3")}, self.noise, rng)

    def location(self, x: pd.DataFrame) -> np.ndarray:
        """Return the median of log T, shape (len(x),)."""
        x1, x2, x3 = floats(x, "x1", "x2", "x3")
        return np.asarray(3.0 + 0.8 * np.sin(2 * x1) + 0.9 * (x2 > 0.3) - 0.3 * x3**2)

    def survival(self, x: pd.DataFrame, times: np.ndarray) -> np.ndarray:
        """Return the true S(t | x), shape (len(x), len(times))."""
        with np.errstate(divide="ignore"):
            logs = np.log(times)
        return np.asarray(norm.sf((logs - self.location(x)[:, None]) / self.scale))

    def event_times(self, x: pd.DataFrame, rng: np.random.Generator) -> np.ndarray:
        """Draw an event time for each row."""
        return np.asarray(np.exp(self.location(x) + self.scale * rng.standard_normal(len(x))))


@dataclass(frozen=True)
class SparseHazards(WeibullTimes):
    r"""Proportional hazards with 20 standard normal covariates of which two matter.

    :math:`S(t|x) = \exp(-(t/25)^{1.3} e^{\eta})` with :math:`\eta = 0.9 x_3 - 0.7 x_{11}`.
    """

    end: ClassVar[float] = np.inf
    shape: ClassVar[float] = 1.3
    scale: ClassVar[float] = 25.0
    width: ClassVar[int] = 20

    def covariates(self, n: int, rng: np.random.Generator) -> pd.DataFrame:
        """Draw x1 to x20."""
        names = [f"x{k}" for k in range(1, self.width + 1)]
        return pd.DataFrame(rng.standard_normal((n, self.width)), columns=names)

    def log_risk(self, x: pd.DataFrame) -> np.ndarray:
        """Return η(x), shape (len(x),)."""
        x3, x11 = floats(x, "x3", "x11")
        return np.asarray(0.9 * x3 - 0.7 * x11)


@dataclass(frozen=True)
class TurningEffects(MixedCovariates):
    r"""Log-logistic times whose shape depends on a covariate, so that its effect changes sign in time.

    :math:`S(t|x) = 1 / (1 + (t/s)^k)` with :math:`\log k = 0.5 + 0.4 x_1` and
    :math:`\log s = 3 + 0.6 x_2 - 0.5 b`; x1 and x2 are standard normal, b is 0 or 1 with equal chances.
    """

    def shape_and_scale(self, x: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
        """Return k and s, each of shape (len(x),)."""
        x1, x2, b = floats(x, "x1", "x2", "b")
        return np.exp(0.5 + 0.4 * x1), np.exp(3.0 + 0.6 * x2 - 0.5 * b)

    def survival(self, x: pd.DataFrame, times: np.ndarray) -> np.ndarray:
        """Return the true S(t | x), shape (len(x), len(times))."""
        shape, scale = self.shape_and_scale(x)
        with np.errstate(divide="ignore"):
            logs = np.log(times)
        return np.asarray(expit(-shape[:, None] * (logs - np.log(scale)[:, None])))

    def event_times(self, x: pd.DataFrame, rng: np.random.Generator) -> np.ndarray:
        """Draw an event time for each row."""
        shape, scale = self.shape_and_scale(x)
        return np.asarray(scale * np.exp(rng.logistic(size=len(x)) / shape))


@dataclass(frozen=True)
class CuredShare(MixedCovariates, WeibullTimes):
    r"""A share of people never has the event; the others have Weibull times.

    :math:`S(t|x) = \pi + (1 - \pi) \exp(-(t/20)^{1.4} e^{\eta})`, with
    :math:`\operatorname{logit} \pi = -2 + 1.2 x_1` (17 % of all, 5 % where x1 is -1 and 31 % where it is 1) and
    :math:`\eta = 0.8 x_2 + 0.6 (b - 1/2)`; x1 and x2 are standard normal, b is 0 or 1 with equal chances.
    Follow-up ends at 100.
    """

    end: ClassVar[float] = 100.0
    shape: ClassVar[float] = 1.4
    scale: ClassVar[float] = 20.0

    def cured(self, x: pd.DataFrame) -> np.ndarray:
        """Return the probability of never having the event, shape (len(x),)."""
        (x1,) = floats(x, "x1")
        return np.asarray(expit(-2.0 + 1.2 * x1))

    def log_risk(self, x: pd.DataFrame) -> np.ndarray:
        """Return η(x) of those who are not cured, shape (len(x),)."""
        x2, b = floats(x, "x2", "b")
        return np.asarray(0.8 * x2 + 0.6 * (b - 0.5))

    def survival(self, x: pd.DataFrame, times: np.ndarray) -> np.ndarray:
        """Return the true S(t | x), shape (len(x), len(times))."""
        cured = self.cured(x)[:, None]
        return np.asarray(cured + (1 - cured) * super().survival(x, times))

    def event_times(self, x: pd.DataFrame, rng: np.random.Generator) -> np.ndarray:
        """Draw an event time for each row; infinite for the cured."""
        cured = rng.uniform(size=len(x)) < self.cured(x)
        return np.where(cured, np.inf, super().event_times(x, rng))


@dataclass(frozen=True)
class GammaFrailty(MixedCovariates):
    r"""Proportional hazards given a frailty that nobody sees.

    Given z, which is gamma distributed with mean 1 and variance 0.8, the cumulative hazard is
    :math:`z (t/20)^{1.6} e^{\eta}` with :math:`\eta = x_1 - 0.7 x_2 + 0.8 (b - 1/2)`; without it,
    :math:`S(t|x) = (1 + 0.8 (t/20)^{1.6} e^{\eta})^{-1/0.8}`, whose hazard ratios shrink with time.
    x1 and x2 are standard normal, b is 0 or 1 with equal chances.
    """

    variance: ClassVar[float] = 0.8
    shape: ClassVar[float] = 1.6
    scale: ClassVar[float] = 20.0

    def log_risk(self, x: pd.DataFrame) -> np.ndarray:
        """Return η(x), shape (len(x),)."""
        x1, x2, b = floats(x, "x1", "x2", "b")
        return np.asarray(x1 - 0.7 * x2 + 0.8 * (b - 0.5))

    def survival(self, x: pd.DataFrame, times: np.ndarray) -> np.ndarray:
        """Return the true S(t | x), shape (len(x), len(times))."""
        cumulative = np.exp(self.log_risk(x))[:, None] * (times / self.scale) ** self.shape
        return np.asarray((1 + self.variance * cumulative) ** (-1 / self.variance))

    def event_times(self, x: pd.DataFrame, rng: np.random.Generator) -> np.ndarray:
        """Draw a frailty and an event time for each row."""
        frailty = rng.gamma(1 / self.variance, self.variance, size=len(x))
        spent = rng.standard_exponential(len(x)) / (frailty * np.exp(self.log_risk(x)))
        return np.asarray(self.scale * spent ** (1 / self.shape))


@dataclass(frozen=True)
class TwoWaves(MixedCovariates):
    r"""An early and a late wave of events, each with covariates of its own.

    The cumulative hazard is :math:`0.6 e^{1.2 x_1} (1 - e^{-(t/6)^{1.5}}) + e^{x_2 - 0.6 b} (t/40)^4`: the first part
    has come to its end at about 15, when the second begins. x1 and x2 are standard normal, b is 0 or 1 with equal
    chances.
    """

    early: ClassVar[tuple[float, float, float]] = (0.6, 6.0, 1.5)
    late: ClassVar[tuple[float, float]] = (40.0, 4.0)

    def risks(self, x: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
        """Return the factors of the early and of the late wave, each of shape (len(x),)."""
        x1, x2, b = floats(x, "x1", "x2", "b")
        return self.early[0] * np.exp(1.2 * x1), np.exp(x2 - 0.6 * b)

    def survival(self, x: pd.DataFrame, times: np.ndarray) -> np.ndarray:
        """Return the true S(t | x), shape (len(x), len(times))."""
        first, second = (risk[:, None] for risk in self.risks(x))
        at = times
        early = -np.expm1(-((at / self.early[1]) ** self.early[2]))
        return np.asarray(np.exp(-first * early - second * (at / self.late[0]) ** self.late[1]))

    def event_times(self, x: pd.DataFrame, rng: np.random.Generator) -> np.ndarray:
        """Draw a time for each wave, and keep the earlier one."""
        first, second = self.risks(x)
        # The early wave spares those whose share of it would be 1 or more.
        share = rng.standard_exponential(len(x)) / first
        with np.errstate(divide="ignore"):
            early = self.early[1] * (-np.log1p(-np.minimum(share, 1.0))) ** (1 / self.early[2])
        late = self.late[0] * (rng.standard_exponential(len(x)) / second) ** (1 / self.late[1])
        return np.asarray(np.minimum(early, late))
