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
    """

    time: Tensor
    row: Tensor
    weight: Tensor
    events: int

    def __len__(self) -> int:
        """Return the number of points P."""
        return len(self.time)


def build_points(cohort: Cohort, rule: Rule, rho: float) -> Points:
    """Lay out the points of a cohort.

    Parameters
    ----------
    cohort : Cohort
        Rows in scaled time.
    rule : Rule
        Quadrature rule.
    rho : float
        Exponent of the baseline hazard.
    """
    who = torch.nonzero(cohort.event).squeeze(1)
    nodes = rule.nodes(cohort.entry, cohort.time, rho)
    return Points(
        time=torch.cat([cohort.time[who], nodes.time]),
        row=torch.cat([who, nodes.row]),
        weight=torch.cat([cohort.weight[who], cohort.weight[nodes.row] * nodes.weight]),
        events=len(who),
    )
