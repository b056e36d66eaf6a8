"""What users get back: a quantity for every person, with its posterior uncertainty."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from neuralsurv.errors import InputError

# A cube of draws up to this many numbers (128 MiB) is kept after its first use; a larger one is made anew, block by
# block, for every summary that is asked for.
_KEEP_NUMBERS = 2**24


class Interval(NamedTuple):
    """Lower and upper end of a credible interval."""

    lower: Any
    upper: Any


@dataclass(frozen=True)
class Prediction:
    """A predicted quantity for n people at k columns (times, usually), as joint posterior draws.

    Attributes
    ----------
    name : str
        What is predicted, for example ``"survival"``.
    index : Index of length n
        The people, as in the input.
    columns : Index of length k, or None
        The times; None where there is one number for each person.
    extrapolated : bool ndarray of shape (k,)
        Which columns lie beyond the last training time.
    count : int
        Number of draws S.
    blocks : callable
        Makes the draws: an iterator of arrays of shape (S, people in the block, k), the same every time.
    """

    name: str
    index: pd.Index
    columns: pd.Index | None
    extrapolated: np.ndarray
    count: int
    blocks: Callable[[], Iterator[np.ndarray]]

    @cached_property
    def _summaries(self) -> dict[Any, Any]:
        return {}

    @property
    def _width(self) -> int:
        return 1 if self.columns is None else len(self.columns)

    def _iterate(self) -> Iterator[np.ndarray]:
        kept = self._summaries.get("draws")
        if kept is not None:
            yield kept
        elif self.count * len(self.index) * self._width <= _KEEP_NUMBERS:
            yield self._cube()
        else:
            yield from self.blocks()

    def _cube(self) -> np.ndarray:
        if "draws" not in self._summaries:
            blocks = list(self.blocks())
            shape = (self.count, 0, self._width)
            self._summaries["draws"] = np.concatenate(blocks, axis=1) if blocks else np.zeros(shape)
        return np.asarray(self._summaries["draws"])

    def _labelled(self, values: np.ndarray) -> Any:
        if self.columns is None:
            return pd.Series(values[:, 0], index=self.index, name=self.name)
        return pd.DataFrame(values, index=self.index, columns=self.columns)

    def _summary(self, key: Any, reduce: Callable[[np.ndarray], np.ndarray]) -> Any:
        if key not in self._summaries:
            parts = [reduce(block) for block in self._iterate()]
            self._summaries[key] = np.concatenate(parts) if parts else np.zeros((0, self._width))
        return self._labelled(self._summaries[key])

    @property
    def draws(self) -> np.ndarray:
        """All joint draws, shape (S, n, k), or (S, n) where there is one number for each person."""
        cube = self._cube()
        return cube[:, :, 0] if self.columns is None else cube

    @property
    def mean(self) -> Any:
        """Posterior mean: a DataFrame of n rows and k columns, or a Series."""
        return self._summary("mean", lambda block: block.mean(axis=0))

    @property
    def std(self) -> Any:
        """Posterior standard deviation, shaped as the mean; infinite where some draws are."""
        return self._summary("std", _spread)

    @property
    def unreached(self) -> Any:
        """Share of draws that are infinite (a quantile that the curve does not reach), shaped as the mean."""
        return self._summary("unreached", lambda block: np.isinf(block).mean(axis=0))

    @property
    def median(self) -> Any:
        """Posterior median, shaped as the mean."""
        return self.quantile(0.5)

    def quantile(self, probability: float) -> Any:
        """Return a quantile of the posterior, shaped as the mean."""
        if not 0 <= probability <= 1:
            raise InputError(f"probability={probability!r} must lie between 0 and 1.")
        return self._summary(("quantile", probability), lambda block: _quantile(block, probability))

    def interval(self, level: float = 0.9) -> Interval:
        """Return the equal-tailed credible interval that holds `level` of the posterior, at every column apart.

        Examples
        --------
        >>> from neuralsurv import NeuralSurv
        >>> from neuralsurv.data.simulate import lognormal_cohort
        >>> cohort = lognormal_cohort(40, seed=1)
        >>> model = NeuralSurv(hidden=(4,), quadrature_points=50, starts=1, random_state=0)
        >>> curves = model.fit(cohort.x, cohort.y).predict_survival(cohort.x.head(2), times=[10, 20])
        >>> lower, upper = curves.interval(0.9)
        >>> bool((lower <= curves.median).all(axis=None) and (curves.median <= upper).all(axis=None))
        True
        """
        if not 0 < level < 1:
            raise InputError(f"level={level!r} must lie strictly between 0 and 1; use 0.9 for a 90 % interval.")
        return Interval(self.quantile((1 - level) / 2), self.quantile((1 + level) / 2))

    def to_frame(self, level: float = 0.9) -> pd.DataFrame:
        """Return a long table: one line for each person and column, with mean, median, interval and extrapolation."""
        lower, upper = self.interval(level)
        parts = {"mean": self.mean, "median": self.median, "lower": lower, "upper": upper}
        if self.unreached.to_numpy().any():
            parts["unreached"] = self.unreached
        if self.columns is None:
            frame = pd.DataFrame(parts)
            return frame.rename_axis(index=self.index.name or "person").reset_index()
        people = np.repeat(np.arange(len(self.index)), self._width)
        frame = pd.DataFrame({name: values.to_numpy().reshape(-1) for name, values in parts.items()})
        frame.insert(0, self.columns.name or "time", np.tile(self.columns.to_numpy(), len(self.index)))
        frame.insert(0, self.index.name or "person", self.index.to_numpy()[people])
        frame["extrapolated"] = np.tile(self.extrapolated, len(self.index))
        return frame

    def plot(self, level: float = 0.9, ax: Any = None, **options: Any) -> Any:
        """Draw every person's median with its band and return the axes (needs matplotlib)."""
        from neuralsurv.plots import plot_prediction

        return plot_prediction(self, level=level, ax=ax, **options)


@dataclass(frozen=True)
class Curve:
    """One person's curve as a function of time, in the form that scikit-survival's tools call.

    Attributes
    ----------
    x : ndarray of shape (T,)
        Times, from 0.
    y : ndarray of shape (T,)
        Posterior mean at these times; between them the curve is interpolated linearly.
    """

    x: np.ndarray
    y: np.ndarray

    @property
    def domain(self) -> tuple[float, float]:
        """The range of times at which the curve may be called."""
        return float(self.x[0]), float(self.x[-1])

    def __call__(self, times: Any) -> Any:
        """Return the curve at times inside its domain."""
        at = np.asarray(times, dtype=np.float64)
        low, high = self.domain
        if at.size and not (np.min(at) >= low and np.max(at) <= high):
            raise InputError(f"the curve is known from {low:g} to {high:g} only; use predict_survival for other times.")
        return np.interp(at, self.x, self.y)


def _spread(block: np.ndarray) -> np.ndarray:
    infinite = np.isinf(block).any(axis=0)
    finite = np.where(infinite, 0.0, block)
    return np.asarray(np.where(infinite, np.inf, finite.std(axis=0)))


def _quantile(block: np.ndarray, probability: float) -> np.ndarray:
    # An order statistic between two infinite draws would be inf - inf; the lower of the two is what is meant there.
    if np.isinf(block).any():
        return np.asarray(np.quantile(block, probability, axis=0, method="inverted_cdf"))
    return np.asarray(np.quantile(block, probability, axis=0))
