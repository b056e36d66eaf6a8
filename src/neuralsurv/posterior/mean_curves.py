r"""Posterior means of curves, from draws whose first two moments are exact for every person.

The error of a mean over S independent draws falls like :math:`S^{-1/2}`: a thousand of them leave 0.002 to 0.005 in a
survival probability. Where g is a sum of features of x times functions of time, a person's whole curve depends on a few
coefficients, :math:`g(t, x) = \sum_k a_k\psi_k(t)`, whose posterior mean and covariance are known exactly. The draws of
these coefficients are moved and stretched, for each person, until their mean and covariance are the exact ones. What
remains is the error of the moments beyond the second.

A mean is worked out in single precision and at few times, evenly spaced on the clock, and interpolated between them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from scipy.interpolate import PchipInterpolator
from torch import Tensor

from neuralsurv.model.additive import Additive
from neuralsurv.model.hazard import Constant
from neuralsurv.model.quadrature import GaussLegendre
from neuralsurv.posterior.gaussian import Draws, Posterior, people_blocks

_DRAWS = 2048
_SEED = 0
# Shares of the draws that take turns where a mean is itself averaged over several rows of a person.
_SHARES = 4
# Panels on the clock within the training range, and nodes of each.
_PANELS = 48
_NODES = 2
# The covariance matrix of more weights takes too long to work with.
_MOST_WEIGHTS = 2000
# Added to both covariances before they are matched, as a share of the variances: what does not vary stays as it is.
_RIDGE = 1e-6
# Numbers of a block of people with all draws; it stays in a cache.
_BLOCK_NUMBERS = 2**20


@dataclass(frozen=True)
class Coefficient:
    """One coefficient of a person's curve: a product of features of x with some of the weights."""

    blocks: tuple[str, ...]  # of features
    constant: bool  # whether a column of ones follows them
    weights: Tensor  # places of the weights, in the order of the columns

    def design(self, features: dict[str, Tensor]) -> Tensor:
        """Return the columns for n rows, shape (n, number of weights)."""
        ones = torch.ones(len(features["covariates"]), int(self.constant), dtype=torch.float64)
        return torch.cat([*(features[name] for name in self.blocks), ones], 1)


@dataclass(frozen=True)
class MeanCurves:
    """Posterior means of curves; made by `mean_curves`."""

    network: Additive
    ceiling: float  # hazard where g is large, but for phi
    coefficients: tuple[Coefficient, ...]
    # Mean and covariance of the weights, shapes (m,) and (m, m), and the covariance of their draws.
    mean: Tensor
    exact: Tensor
    sampled: Tensor
    # Of the draws, in single precision: deviations of each coefficient's weights, shape (weights, S), and phi, (S,).
    deviations: tuple[Tensor, ...]
    phi: Tensor

    @cached_property
    def shares(self) -> tuple[MeanCurves, ...]:
        """The same means, each from a share of the draws."""
        places = torch.cat([each.weights for each in self.coefficients])
        weights = torch.cat(self.deviations)[places.argsort()].T
        return tuple(
            replace(self, **_sample(weights[k::_SHARES].double(), self.phi[k::_SHARES], self.coefficients))
            for k in range(_SHARES)
        )

    def survival(self, times: Tensor, x: Tensor) -> Tensor:
        """Return mean survival of n people, x (n, d), at T scaled times, shape (n, T)."""
        least = torch.finfo(torch.float32).tiny
        return self._curve(times, x, lambda drawn: -drawn.neg_().exp_().mean(2).clamp_min(least).log_()).neg_().exp_()

    def cumulative_hazard(self, times: Tensor, x: Tensor) -> Tensor:
        """Return the mean cumulative hazard of n people at T scaled times, shape (n, T)."""
        return self._curve(times, x, lambda drawn: drawn.mean(2))

    def _curve(self, times: Tensor, x: Tensor, average: Callable[[Tensor], Tensor]) -> Tensor:
        """Interpolate what `average` makes of drawn cumulative hazards (n, E, S): a cumulative hazard (n, E)."""
        basis = self.network.basis
        # At least the training range, so that a value there does not depend on the other times.
        edges = basis.even_times(_PANELS + 1, max(1.0, float(times.max())))
        knots = torch.zeros(len(x), len(edges), dtype=torch.float64)
        knots[:, 1:] = self._at_edges(edges, x, average)
        knots = knots.cummax(1).values
        # Monotone between the knots, which are evenly spaced on the clock.
        interpolant = PchipInterpolator(basis.clock(edges).numpy(), knots.numpy(), axis=1)
        return torch.from_numpy(np.maximum(interpolant(basis.clock(times).numpy()), 0.0))

    def _at_edges(self, edges: Tensor, x: Tensor, average: Callable[[Tensor], Tensor]) -> Tensor:
        rule = GaussLegendre(_NODES).nodes(edges[:-1], edges[1:], 1.0)
        # The first nodes of all panels come first, then the second ones, so that whole blocks are added up.
        time, weight = (each.reshape(-1, _NODES).T.reshape(-1) for each in (rule.time, rule.weight))
        mass = (self.ceiling * weight)[:, None].float()
        functions = self._functions(time)
        features = self.network.features(x)
        designs = [each.design(features) for each in self.coefficients]
        centre = torch.stack([design @ self.mean[k.weights] for k, design in self._with(designs)], 1)
        stretch = _stretch(self._covariance(designs, self.exact), self._covariance(designs, self.sampled))
        level = (centre @ functions + self.network.offset).float()
        shapes = (functions.T @ stretch).float()
        rows = [design.float() for design in designs]
        found = torch.empty(len(x), len(edges) - 1, dtype=torch.float32)
        for block in people_blocks(len(x), len(self.phi) * len(time), _BLOCK_NUMBERS):
            parts = [one[block] @ other for one, other in zip(rows, self.deviations, strict=True)]
            g = torch.baddbmm(level[block, :, None], shapes[block], torch.stack(parts, 1))
            drawn, second = g.sigmoid_().mul_(mass).chunk(_NODES, 1)
            drawn += second
            # One panel after another: torch's cumsum along an axis that is not the last takes many times as long.
            for panel in range(1, drawn.shape[1]):
                drawn[:, panel] += drawn[:, panel - 1]
            found[block] = average(drawn.mul_(self.phi))
        return found

    def _with(self, designs: list[Tensor]) -> zip[tuple[Coefficient, Tensor]]:
        return zip(self.coefficients, designs, strict=True)

    def _functions(self, time: Tensor) -> Tensor:
        """Return the function of time of each coefficient, shape (coefficients, P)."""
        factors = self.network.factors(time)
        early = [factors["early"]] if "early" in factors else []
        return torch.cat([factors["always"], *early, factors["clock"], factors["bumps"]], 1).T

    def _covariance(self, designs: list[Tensor], of_weights: Tensor) -> Tensor:
        """Return the covariance of the coefficients of each of n people, shape (n, coefficients, coefficients)."""
        size = len(designs)
        found = of_weights.new_empty(len(designs[0]), size, size)
        for i, (first, left) in enumerate(self._with(designs)):
            product = left @ of_weights[first.weights]
            for j, (second, right) in enumerate(self._with(designs)):
                found[:, i, j] = (product[:, second.weights] * right).sum(1)
        return found


def mean_curves(posterior: Posterior) -> MeanCurves | None:
    """Return the means of curves; None where g is not a sum of products, or where its weights are too many."""
    network, normaliser = posterior.network, posterior.normaliser
    if not isinstance(network, Additive) or not isinstance(normaliser, Constant) or network.inner is not None:
        return None
    if posterior.rho != 1 or len(posterior.modes) > 1 or network.size > _MOST_WEIGHTS or network.causes > 1:
        return None
    exact = posterior.theta.covariance()
    if exact is None:
        return None
    draws, coefficients = posterior.draw(_DRAWS, _SEED), coefficients_of(network)
    sample = _sample(draws.theta, draws.phi, coefficients)
    return MeanCurves(network, 1 / normaliser.value, coefficients, posterior.theta.mean, exact, **sample)


def centred(posterior: Posterior, draws: Draws) -> Draws:
    """Return the draws moved so that their mean is that of the posterior: means over them are closer, at no cost.

    Draws around several modes, each with a mean of its own, stay as they are.
    """
    if len(posterior.modes) > 1:
        return draws
    # A damaged file may hold numbers whose sum is infinite; those draws stay where they are.
    shift = (posterior.theta.mean - draws.theta.mean(0)).nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
    return Draws(draws.theta + shift, draws.phi * (posterior.phi.mean / draws.phi.mean()))


def _sample(theta: Tensor, phi: Tensor, coefficients: tuple[Coefficient, ...]) -> dict[str, Any]:
    """Return the fields of `MeanCurves` that come from draws, theta (S, m) and phi (S,)."""
    apart = theta - theta.mean(0)
    deviations = tuple(apart[:, each.weights].T.float().contiguous() for each in coefficients)
    return {"sampled": apart.T @ apart / len(apart), "deviations": deviations, "phi": phi.float()}


def coefficients_of(network: Additive) -> tuple[Coefficient, ...]:
    """Return the coefficients of a network, in the order of their functions: always, early, the clock, the bumps."""
    by_function: dict[str, list[tuple[str | None, Tensor]]] = {"always": []}
    if network.early > 0:
        by_function["early"] = []
    by_function["clock"] = []
    bumps: list[Coefficient] = []
    start = 0
    for term in network.terms:
        places = torch.arange(start, start + term.size)
        start += term.size
        if term.factor == "bumps":
            bumps = [Coefficient((), True, place[None]) for place in places]
        else:
            by_function["clock" if term.factor == "trend" else term.factor].append((term.feature, places))
    by_function["always"].append((None, torch.tensor([start])))
    found = []
    for listed in by_function.values():
        # Weights without features, the bias and the trend, come last, as the column of ones does.
        ordered = sorted(listed, key=lambda each: each[0] is None)
        blocks = tuple(name for name, _ in ordered if name is not None)
        found.append(Coefficient(blocks, len(blocks) < len(ordered), torch.cat([places for _, places in ordered])))
    return (*found, *bumps)


def _stretch(exact: Tensor, sampled: Tensor) -> Tensor:
    """Return the matrices A, shape (n, k, k), with A·sampled·Aᵀ = exact."""
    ridge = torch.diag_embed(_RIDGE * exact.diagonal(dim1=1, dim2=2).clamp_min(1e-12))
    (wanted, one), (given, other) = (torch.linalg.cholesky_ex(each + ridge) for each in (exact, sampled))
    found = torch.linalg.solve_triangular(given, wanted, upper=False, left=False)
    # Covariates so extreme that a covariance overflows: those draws stay as they are.
    whole = (one == 0) & (other == 0) & torch.isfinite(found).all(2).all(1)
    return torch.where(whole[:, None, None], found, torch.eye(exact.shape[1], dtype=exact.dtype))
