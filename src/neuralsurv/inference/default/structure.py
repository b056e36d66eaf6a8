"""The network and the prior of the default model; a user-supplied network is trained before it is linearised."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from neuralsurv.data.cohort import Cohort
from neuralsurv.inference.default.curve_choice import choose_curves
from neuralsurv.inference.default.module_training import ModuleTraining, train
from neuralsurv.inference.default.neighbourhood_choice import choose_neighbourhoods
from neuralsurv.inference.default.settings import DefaultSettings
from neuralsurv.model.additive import Additive, sparse_draw
from neuralsurv.model.likelihood import AdditiveLikelihood
from neuralsurv.model.module_network import ModuleNetwork
from neuralsurv.model.network import MLP
from neuralsurv.model.prior import Group, GroupedPrior
from neuralsurv.model.time_basis import place_basis, weighted_quantile
from neuralsurv.solvers.streamed_rows import StreamedRows

# Prior standard deviation of the bias: the average hazard is known to a factor of about 7 either way before the data.
_BIAS_SCALE = 2.0
# Medians and spreads (of the logarithm) of the scales of each group. Those of the covariates, and of the changes of
# their effects with time, are for a sum: each of d standardised covariates has them divided by the root of d; so are
# those of the products. Curves, products and neighbourhoods are next to nothing in most cohorts and matter in some:
# their medians are low and their spreads wide.
_HYPER_PRIORS = {
    "covariates": (0.5, 0.7),
    "curves": (0.2, 1.2),
    "neighbourhoods": (0.03, 1.5),
    "trend": (0.5, 0.7),
    "bumps": (1.0, 0.7),
    "changes": (0.3, 0.7),
    "changes of curves": (0.1, 1.2),
    "changes of neighbourhoods": (0.03, 1.5),
    "pairs": (0.2, 1.2),
    "network": (0.5, 0.8),
    # Deviations of a cause from what all causes share.
    "time by cause": (0.5, 0.7),
    "covariates by cause": (0.5, 0.7),
    "curves by cause": (0.1, 1.2),
}
# By how much more or less they may deviate than the trend, and than constant effects, of the same group: bumps, changes
# of effects with time.
_BY_CAUSE = {"bumps": 2.0, "clock": 0.6}
# Effects may differ before this quantile of the event times.
_EARLY = 0.2
# With more products of two covariates than this (64 covariates or more) the model has none.
_MOST_PAIRS = 2000
# Distances between rows say little where there are more covariates than this.
_COVARIATES_FOR_NEIGHBOURHOODS = 64
# Nodes from which the prior standard deviation of a module is found, and the least that it can be.
_NODES_FOR_SPREAD = 200
_LEAST_SPREAD = 1e-6


def has_pairs(covariates: int, settings: DefaultSettings) -> bool:
    """Return whether the model has products of two covariates."""
    return settings.ablation.pairs and 0 < covariates * (covariates - 1) // 2 <= _MOST_PAIRS


def build_network(
    event_time: Tensor,
    event_weight: Tensor,
    covariates: int,
    settings: DefaultSettings,
    seed: int,
    module: ModuleNetwork | None = None,
) -> Additive:
    """Return a model with a network: a time basis placed by the events, and a random or user-supplied inner network."""
    inner: MLP | ModuleNetwork | None
    if module is not None:
        inner, origin, covariates = module, module.own, module.layout.tabular
    else:
        inner = MLP(covariates, settings.hidden, settings.activation) if settings.hidden else None
        generator = torch.Generator().manual_seed(seed)
        origin = torch.zeros(0, dtype=torch.float64) if inner is None else sparse_draw(inner, generator)
    return Additive(
        covariates=covariates,
        basis=place_basis(event_time, event_weight, settings.ablation.bumps),
        offset=-math.log(settings.headroom - 1),
        inner=inner,
        origin=origin,
        linear=settings.ablation.linear,
        varying=settings.ablation.varying,
        pairs=has_pairs(covariates, settings),
    )


def place_units(cohort: Cohort, settings: DefaultSettings, verbose: bool | str | int = False) -> Additive:
    """Return the default model: no network drawn at random, but curves and neighbourhoods placed by the rows."""
    plain = build_network(cohort.event_time, cohort.event_weight, cohort.covariates, replace(settings, hidden=()), 0)
    early = float(
        weighted_quantile(cohort.event_time, cohort.event_weight, torch.tensor([_EARLY], dtype=torch.float64))
    )
    suits = 0 < cohort.covariates <= _COVARIATES_FOR_NEIGHBOURHOODS
    near = settings.neighbourhoods if suits else 0
    return replace(
        plain,
        curves=choose_curves(cohort, products=plain.pairs) if settings.ablation.curves else None,
        near=choose_neighbourhoods(cohort, count=near, verbose=verbose) if near else None,
        early=early if settings.ablation.early else 0.0,
        levels=_levels(cohort, settings.headroom),
    )


def _levels(cohort: Cohort, headroom: float) -> tuple[float, ...]:
    """Return the offset of each of several causes, where its hazard is the crude rate of its events."""
    if cohort.cause is None:
        return ()
    share = cohort.cause_weights / cohort.event_weight.sum()
    return tuple((-torch.log(headroom / share - 1)).tolist())


def build_prior(network: Additive, settings: DefaultSettings, spread: float = 1.0) -> GroupedPrior:
    """Return the groups of weights with their hyper-priors, the weights of the network scaled by fan-in.

    Those of a module are divided by `spread` besides, the prior standard deviation of its part of g without it.
    """
    linear = network.linear_size
    unit = torch.ones(network.size, dtype=torch.float64)
    for term, place in zip(network.terms, network.places, strict=True):
        if term.feature in ("covariates", "pairs"):
            unit[place] = term.size
        elif term.group is None:
            unit[place] = _BIAS_SCALE**-2
        if term.contrast is not None:
            unit[place] /= _BY_CAUSE.get(term.factor, 1.0) ** 2
    unit[linear - 1] = _BIAS_SCALE**-2
    places = dict(network.groups)
    if network.inner is not None:
        unit[linear:] = network.inner.unit_precision * spread**2
        places["network"] = slice(linear, network.size)
    groups: list[Group] = []
    for name, place in places.items():
        if name == "covariates" and settings.ablation.per_covariate:
            groups += [Group(f"covariate {k}", k, k + 1, *_HYPER_PRIORS[name]) for k in range(place.start, place.stop)]
        else:
            groups.append(Group(name, place.start, place.stop, *_HYPER_PRIORS[name]))
    return GroupedPrior(unit, tuple(groups))


def train_module(
    likelihood: AdditiveLikelihood,
    phi: float,
    module: ModuleNetwork,
    training: ModuleTraining,
    settings: DefaultSettings,
    seed: int,
    verbose: bool | str | int,
) -> tuple[AdditiveLikelihood, ModuleNetwork, int]:
    """Train all trainable weights of the module, and measure g from the result.

    Returns
    -------
    likelihood : AdditiveLikelihood
        With the trained module inside.
    inner : ModuleNetwork
        The trained module.
    epochs : int
        Epochs after which it predicted best.
    """
    whole = module.over(module.trained)
    network = replace(likelihood.network, inner=whole, origin=whole.own)
    likelihood = replace(likelihood, network=network)
    prior = build_prior(network, settings, prior_spread(likelihood, whole))
    precision = prior.at(prior.medians).precision
    learned = train(likelihood, whole, phi, precision, training, seed=seed, dtype=module.dtype, verbose=verbose)
    inner = whole.with_weights(learned.weights).over(module.names)
    return replace(likelihood, network=replace(network, inner=inner, origin=inner.own)), inner, learned.epochs


def prior_spread(likelihood: AdditiveLikelihood, module: ModuleNetwork) -> float:
    """Return the prior standard deviation of the module's part of g at scale 1: its root mean square over nodes."""
    network, points = likelihood.network, likelihood.points
    nodes = len(points) - points.events
    some = points.events + torch.arange(0, nodes, max(1, nodes // _NODES_FOR_SPREAD))
    clock = network.basis.clock(points.time[some])
    rows = StreamedRows(module, network.origin, clock, likelihood.x[points.row[some]])
    square = rows.squared_norms(1 / module.unit_precision)
    weight = points.weight[some]
    return max(float((weight @ square / weight.sum()).sqrt()), _LEAST_SPREAD)
