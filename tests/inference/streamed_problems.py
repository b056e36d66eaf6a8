"""Small cohorts as packed rows, with the terms of both models, for tests of streamed inference."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from inference.problems import Rows, simulated
from neuralsurv.inference.additive_model import build_network, build_prior
from neuralsurv.inference.distributed import Alone
from neuralsurv.inference.kept_directions import Directions
from neuralsurv.inference.packed import PackedRows, Packer
from neuralsurv.inference.terms import AugmentedTerms, HeldTerms, Linear
from neuralsurv.model.hazard import Constant, Half
from neuralsurv.model.network import MLP
from neuralsurv.model.points import build_points
from neuralsurv.model.prior import Gamma, GroupedPrior
from neuralsurv.model.quadrature import GaussLegendre, ShiftedLog
from neuralsurv.presets import DEFAULT, DefaultChoices, resolve

COHORT = simulated(700, covariates=3, entry=True, weight=True, seed=5)


def pack(rows: Rows, *, chunk: int = 200) -> PackedRows:
    """Return rows packed in chunks whose last block is not full."""
    packer = Packer(None, rows.x.shape[1], seed=0)
    for number, first in enumerate(range(0, len(rows.time), chunk)):
        part = rows.take(torch.arange(first, min(first + chunk, len(rows.time))))
        packer.add(number, *(np.asarray(values) for values in part.arguments))
    return packer.finish(Alone())


def held_terms(rows: Rows = COHORT, hidden: tuple[int, ...] = (4,), star: float = 0.0) -> tuple[HeldTerms, Tensor]:
    """Return the terms of the default model, all directions kept, linearised at random weights of size `star`."""
    choices = resolve("default", hidden=hidden)
    assert isinstance(choices, DefaultChoices)
    network = build_network(rows.time[rows.event], rows.weight[rows.event], rows.x.shape[1], choices, 3)
    prior = build_prior(network, choices)
    mode = star * torch.randn(network.size, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    rule = ShiftedLog(DEFAULT.quadrature_points, network.basis.shift)
    directions = Directions(prior, None, network.size)
    phi = rows.events / rows.exposure(1.0)
    return HeldTerms(Linear(network, Constant(1 / 30), 1.0, rule, mode, directions), phi), mode


def augmented_terms(rows: Rows = COHORT, hidden: tuple[int, ...] = (3,)) -> tuple[AugmentedTerms, Tensor]:
    """Return the terms of the paper's model at random weights of moderate size."""
    network = MLP(rows.x.shape[1], hidden, "tanh")
    mode = network.initial(torch.Generator().manual_seed(2))
    directions = Directions(GroupedPrior(torch.ones(network.size, dtype=torch.float64), ()), None, network.size)
    rule = GaussLegendre(6)
    points = build_points(rows.time, rows.event, rows.entry, rows.weight, rule, 1.3)
    linear = Linear(network, Half(), 1.3, rule, mode, directions)
    baseline = float(points.weight[points.events :].sum()) * 2
    return AugmentedTerms(linear, Gamma(1.5, 0.8), rows.events, baseline), mode
