"""The points at which the model is evaluated: one for every event, and the quadrature nodes of every row."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from neuralsurv.data.cohort import Cohort
from neuralsurv.model.quadrature import Rule


@dataclass(frozen=True)
class Points:
    """Events first, then nodes.

    Attributes
    ----------
    time : Tensor of shape (P,)
        Scaled time of each point.
    row : Tensor of shape (P,)
        The row whose covariates belong to the point.
    weight : Tensor of shape (P,)
        The row's weight at an event; row weight times quadrature weight at a node. Not yet divided by Z.
    events : int
        How many of the points are events.
    cause : Tensor of shape (P,), or None
        The cause that each point belongs to: a row has the same nodes for every cause. None where there is one.
    """

    time: Tensor
    row: Tensor
    weight: Tensor
    events: int
    cause: Tensor | None = None

    def __len__(self) -> int:
        """Return the number of points P."""
        return len(self.time)

    def inputs(self, x: Tensor) -> Tensor:
        """Return what a network sees of the points beside time: rows of x, then the cause if there are several."""
        rows = x[self.row]
        return rows if self.cause is None else torch.cat([rows, self.cause[:, None].to(rows.dtype)], 1)


def build_points(cohort: Cohort, rule: Rule, rho: float, causes: int = 1) -> Points:
    """Lay out the points of a cohort.

    Parameters
    ----------
    cohort : Cohort
        Rows in scaled time.
    rule : Rule
        Quadrature rule.
    rho : float
        Exponent of the baseline hazard.
    causes : int
        Number of causes K.
    """
    who = torch.nonzero(cohort.event).squeeze(1)
    nodes = rule.nodes(cohort.entry, cohort.time, rho)
    time = torch.cat([cohort.time[who], nodes.time.repeat(causes)])
    row = torch.cat([who, nodes.row.repeat(causes)])
    weight = torch.cat([cohort.weight[who], (cohort.weight[nodes.row] * nodes.weight).repeat(causes)])
    if cohort.cause is None or causes == 1:
        return Points(time, row, weight, len(who))
    each = torch.arange(causes).repeat_interleave(len(nodes.time))
    return Points(time, row, weight, len(who), torch.cat([cohort.cause[who], each]))
