"""The columns of the default model as a solver takes them, of one cause of events or of several."""

from __future__ import annotations

import torch
from torch import Tensor

from neuralsurv.model.additive import Additive
from neuralsurv.model.points import Points
from neuralsurv.solvers.parted import Copy, parted_scales
from neuralsurv.solvers.separable import SeparableScales, SeparableTerm, separable_scales


def separable_terms(network: Additive, features: dict[str, Tensor], time: Tensor) -> list[SeparableTerm]:
    """Return the columns of a network of one cause at P scaled times; the bias comes last."""
    factors = network.factors(time)
    terms = [
        SeparableTerm(None, factors[term.factor])
        if term.feature is None
        else SeparableTerm(features[term.feature], factors[term.factor].squeeze(1))
        for term in network.terms
    ]
    return [*terms, SeparableTerm(None, torch.ones_like(time)[:, None])]


def cause_scales(network: Additive, points: Points, features: dict[str, Tensor], unit: Tensor) -> SeparableScales:
    """Return the solver of several causes: the points of each have the columns of one cause.

    Those of a contrast are columns that all causes share, times what the contrast is for the cause.
    """
    assert points.cause is not None
    places = [(points.cause == cause).nonzero().squeeze(1) for cause in range(network.causes)]
    alone = network.of_cause(0)
    shared = network.shared_places
    parts = [
        separable_scales(points.row[place], separable_terms(alone, features, points.time[place]), unit[shared])
        for place in places
    ]
    copies = [
        Copy(source, target, network.contrasts[:, contrast]) for source, target, contrast in network.contrast_places
    ]
    return parted_scales(parts, places, unit, shared, copies)
