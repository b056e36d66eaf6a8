"""Concordant pairs of survival curves, for Antolini's index: exact, without a table of all pairs.

The index asks, at the time t_i of every event, which curves of the rows that outlive i lie above the curve of i. With n
rows and D events that is n × D evaluations of a curve. Most of them can be avoided. Events are taken in blocks that
follow each other in time within one interval of the grid, where all curves are straight lines. Between the first and
the last event of the block a line stays between its two end values, and so does its distance from a common line, the
mean of all. So after sorting the block's own values by their distance from the common line, a curve is surely above all
values below its lower end and surely below all values above its upper end; only the values between its two ends, few
when blocks are short, are compared with the curve as it is read at t_i. Rows that come or go within the block are
compared one by one. Work grows as n × (number of blocks), memory as n.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from neuralsurv.data.outcome import Outcome
from neuralsurv.metrics.curves import BLOCK, Curves, between, row_blocks

# Events in a block: more means fewer passes over all rows, but longer blocks, in which more curves have to be read.
_EVENTS = 256
# Far above the rounding of sums of numbers in [0, 1], far below what two different curves differ by.
_MARGIN = 1e-12


@dataclass(frozen=True)
class _Lines:
    """The curves over one interval of the grid, where they are straight lines: their values at its two ends."""

    start: np.ndarray
    end: np.ndarray

    def take(self, rows: np.ndarray) -> _Lines:
        return _Lines(self.start[rows], self.end[rows])

    def at(self, fraction: np.ndarray | float) -> np.ndarray:
        return between(self.start, self.end, fraction)


@dataclass(frozen=True)
class _EventBlock:
    """Consecutive events within one interval of the grid: times, positions in it, own survival, weights of pairs."""

    time: np.ndarray
    fraction: np.ndarray
    own: np.ndarray
    pair: np.ndarray


def concordant_curves(outcome: Outcome, curves: Curves, counted: np.ndarray, pair: np.ndarray) -> float:
    """Return the total weight of the concordant pairs, ties counted half.

    A pair (i, j) counts ``pair[i] * outcome.weight[j]`` if `counted` says that the event of i counts.
    """
    events = np.flatnonzero(counted)
    events = events[np.argsort(outcome.time[events], kind="stable")]
    advice = "give curves on a longer grid, or tau, so that only events before it count"
    knot, fraction = curves.locate(outcome.time[events], "events", advice)
    which, curve = _distinct(curves.table)
    total = 0.0
    for first, last in _blocks(knot):
        if first == 0 or knot[first] != knot[first - 1]:
            lines = _Lines(curves.column(knot[first]).copy(), curves.column(knot[first] + 1).copy())
        rows, part = events[first:last], fraction[first:last]
        block = _EventBlock(outcome.time[rows], part, lines.take(rows).at(part), pair[rows])
        throughout, partly = _present(outcome, block.time[0], block.time[-1])
        total += _partly_present(outcome, block, lines, partly)
        # Equal curves are one curve with the weight of all.
        weight = np.bincount(which[throughout], weights=outcome.weight[throughout], minlength=len(curve))
        there = np.flatnonzero(weight)
        if len(there):
            total += _present_throughout(block, lines.take(curve[there]), weight[there])
    return total


def _blocks(knot: np.ndarray) -> list[tuple[int, int]]:
    """Return the ends of runs of events, at most `_EVENTS` each, that lie in one interval of the grid."""
    cuts = np.flatnonzero(np.diff(knot)) + 1
    edges = [0, *cuts.tolist(), len(knot)]
    return [
        (begin, min(begin + _EVENTS, stop)) for start, stop in pairwise(edges) for begin in range(start, stop, _EVENTS)
    ]


def _distinct(table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return which distinct curve each row has, and the first row of each distinct curve."""
    whole = np.ascontiguousarray(table)
    order = np.argsort(whole.view(np.dtype((np.void, whole.dtype.itemsize * whole.shape[1]))).ravel(), kind="stable")
    new = np.ones(len(table), dtype=bool)
    for part in row_blocks(len(table) - 1, table.shape[1]):
        later = slice(part.start + 1, part.stop + 1)
        new[later] = (whole[order[later]] != whole[order[part]]).any(axis=1)
    which = np.empty(len(table), dtype=np.intp)
    which[order] = np.cumsum(new) - 1
    return which, order[new]


def _present(outcome: Outcome, first: float, last: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows that every event between two times is compared with, and those that only some may be."""
    outlives = (outcome.time > last) | ((outcome.time == last) & ~outcome.event)
    entered = outcome.entry < first
    some = (outcome.time >= first) & (outcome.entry < last) & ~(outlives & entered)
    return np.flatnonzero(outlives & entered), np.flatnonzero(some)


def _partly_present(outcome: Outcome, block: _EventBlock, lines: _Lines, rows: np.ndarray) -> float:
    """Return the weight of concordant pairs with rows that are at risk during a part of the block only."""
    total = 0.0
    for part in row_blocks(len(rows), len(block.time)):
        chosen = rows[part]
        time, event, entry = (values[chosen, None] for values in (outcome.time, outcome.event, outcome.entry))
        compared = ((time > block.time) | ((time == block.time) & ~event)) & (entry < block.time)
        own = lines.take(chosen)
        values = between(own.start[:, None], own.end[:, None], block.fraction)
        total += float(outcome.weight[chosen] @ (compared * _score(values, block.own)) @ block.pair)
    return total


def _present_throughout(block: _EventBlock, lines: _Lines, weight: np.ndarray) -> float:
    """Return the weight of concordant pairs with curves that are at risk during the whole block."""
    low, high = block.fraction[0], block.fraction[-1]
    first, last = lines.at(low), lines.at(high)
    middle = float(first.mean()), float(last.mean())
    way = (block.fraction - low) / (high - low) if high > low else np.zeros(len(block.fraction))
    distance = block.own - between(middle[0], middle[1], way)
    order = np.argsort(distance, kind="stable")
    distance = distance[order]
    first, last = first - middle[0], last - middle[1]
    surely = np.searchsorted(distance, np.minimum(first, last) - _MARGIN, side="left")
    maybe = np.searchsorted(distance, np.maximum(first, last) + _MARGIN, side="right")
    counts = np.concatenate([[0.0], np.cumsum(block.pair[order])])
    total = float((weight * counts[surely]).sum())
    unclear = np.flatnonzero(maybe > surely)
    many = maybe[unclear] - surely[unclear]
    ends = np.cumsum(many)
    start = 0
    while start < len(unclear):
        done = ends[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, done + BLOCK, side="right")))
        chosen, number = unclear[start:stop], many[start:stop]
        line = np.repeat(chosen, number)
        # 0, 1, … within each line's run, from its first unclear value on
        step = np.arange(len(line)) - np.repeat(ends[start:stop] - number - done, number)
        value = order[np.repeat(surely[chosen], number) + step]
        score = _score(lines.take(line).at(block.fraction[value]), block.own[value])
        total += float((weight[line] * block.pair[value] * score).sum())
        start = stop
    return total


def _score(value: np.ndarray, own: np.ndarray) -> np.ndarray:
    """Return 1 where a curve is above, ½ where it is equal, 0 where it is below."""
    return np.asarray(0.5 * ((value > own).astype(np.float64) + (value >= own)))


def dominance_sums(rank: np.ndarray, weight: np.ndarray, prefix: np.ndarray, limit: np.ndarray) -> np.ndarray:
    """Return, for each query, the total weight of the rows among the first `prefix` whose rank is below `limit`.

    Ranks start at 0 and, like the weights, are in the order that `prefix` counts in.

    Notes
    -----
    Ranks are taken apart bit by bit from the highest, everything with a 0 moved before everything with a 1 (a wavelet
    matrix). A query follows its limit's bits: where that is 1, what has a 0 in its range is below the limit. There are
    log2(n) rounds of a few array operations over all rows and all queries at once.
    """
    top = max(int(rank.max(initial=0)), int(limit.max(initial=0)))
    low, high = np.zeros_like(prefix), prefix
    total = np.zeros(len(prefix))
    for bit in range(top.bit_length() - 1, -1, -1):
        is_zero = (rank >> bit) & 1 == 0
        zeros = np.concatenate([[0], np.cumsum(is_zero)])
        zero_weight = np.concatenate([[0.0], np.cumsum(np.where(is_zero, weight, 0.0))])
        zeros_low, zeros_high = zeros[low], zeros[high]
        ones = (limit >> bit) & 1 == 1
        total += np.where(ones, zero_weight[high] - zero_weight[low], 0.0)
        low = np.where(ones, zeros[-1] + low - zeros_low, zeros_low)
        high = np.where(ones, zeros[-1] + high - zeros_high, zeros_high)
        order = np.concatenate([np.flatnonzero(is_zero), np.flatnonzero(~is_zero)])
        rank, weight = rank[order], weight[order]
    return total
