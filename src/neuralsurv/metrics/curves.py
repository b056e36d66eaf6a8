"""Predicted survival curves on a grid of times: checked, and interpolated between the times."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from neuralsurv.arguments import flat_times
from neuralsurv.data.outcome import Outcome
from neuralsurv.data.row_values import rows_phrase
from neuralsurv.errors import InputError

# Rounding of models that work in single precision; more than this is a mistake.
TOLERANCE = 1e-6
# Size of temporary arrays in numbers, 1 MiB, however many rows there are.
BLOCK = 2**17


@dataclass(frozen=True)
class Curves:
    """Checked curves of n rows, linear between K knots."""

    table: np.ndarray  # survival at the given times, shape (n, T)
    knots: np.ndarray  # the given times, with 0 before them if they start later, shape (K,)
    start: int  # 1 if the knot at 0, where every curve is 1, is not a column of the table; else 0

    @classmethod
    def read(cls, survival: Any, times: Any, rows: int) -> Curves:
        """Check the curves that a user gave: survival of shape (n, T) at strictly increasing times from 0 on.

        Numbers up to 1e-6 outside [0, 1] are rounding and are clipped; a rise of up to 1e-6 between two times is left
        as it is.
        """
        grid = check_grid(times)
        table = np.asarray(as_floats(survival, "survival"))
        if table.shape != (rows, len(grid)):
            raise InputError(
                f"survival has shape {table.shape}; {rows} rows at {len(grid)} times need ({rows}, {len(grid)}): "
                "one row for each person, one column for each time."
            )
        missing, outside, rising = (np.zeros(rows, dtype=bool) for _ in range(3))
        rounded = False
        for part in row_blocks(rows, len(grid)):
            values = table[part]
            missing[part] = np.isnan(values).any(axis=1)
            low, high = values.min(axis=1), values.max(axis=1)
            outside[part] = (low < -TOLERANCE) | (high > 1 + TOLERANCE)
            rising[part] = (values[:, 1:] > values[:, :-1] + TOLERANCE).any(axis=1)
            rounded |= bool((low < 0).any() or (high > 1).any())
        if missing.any():
            raise InputError(
                f"survival is missing (NaN) in {rows_phrase(missing)}; no value is filled in. "
                "Before its first time a curve is 1."
            )
        if outside.any():
            raise InputError(f"survival is outside [0, 1] in {rows_phrase(outside)}; give survival probabilities.")
        if rising.any():
            raise InputError(
                f"survival rises over time in {rows_phrase(rising)}. If these are probabilities of the event, give "
                "1 minus them; if the model's curves are not monotone, give np.minimum.accumulate(survival, axis=1) "
                "and say so."
            )
        start = int(grid[0] > 0)
        knots = np.concatenate([[0.0], grid]) if start else grid
        return cls(np.clip(table, 0.0, 1.0) if rounded else table, knots, start)

    def locate(self, time: np.ndarray, what: str, advice: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the knot at or before each time, and how far the time lies on the way to the next one, in [0, 1)."""
        beyond = time > self.knots[-1]
        if beyond.any():
            raise InputError(
                f"{int(beyond.sum())} of the {len(time)} {what} lie after {self.knots[-1]:g}, the last time of the "
                f"curves (the latest is {time.max():g}); {advice}."
            )
        knot = np.searchsorted(self.knots, time, side="right") - 1
        following = np.minimum(knot + 1, len(self.knots) - 1)
        width = np.where(following > knot, self.knots[following] - self.knots[knot], 1.0)
        return knot, (time - self.knots[knot]) / width

    def column(self, knot: int) -> np.ndarray:
        """Return all curves at a knot; a position after the last knot means the last."""
        column = min(knot, len(self.knots) - 1) - self.start
        return np.ones(len(self.table)) if column < 0 else self.table[:, column]

    def own(self, knot: np.ndarray) -> np.ndarray:
        """Return each curve at its own knot; a position after the last knot means the last."""
        column = np.minimum(knot, len(self.knots) - 1) - self.start
        values = self.table[np.arange(len(self.table)), np.maximum(column, 0)]
        return np.asarray(np.where(column < 0, 1.0, values))


def between(start: np.ndarray | float, end: np.ndarray | float, fraction: np.ndarray | float) -> np.ndarray:
    """Interpolate linearly. Equal ends give equal results, and fraction 0 gives `start`, to the last bit."""
    return np.asarray(start + fraction * (end - start))


def survival_at(time: Any, survival: Any, times: Any) -> np.ndarray:
    """Return each row's survival at its own time.

    The curve is linear between the times of the grid and starts at 1 at time 0, unless the grid has a time 0 with
    another value.

    Parameters
    ----------
    time : array-like of shape (n,)
        One time for each row, for example the observed one.
    survival : array-like of shape (n, T)
        Survival of each row at `times`.
    times : array-like of shape (T,)
        The grid, strictly increasing.

    Returns
    -------
    ndarray of shape (n,)

    Raises
    ------
    InputError
        If a time lies beyond the grid: nothing is extrapolated.

    Examples
    --------
    >>> from neuralsurv.metrics import survival_at
    >>> survival_at([1.0, 3.0], [[0.8, 0.4], [0.9, 0.7]], times=[2.0, 4.0]).round(3).tolist()
    [0.9, 0.8]
    """
    moment = as_floats(time, "time")
    if moment.ndim != 1 or not (np.isfinite(moment) & (moment >= 0)).all():
        raise InputError("time must hold one finite time of at least 0 for each row.")
    curves = Curves.read(survival, times, len(moment))
    knot, fraction = curves.locate(moment, "times", "give curves on a longer grid")
    return between(curves.own(knot), curves.own(knot + 1), fraction)


def as_floats(values: Any, name: str) -> np.ndarray:
    """Return `values` as a float64 array, without a copy where it is one."""
    try:
        return np.asarray(values, dtype=np.float64)
    except (ValueError, TypeError) as error:
        raise InputError(f"{name} cannot be read as numbers: {error}.") from error


def check_grid(times: Any) -> np.ndarray:
    """Return the times of a grid as an array, or refuse them."""
    grid = flat_times(as_floats(times, "times"))
    stuck = np.flatnonzero(np.diff(grid) <= 0)
    if len(stuck):
        raise InputError(
            f"times must increase strictly, but {grid[stuck[0]]:g} is followed by {grid[stuck[0] + 1]:g}; "
            "sort the grid with its columns and drop repeated times."
        )
    return grid


def check_outcome(
    time: Any, event: Any, entry: Any = None, weight: Any = None, *, names: Sequence[str] = ("time", "event", "weight")
) -> Outcome:
    """Return the outcome of rows; `names` are what time, event and weight are called in messages."""
    outcome = Outcome.from_arrays(time, event, entry, weight, names=(*names[:2], "entry", names[2]))
    if not (outcome.weight > 0).any():
        raise InputError(f"column {names[2]!r} is 0 in all {len(outcome)} rows: there are no rows to score.")
    return outcome


def row_blocks(rows: int, width: int) -> Iterator[slice]:
    """Split rows of `width` numbers into blocks of at most `BLOCK` numbers."""
    step = max(1, BLOCK // max(width, 1))
    for first in range(0, rows, step):
        yield slice(first, min(first + step, rows))
