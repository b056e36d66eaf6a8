"""Canonical rows: the same cohort, however it was written down, as the same numbers to the last bit.

The likelihood does not change when rows change places, when a row of weight 2 is written twice, when a row is cut in
two at an inner time, or when time is counted in another unit. A search that starts from these rows should not change
either, and for a network with kinks a difference in the last bit is enough to send it elsewhere. So rows are joined
and merged where the likelihood allows it, rounded far below what data can say, and sorted.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

# Numbers are kept to this many binary digits (a relative 1.5e-11): enough for any data, and coarse enough that the
# rounding of another unit of time or another order of summation does not show.
_DIGITS = 36


@dataclass(frozen=True)
class Rows:
    """Rows in scaled time.

    Attributes
    ----------
    time, entry, weight : ndarray of shape (N,)
        Scaled time and entry, row weight.
    event : bool ndarray of shape (N,)
        Event flags.
    x : ndarray of shape (N, p)
        Encoded covariates.
    """

    time: np.ndarray
    event: np.ndarray
    entry: np.ndarray
    weight: np.ndarray
    x: np.ndarray

    def take(self, rows: np.ndarray) -> Rows:
        """Return some of the rows."""
        return Rows(self.time[rows], self.event[rows], self.entry[rows], self.weight[rows], self.x[rows])


def coarse(values: np.ndarray) -> np.ndarray:
    """Return values rounded to about eleven significant digits, in binary.

    Examples
    --------
    >>> import numpy as np
    >>> from neuralsurv.data.canonical import coarse
    >>> bool(coarse(np.array([0.1 + 0.2])) == coarse(np.array([0.3])))
    True
    """
    fraction, exponent = np.frexp(values)
    return np.asarray(np.ldexp(np.round(np.ldexp(fraction, _DIGITS)), exponent - _DIGITS))


def canonical_rows(rows: Rows) -> Rows:
    """Return the canonical form of a cohort: rounded, merged, joined and sorted.

    Parameters
    ----------
    rows : Rows
        Rows in any order, possibly repeated or cut in pieces.

    Examples
    --------
    >>> import numpy as np
    >>> from neuralsurv.data.canonical import Rows, canonical_rows
    >>> x, one = np.zeros((2, 1)), np.ones(2)
    >>> cut = Rows(np.array([0.4, 1.0]), np.array([False, True]), np.array([0.0, 0.4]), one, x)
    >>> canonical_rows(cut).time, canonical_rows(cut).entry
    (array([1.]), array([0.]))
    """
    rounded = Rows(coarse(rows.time), rows.event, coarse(rows.entry), rows.weight, rows.x)
    # Two close ends may meet when rounded; such a row would have no time at risk.
    apart = rounded.entry < rounded.time
    time, entry = np.where(apart, rounded.time, rows.time), np.where(apart, rounded.entry, rows.entry)
    rounded = Rows(time, rounded.event, entry, rounded.weight, rounded.x)
    return _merge(_join(_merge(rounded)))


def _merge(rows: Rows) -> Rows:
    """Sort the rows, and make one of all that are equal but for their weight."""
    same = np.column_stack([rows.x, rows.event, rows.entry, rows.time])
    # The last key counts most; the weight, first, only orders rows that are equal otherwise.
    order = np.lexsort(np.column_stack([rows.weight, same]).T)
    rows, same = rows.take(order), same[order]
    starts = np.flatnonzero(np.concatenate([[True], (same[1:] != same[:-1]).any(axis=1)]))
    merged = rows.take(starts)
    return Rows(merged.time, merged.event, merged.entry, np.add.reduceat(rows.weight, starts), merged.x)


def _join(rows: Rows) -> Rows:
    """Join a piece without event to the piece that goes on where it ends, with the same covariates and weight."""
    if not (rows.entry > 0).any():
        return rows
    alike = np.unique(np.column_stack([rows.x, rows.weight]), axis=0, return_inverse=True)[1].reshape(-1)
    waiting: dict[tuple[int, float], list[int]] = {}
    for row in range(len(rows.time)):
        waiting.setdefault((int(alike[row]), float(rows.entry[row])), []).append(row)
    time, event = rows.time.copy(), rows.event.copy()
    gone = np.zeros(len(time), dtype=bool)
    for row in np.argsort(rows.entry, kind="stable"):
        while not gone[row] and not event[row]:
            following = waiting.get((int(alike[row]), float(time[row])))
            if not following:
                break
            piece = following.pop()
            time[row], event[row] = time[piece], event[piece]
            gone[piece] = True
    return Rows(time, event, rows.entry, rows.weight, rows.x).take(~gone)
