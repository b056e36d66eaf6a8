"""The result of a prediction: a quantity for every person, with its posterior uncertainty."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from neuralsurv.arguments import check_level
from neuralsurv.errors import InputError
from neuralsurv.memory import require
from neuralsurv.names import counted
from neuralsurv.posterior.gaussian import people_blocks
from neuralsurv.prediction.notebook_table import html_table, in_words

# A cube of draws up to this many numbers (128 MiB) is kept after its first use; a larger one is recomputed, block by
# block, whenever further summaries are asked for.
_KEEP_NUMBERS = 2**24
# More draws than this many numbers (1 GiB) are not pickled.
_PICKLE_NUMBERS = 2**27


class Interval(NamedTuple):
    """Lower and upper end of a credible interval."""

    lower: Any
    upper: Any


@dataclass(frozen=True, eq=False)
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
        Computes the draws: an iterator of arrays of shape (S, people in the block, k), the same every time.
    filled : tuple of tuple of str
        For each person the covariates that were missing: every draw took other values in their place, spread like those
        of the training rows. Empty where no value was missing.
    """

    name: str
    index: pd.Index
    columns: pd.Index | None
    extrapolated: np.ndarray
    count: int
    blocks: Callable[[], Iterator[np.ndarray]]
    filled: tuple[tuple[str, ...], ...] = ()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the draws themselves: the function that computes them holds the whole model."""
        numbers = self.count * len(self.index) * self._width
        if numbers > _PICKLE_NUMBERS:
            raise InputError(
                f"{self.count} draws for {self._extent} take "
                f"{8 * numbers / 2**30:.1f} GiB and are not pickled; keep .to_frame() or .arrays(), or predict fewer "
                "people or times at once."
            )
        return _from_draws, (self.name, self.index, self.columns, self.extrapolated, self._cube(), self.filled)

    def __repr__(self) -> str:
        """Return what is predicted, for how many people and when, in one line; nothing is computed for it."""
        return f"<Prediction: {in_words(self)}>"

    def _repr_html_(self) -> str:
        """Return mean and 90 % interval as a table for a notebook, for the first 10 people at 6 times at most.

        Only the first block of people is computed for it, a fraction of a second; nothing if the draws are there.
        """
        return html_table(self)

    def __copy__(self) -> Prediction:
        """Return a copy that computes the same draws."""
        return replace(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Prediction:
        """Return a copy that computes the same draws; labels are immutable and shared."""
        return replace(self, extrapolated=self.extrapolated.copy())

    @cached_property
    def _kept(self) -> dict[str | float, np.ndarray]:
        return {}

    @property
    def _width(self) -> int:
        return 1 if self.columns is None else len(self.columns)

    def _iterate(self) -> Iterator[np.ndarray]:
        if "draws" not in self._kept and self.count * len(self.index) * self._width > _KEEP_NUMBERS:
            yield from self.blocks()
            return
        cube = self._cube()
        for part in people_blocks(len(self.index), self.count * self._width):
            yield cube[:, part]

    @property
    def _extent(self) -> str:
        return f"{counted(len(self.index), 'person', 'people')} at {counted(self._width, 'column')}"

    def _cube(self) -> np.ndarray:
        if "draws" not in self._kept:
            require(
                8.0 * self.count * len(self.index) * self._width,
                f"all {self.count} draws for {self._extent}",
                "Ask for .mean or .interval, which hold no draws, or for fewer people or times at once.",
            )
            # The draws of a number lie side by side, as summaries need them.
            cube = np.moveaxis(np.empty((len(self.index), self._width, self.count)), -1, 0)
            first = 0
            for block in self.blocks():
                cube[:, first : first + block.shape[1]] = block
                first += block.shape[1]
            # All summaries are computed from it, so it must not change.
            cube.flags.writeable = False
            self._kept["draws"] = cube
        return self._kept["draws"]

    def _labelled(self, values: np.ndarray) -> Any:
        # A copy, so that changes to a returned table do not affect the next one.
        if self.columns is None:
            return pd.Series(values[:, 0].copy(), index=self.index, name=self.name)
        return pd.DataFrame(values.copy(), index=self.index, columns=self.columns)

    def _summaries(self, *keys: str | float) -> list[Any]:
        """Return summaries by name, and quantiles by their probability, in the user's tables."""
        self._summarise(*keys)
        return [self._labelled(self._kept[key]) for key in keys]

    def _summarise(self, *keys: str | float) -> None:
        """Compute the summaries that are not there yet, in one pass over the draws."""
        missing = list(dict.fromkeys(key for key in keys if key not in self._kept))
        if missing:
            # One copy is kept here, another is returned.
            require(
                2 * 8.0 * len(missing) * len(self.index) * self._width,
                f"a prediction of {self._extent}",
                "Predict fewer people or times at once.",
            )
            new = {key: np.empty((len(self.index), self._width)) for key in missing}
            first = 0
            for block in self._iterate():
                part = slice(first, first + block.shape[1])
                draws = np.ascontiguousarray(np.moveaxis(block, 0, -1))
                for key in new.keys() & _SUMMARIES.keys():
                    new[key][part] = _SUMMARIES[key](draws)
                probabilities = [key for key in missing if isinstance(key, float)]
                for key, values in zip(probabilities, _quantiles(draws, probabilities), strict=True):
                    new[key][part] = values
                first = part.stop
            self._kept.update(new)

    @property
    def draws(self) -> np.ndarray:
        """All joint draws, shape (S, n, k), or (S, n) where there is one number for each person; read-only."""
        cube = self._cube()
        return cube[:, :, 0] if self.columns is None else cube

    @property
    def mean(self) -> Any:
        """Posterior mean: a DataFrame of n rows and k columns, or a Series."""
        return self._summaries("mean")[0]

    @property
    def std(self) -> Any:
        """Posterior standard deviation, shaped as the mean; infinite where some draws are."""
        return self._summaries("std")[0]

    @property
    def unreached(self) -> Any:
        """Share of draws that are infinite (a quantile that the curve does not reach), shaped as the mean."""
        return self._summaries("unreached")[0]

    @property
    def median(self) -> Any:
        """Posterior median, shaped as the mean."""
        return self.quantile(0.5)

    def quantile(self, probability: float) -> Any:
        """Return a quantile of the posterior, shaped as the mean."""
        if not 0 <= probability <= 1:
            raise InputError(f"probability={probability!r} must lie between 0 and 1.")
        return self._summaries(float(probability))[0]

    def interval(self, level: float = 0.9) -> Interval:
        """Return the equal-tailed credible interval that holds `level` of the posterior, for each column separately.

        Examples
        --------
        >>> from neuralsurv import NeuralSurv
        >>> from neuralsurv.data.simulate import lognormal_cohort
        >>> cohort = lognormal_cohort(40, seed=1)
        >>> model = NeuralSurv(random_state=0)
        >>> curves = model.fit(cohort.x, cohort.y).predict_survival(cohort.x.head(2), times=[10, 20])
        >>> lower, upper = curves.interval(0.9)
        >>> bool((lower <= curves.median).all(axis=None) and (curves.median <= upper).all(axis=None))
        True
        """
        return Interval(*self._summaries(*_ends(level)))

    def arrays(self, level: float = 0.9) -> dict[str, np.ndarray]:
        """Return mean, median, lower, upper and unreached as bare arrays of shape (n, k), from one pass over the draws.

        For programs that make many predictions; k is 1 where there is one number for each person.
        """
        keys: dict[str, str | float] = {"mean": "mean", "median": 0.5, "unreached": "unreached"}
        keys["lower"], keys["upper"] = _ends(level)
        self._summarise(*keys.values())
        return {name: self._kept[keys[name]].copy() for name in ("mean", "median", "lower", "upper", "unreached")}

    def to_frame(self, level: float = 0.9) -> pd.DataFrame:
        """Return a long table: one row for each person and column, with mean, median, interval and extrapolation.

        Where covariates were missing, the column ``filled_in`` names those that were filled in for each person.
        """
        people = np.repeat(np.arange(len(self.index)), self._width)
        frame = pd.DataFrame({name: table.reshape(-1) for name, table in self.arrays(level).items()})
        if not frame["unreached"].any():
            frame = frame.drop(columns="unreached")
        if self.columns is not None:
            each = np.tile(np.arange(self._width), len(self.index))
            for place, labels in enumerate(_levels(self.columns)):
                frame.insert(place, _name(labels, "time"), labels.take(each))
        frame.insert(0, _name(self.index, "person"), self.index.to_flat_index().take(people))
        frame["extrapolated"] = np.tile(self.extrapolated, len(self.index))
        if self.filled:
            frame["filled_in"] = np.repeat(np.array([", ".join(names) for names in self.filled]), self._width)
        return frame

    def average(self) -> np.ndarray:
        """Return the mean over people of every draw, shape (S, k), block by block."""
        total = sum(block.sum(axis=1) for block in self.blocks())
        return np.asarray(total / len(self.index))

    def head(self, people: int) -> Prediction:
        """Return the prediction for the first `people` people; nothing is computed for those of later blocks."""
        if "draws" in self._kept:
            cube = self._kept["draws"][:, :people]
            return _from_draws(
                self.name, self.index[:people], self.columns, self.extrapolated, cube, self.filled[:people]
            )

        def blocks() -> Iterator[np.ndarray]:
            wanted = people
            for block in self.blocks():
                yield block[:, :wanted]
                wanted -= block.shape[1]
                if wanted <= 0:
                    return

        return replace(self, index=self.index[:people], blocks=blocks, filled=self.filled[:people])

    def plot(self, level: float = 0.9, ax: Any = None, **options: Any) -> Any:
        """Draw every person's median with its band and return the axes (needs matplotlib)."""
        from neuralsurv.prediction.plots import plot_prediction

        return plot_prediction(self, level=level, ax=ax, **options)


def _from_draws(
    name: str,
    index: pd.Index,
    columns: pd.Index | None,
    extrapolated: np.ndarray,
    cube: np.ndarray,
    filled: tuple[tuple[str, ...], ...] = (),
) -> Prediction:
    """Return the prediction of these draws."""
    found = Prediction(name, index, columns, extrapolated, len(cube), lambda: iter([cube]), filled)
    cube.flags.writeable = False
    found._kept["draws"] = cube
    return found


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


def _ends(level: float) -> tuple[float, float]:
    """Return the probabilities at the ends of the interval of a level."""
    check_level(level)
    return float((1 - level) / 2), float((1 + level) / 2)


def _levels(index: pd.Index) -> list[pd.Index]:
    """Return the levels of the columns: cause and time of a prediction for several causes, else time alone."""
    return [index.get_level_values(number) for number in range(index.nlevels)]


def _name(index: pd.Index, default: str) -> Any:
    return default if index.name is None else index.name


def _spread(draws: np.ndarray) -> np.ndarray:
    """Return the standard deviation over the draws; infinite where some draws are."""
    infinite = np.isinf(draws).any(axis=-1)
    finite = np.where(infinite[..., None], 0.0, draws)
    # Moving the exponents changes no digit, and keeps squares of huge and of tiny numbers in range.
    exponent = np.frexp(np.abs(finite).max(axis=-1, initial=0.0))[1]
    spread = np.ldexp(np.ldexp(finite, -exponent[..., None]).std(axis=-1), exponent)
    return np.asarray(np.where(infinite, np.inf, spread))


def _quantiles(draws: np.ndarray, probabilities: list[float]) -> list[np.ndarray]:
    """Return quantiles over the draws, as numpy does; between a finite and an infinite draw, the finite one.

    Sorting once costs less than selecting each.
    """
    if not probabilities:
        return []
    ordered, last = np.sort(draws, axis=-1), draws.shape[-1] - 1
    found = []
    for probability in probabilities:
        below = int(np.floor(probability * last))
        share = probability * last - below
        low, high = ordered[..., below], ordered[..., min(below + 1, last)]
        high = np.where(np.isinf(high), low, high)
        gap = np.subtract(high, low, out=np.zeros_like(low), where=np.isfinite(low))
        # From the nearer of the two, so that it is met exactly.
        found.append(low + gap * share if share < 0.5 else high - gap * (1 - share))
    return found


# Summaries by name: from draws of shape (n, k, S) to values of shape (n, k).
_SUMMARIES: dict[str | float, Callable[[np.ndarray], np.ndarray]] = {
    "mean": lambda draws: np.asarray(draws.mean(axis=-1)),
    "std": _spread,
    "unreached": lambda draws: np.asarray(np.isinf(draws).mean(axis=-1)),
}
