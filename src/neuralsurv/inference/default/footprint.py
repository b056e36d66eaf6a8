"""Estimates of the memory and the file size of a fit of the default model, from the sizes of the problem."""

from __future__ import annotations

import torch

from neuralsurv.data.cohort import Cohort
from neuralsurv.inference.default.settings import DefaultSettings
from neuralsurv.inference.footprint import BYTES, VECTORS, file_bytes, largest_block, require_fit
from neuralsurv.model.additive import Additive
from neuralsurv.model.network import MLP

# What the default model does by the size of a table; see `neuralsurv.inference.default.fit` and its choices of units.
_MOST_DIRECTIONS = 200
_MOST_CURVES = 120
_COVARIATES_WITHOUT_PRODUCTS = 64
_ROWS_AVERAGED = 4000
# Settings of the prior's scales that a posterior is averaged over, about.
_SETTINGS, _SETTINGS_OF_NETWORK = 19, 13


def default_bytes(points: int, covariates: int, linear: int, hidden: tuple[int, ...], weights: int, kept: int) -> float:
    """Return the peak memory of a fit, in bytes.

    Parameters
    ----------
    points : int
        Events and quadrature nodes, P.
    covariates : int
        Encoded columns.
    linear : int
        Weights of the linear path, its products and the time basis.
    hidden : tuple of int
        Widths of the hidden layers.
    weights : int
        All weights, m.
    kept : int
        Largest number of directions kept, of the products and of the network each.
    """
    rank = min(linear, kept) + min(weights - linear, kept)
    # The rows in the directions that are kept, twice: for two scales, or as parts and as a whole. The columns of the
    # linear path and the layers' inputs and derivatives.
    numbers = points * float(2 * rank + covariates + 2 * linear + 2 * sum(hidden) + VECTORS)
    return BYTES * (numbers + 2.0 * weights * rank + largest_block(points, weights))


def separable_bytes(points: int, rows: int, network: Additive) -> float:
    """Return the peak memory of a fit without a network, in bytes."""
    functions = len(network.factors(torch.ones(1, dtype=torch.float64))) + network.basis.size
    # Their products: of the functions that features are multiplied by, and of these with the columns of time alone.
    blocks = len({term.factor for term in network.terms if term.feature is not None})
    functions += blocks * (blocks + 1) // 2 + blocks * (network.basis.size + 1)
    sizes = [term.size for term in network.terms]
    kept, widest = sum(min(size, rows, _MOST_DIRECTIONS) for size in sizes), min(rows, max(sizes))
    # Features of the rows, whitened, and as much again for products with them; the directions that are kept of each
    # term, and the Gram matrix they come from; the matrix of the reduced columns, its factor and inverse.
    numbers = points * float(functions + VECTORS) + 6.0 * rows * network.size
    return BYTES * (numbers + 4.0 * network.size * kept + 4.0 * widest**2 + 6.0 * kept**2)


def require_default(cohort: Cohort, settings: DefaultSettings, network: Additive, *, kept: int) -> None:
    """Refuse a fit that does not fit into memory; `kept` as in `default_bytes`."""
    points = int(cohort.event.sum()) + len(cohort) * settings.quadrature_points * network.causes
    if network.inner is None:
        needed = separable_bytes(points, len(cohort), network)
    else:
        linear, weights = network.linear_size, network.size
        needed = default_bytes(points, cohort.covariates, linear, settings.hidden, weights, kept)
    require_fit(needed, points, len(cohort))


def default_file_bytes(rows: int, events: int, covariates: int, settings: DefaultSettings) -> float:
    """Return about how large the model file will be."""
    points = events + rows * settings.quadrature_points
    few = covariates < _COVARIATES_WITHOUT_PRODUCTS
    most = _SETTINGS_OF_NETWORK if settings.random_network else _SETTINGS
    averaged = most if settings.average and rows <= _ROWS_AVERAGED else 1
    products = covariates * (covariates - 1) // 2 if settings.ablation.pairs and few else 0
    if not settings.random_network:
        # About as many as are seen to vary: shapes of a covariate, and a fraction of the centres.
        curves = min(rows // 2, 5 * covariates, _MOST_CURVES)
        near = min(rows // 2, settings.neighbourhoods // 4) if few else 0
        # Effects and curves have a term that is constant, one early and one that changes with time; each is reduced.
        terms = [covariates] * 3 + [curves] * 3 + [near] * 2 + [products]
        kept = sum(min(size, rows, _MOST_DIRECTIONS) for size in terms)
        sizes = {"linear": sum(terms), "linear_directions": kept, "settings": averaged}
        return file_bytes(rows, covariates, settings.hidden, 0, 0, **sizes)
    weights = MLP(covariates, settings.hidden, settings.activation).size
    # All of the linear path is kept where there are fewer columns than points.
    each = covariates if covariates <= points else min(rows, _MOST_DIRECTIONS)
    return file_bytes(
        rows,
        covariates,
        settings.hidden,
        weights,
        # The rows inform about as many directions as there are rows.
        min(weights, points, 2 * rows, _MOST_DIRECTIONS),
        linear=2 * covariates + products,
        linear_directions=2 * each + min(products, _MOST_DIRECTIONS),
        settings=averaged,
    )
