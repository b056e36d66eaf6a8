r"""Quadrature rules for :math:`\int_e^y t^{\rho-1} f(t)\,\mathrm{d}t`.

Both rules work in :math:`u = t^\rho`, where the weight function is the constant :math:`1/\rho` and
:math:`\rho < 1` is no singularity. With :math:`\rho = 1` the trapezoid is the one of the paper (appendix I).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

# A time that sits on a grid point up to rounding belongs to that point, so that a change of the unit of time
# cannot move a row from one cell to the next.
_GRID_SLACK = 1e-9


@dataclass(frozen=True)
class Nodes:
    r"""Quadrature nodes of all rows, one after another.

    Attributes
    ----------
    time : Tensor of shape (Q,)
        Node times, in scaled time.
    weight : Tensor of shape (Q,)
        Weights that already hold :math:`t^{\rho-1}`, so that ``sum(weight * f(time))`` is the integral.
    row : Tensor of shape (Q,)
        The row that each node belongs to.
    """

    time: Tensor
    weight: Tensor
    row: Tensor


class Rule(Protocol):
    """A quadrature rule on (entry, time], the same for every row."""

    def nodes(self, entry: Tensor, time: Tensor, rho: float) -> Nodes:
        """Return the nodes of all rows."""
        ...


@dataclass(frozen=True)
class GaussLegendre:
    r"""Gauss–Legendre rule with `count` nodes in :math:`u = t^\rho`.

    Examples
    --------
    >>> import torch
    >>> from neuralsurv.model.quadrature import GaussLegendre
    >>> entry, time = torch.zeros(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64)
    >>> nodes = GaussLegendre(8).nodes(entry, time, rho=0.5)
    >>> round(float((nodes.weight * nodes.time).sum()), 12)  # the integral of t^(-1/2) t is 2/3
    0.666666666667
    """

    count: int = 32

    def nodes(self, entry: Tensor, time: Tensor, rho: float) -> Nodes:
        """Return `count` nodes for every row.

        Parameters
        ----------
        entry, time : Tensor of shape (N,)
            The interval of each row, in scaled time.
        rho : float
            Exponent of the baseline hazard.
        """
        position, weight = (torch.from_numpy(a) for a in np.polynomial.legendre.leggauss(self.count))
        low, high = entry**rho, time**rho
        half = (high - low)[:, None] / 2
        u = low[:, None] + half * (1 + position)
        rows = torch.arange(len(time)).repeat_interleave(self.count)
        return Nodes((u ** (1 / rho)).reshape(-1), (half * weight / rho).reshape(-1), rows)


@dataclass(frozen=True)
class Trapezoid:
    """The paper's rule: one common grid of `count` points on [0, 1], cut at the last grid point <= time.

    What lies between that grid point and the observed time is left out, as the paper's published posterior rates
    show. The same cut is applied to the entry time, so that a row split in two at any inner time is exactly the row.
    """

    count: int = 200

    def nodes(self, entry: Tensor, time: Tensor, rho: float) -> Nodes:
        """Return the grid points between the cut entry and the cut time of every row, with trapezoid weights."""
        cells = self.count - 1
        grid = torch.arange(self.count, dtype=torch.float64) / cells
        u = grid**rho
        step = (u[1:] - u[:-1]) / (2 * rho)
        first, last = ((torch.floor(t * cells + _GRID_SLACK)).long() for t in (entry, time))
        index = torch.arange(self.count)
        # A node takes half of the cell on each side of it, where that cell lies inside the row's interval.
        left = torch.cat([step.new_zeros(1), step]) * ((index > first[:, None]) & (index <= last[:, None]))
        right = torch.cat([step, step.new_zeros(1)]) * ((index >= first[:, None]) & (index < last[:, None]))
        weight = left + right
        rows, points = torch.nonzero(weight, as_tuple=True)
        return Nodes(grid[points], weight[rows, points], rows)


def missing_share(entry: Tensor, time: Tensor, weight: Tensor, nodes: Nodes, rho: float) -> float:
    """Return the part of the baseline exposure that a rule leaves out.

    Parameters
    ----------
    entry, time, weight : Tensor of shape (N,)
        Intervals and weights of the rows.
    nodes : Nodes
        What the rule made of them.
    rho : float
        Exponent of the baseline hazard.
    """
    exact = float((weight * (time**rho - entry**rho)).sum() / rho)
    taken = float((weight[nodes.row] * nodes.weight).sum())
    return 1 - taken / exact


@dataclass(frozen=True)
class ShiftedLog:
    r"""Gauss–Legendre rule with `count` nodes in :math:`\log(t + \epsilon)`, for hazards that change by factors.

    Nodes are dense where time is short, so that few of them do for a long row whose hazard changes early.

    Examples
    --------
    >>> import torch
    >>> from neuralsurv.model.quadrature import ShiftedLog
    >>> entry, time = torch.zeros(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64)
    >>> nodes = ShiftedLog(8, shift=0.1).nodes(entry, time, rho=1.0)
    >>> round(float((nodes.weight / (nodes.time + 0.1)).sum()), 9)  # the logarithm of 1.1 / 0.1
    2.397895273
    """

    count: int
    shift: float

    def nodes(self, entry: Tensor, time: Tensor, rho: float) -> Nodes:
        """Return `count` nodes for every row."""
        position, weight = (torch.from_numpy(a) for a in np.polynomial.legendre.leggauss(self.count))
        low, high = (torch.log(t + self.shift) for t in (entry, time))
        half = (high - low)[:, None] / 2
        shifted = torch.exp(low[:, None] + half * (1 + position))
        at = (shifted - self.shift).clamp_min(0)
        mass = half * weight * shifted * at ** (rho - 1)
        rows = torch.arange(len(time)).repeat_interleave(self.count)
        return Nodes(at.reshape(-1), mass.reshape(-1), rows)


@dataclass(frozen=True)
class RandomLog:
    r"""One random node in each of `count` equal cells of :math:`\log(t + \epsilon)`: few nodes, and right on average.

    For the steps of a stochastic search, which forgive the noise and gain by the price.

    Examples
    --------
    >>> import torch
    >>> from neuralsurv.model.quadrature import RandomLog
    >>> entry, time = torch.zeros(5000, dtype=torch.float64), torch.ones(5000, dtype=torch.float64)
    >>> nodes = RandomLog(4, shift=0.1, seed=(1,)).nodes(entry, time, rho=1.0)
    >>> abs(float((nodes.weight * nodes.time).sum()) / 5000 - 0.5) < 0.01
    True
    """

    count: int
    shift: float
    seed: tuple[int, ...]

    def nodes(self, entry: Tensor, time: Tensor, rho: float) -> Nodes:
        """Return `count` nodes for every row."""
        chance = torch.from_numpy(np.random.default_rng(self.seed).random((len(time), self.count)))
        low, high = (torch.log(t + self.shift) for t in (entry, time))
        cell = (high - low)[:, None] / self.count
        shifted = torch.exp(low[:, None] + cell * (torch.arange(self.count) + chance))
        at = (shifted - self.shift).clamp_min(0)
        rows = torch.arange(len(time)).repeat_interleave(self.count)
        return Nodes(at.reshape(-1), (cell * shifted * at ** (rho - 1)).reshape(-1), rows)
