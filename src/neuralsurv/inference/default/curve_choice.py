r"""The choice of curves for a cohort: centres, amplitudes of the covariates, combinations.

The amplitudes are those of the highest evidence in a model with a closed form: every row has the hazard of the whole
cohort, times :math:`e^{f(x)}`, where f has a linear part, products and the curves. To second order in f the
log-likelihood of a row is :math:`(\delta - \Lambda)f - \Lambda f^2/2`, with :math:`\Lambda` the cumulative hazard of
the cohort up to its time. With features F, amplitudes a, :math:`B = I + aF^\top\mathrm{diag}(\Lambda)Fa` and
:math:`\beta = aF^\top(\delta - \Lambda)`, the log evidence is
:math:`\tfrac12\beta^\top B^{-1}\beta - \tfrac12\log|B|`. Its derivative with respect to the log amplitude of a group is
:math:`\sum (\bar z^2 + \mathrm{var}\,z - 1)` over its weights z, which have mean :math:`B^{-1}\beta` and covariance
:math:`B^{-1}`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy.optimize
import torch
from torch import Tensor

from neuralsurv.data.cohort import Cohort
from neuralsurv.inference.default.neighbourhood_choice import (
    average_over_hazard,
    cumulative_hazard,
    every_kth,
    rank_tables,
    varying_most,
)
from neuralsurv.model.covariate_curves import KERNELS, CovariateCurves, normal_scores, units
from neuralsurv.solvers.primal import cholesky

# Centres of the units of a covariate, and the most combinations of the units of one kernel.
_CENTRES = 16
_MOST_SHAPES = (8, 5)
# What a combination must vary by, as a share of the first.
_LEAST_SHARE = 1e-3
_JITTER = 1e-8
# Units of a covariate, at most.
UNITS = KERNELS * _CENTRES
# With more covariates than this, those whose curves fit best by themselves have one.
_MOST_COVARIATES = 64
_FEWEST_RANKS = 3
# Rows of the search for the amplitudes.
_ROWS = 1500
# Medians and spreads (of the logarithm) of the amplitude of the linear part, of the products and, for the sum of all,
# of the curves.
_LINEAR = (0.5, 0.7)
_PRODUCTS = (0.2, 1.2)
_CURVES = (0.3, 1.2)
_FARTHEST = 4.0
_MOST_STEPS = 60
# Share of the variance of all combinations that those which are left out may have.
_LEFT_OUT = 0.005
_MOST_COLUMNS = 120


@dataclass(frozen=True)
class _Shapes:
    """The functions of one covariate and kernel that the rows tell apart, with a mean variance of 1 together."""

    columns: Tensor  # at the rows, shape (N, k)
    mix: Tensor  # of the units at the centres, shape (c, k)


def choose_curves(cohort: Cohort, *, products: bool) -> CovariateCurves | None:
    """Choose the curves for a cohort; None where no covariate has three ranks.

    Parameters
    ----------
    cohort : Cohort
        The training rows.
    products : bool
        Whether the model has products of two covariates beside the curves.
    """
    if not cohort.covariates:
        return None
    x, weight = cohort.x, cohort.weight
    expected = weight * cumulative_hazard(cohort)
    events = torch.where(cohort.event, weight, torch.zeros_like(weight))
    surplus = events - expected
    values, ranks = rank_tables(x, weight, events, expected)
    which = torch.tensor([j for j, own in enumerate(ranks) if len(torch.unique(own)) >= _FEWEST_RANKS])
    if not len(which):
        return None
    values, ranks = values[which], ranks[which]
    scores = normal_scores(values, ranks, x[:, which])
    if len(which) > _MOST_COVARIATES:
        best = _screened(scores, surplus, expected)
        which, values, ranks, scores = which[best], values[best], ranks[best], scores[:, best]
    centres = _centres(scores)
    every, count = units(scores, centres), centres.shape[1]
    shapes = [
        _shapes(every[:, k * count : (k + 1) * count], centres[k % len(which)], weight, kernel=k // len(which))
        for k in range(KERNELS * len(which))
    ]
    some = every_kth(len(x), _ROWS)
    amplitudes = _amplitudes(
        x[some], [shape.columns[some] for shape in shapes], surplus[some], expected[some], products
    )
    # One block of units for each shape, in the order of `units`.
    scaled = [shape.mix * amplitude for shape, amplitude in zip(shapes, amplitudes, strict=True)]
    mix: Tensor = torch.block_diag(*scaled)  # type: ignore[no-untyped-call]
    columns = torch.cat([shape.columns * a for shape, a in zip(shapes, amplitudes, strict=True)], 1)
    share = weight / weight.sum()
    # In the layout that a file gives back: products must be the same to the last bit.
    mix = (mix @ varying_most(columns * share.sqrt()[:, None], _LEFT_OUT, _MOST_COLUMNS)).contiguous()
    return CovariateCurves(which, values, ranks, centres, mix, share @ (every @ mix))


def _centres(scores: Tensor) -> Tensor:
    """Return the centres of each covariate, shape (k, c): its values, or even steps over them; few are filled up."""
    listed = []
    steps = torch.linspace(0, 1, _CENTRES, dtype=scores.dtype)
    for column in scores.T:
        distinct = torch.unique(column)
        listed.append(distinct if len(distinct) <= _CENTRES else torch.lerp(distinct[0], distinct[-1], steps))
    longest = max(map(len, listed))
    return torch.stack([torch.cat([known, known[-1:].expand(longest - len(known))]) for known in listed])


def _shapes(unit: Tensor, centres: Tensor, weight: Tensor, kernel: int) -> _Shapes:
    count = len(torch.unique(centres))
    known = units(centres[:count, None], centres[None, :count])[:, kernel * count : (kernel + 1) * count]
    values, vectors = torch.linalg.eigh(known + _JITTER * torch.eye(count, dtype=known.dtype))
    whitening = vectors / values.clamp_min(_JITTER).sqrt()
    share = weight / weight.sum()
    plain = unit[:, :count] @ whitening
    centred = (plain - share @ plain) * share.sqrt()[:, None]
    spread, turned = torch.linalg.eigh(centred.T @ centred)
    kept = min(_MOST_SHAPES[kernel], int((spread > _LEAST_SHARE * spread[-1]).sum()))
    mix = torch.zeros(len(centres), kept, dtype=known.dtype)
    mix[:count] = whitening @ turned[:, -kept:].flip(1) / spread.clamp_min(0).sum().sqrt()
    columns = unit @ mix
    return _Shapes(columns - share @ columns, mix)


def _screened(scores: Tensor, surplus: Tensor, expected: Tensor) -> Tensor:
    """Return the covariates with the largest score statistic of a curve of their own, in order."""
    total = expected.sum()
    found = []
    for column in scores.T:
        powers = torch.stack([column, column.square(), column**3], 1)
        powers = powers - expected @ powers / total
        information = powers.T @ (powers * expected[:, None]) + _JITTER * torch.eye(3, dtype=scores.dtype)
        score = powers.T @ surplus
        found.append(float(score @ torch.linalg.solve(information, score)))
    return torch.tensor(found).argsort(descending=True, stable=True)[:_MOST_COVARIATES].sort().values


def _amplitudes(x: Tensor, shapes: list[Tensor], surplus: Tensor, expected: Tensor, products: bool) -> Tensor:
    """Return the amplitude of each shape, scaled so that all curves together have a mean variance of 1."""
    d = x.shape[1]
    blocks, priors = [x / math.sqrt(d)], [_LINEAR]
    if products:
        one, other = torch.triu_indices(d, d, 1)
        blocks.append(x[:, one] * x[:, other] / math.sqrt(len(one)))
        priors.append(_PRODUCTS)
    first = len(blocks)
    blocks += shapes
    priors += [(_CURVES[0] / math.sqrt(len(shapes)), _CURVES[1])] * len(shapes)
    medians = torch.tensor([math.log(median) for median, _ in priors], dtype=torch.float64)
    spreads = torch.tensor([spread for _, spread in priors], dtype=torch.float64)
    features = torch.cat(blocks, 1)
    which = torch.cat([torch.full((block.shape[1],), k) for k, block in enumerate(blocks)])
    found = find_amplitudes(features, which, surplus, expected, medians, spreads)[first:].exp()
    return found / found.square().sum().sqrt()


def find_amplitudes(
    features: Tensor, which: Tensor, surplus: Tensor, expected: Tensor, medians: Tensor, spreads: Tensor
) -> Tensor:
    """Return the log amplitudes of the highest evidence with their hyper-prior, shape (G,).

    Parameters
    ----------
    features : Tensor of shape (n, m)
        Features of the rows.
    which : Tensor of shape (m,)
        The group of each.
    surplus, expected : Tensor of shape (n,)
        Observed minus expected events of each row, δ − Λ, and Λ.
    medians, spreads : Tensor of shape (G,)
        Hyper-prior of the log amplitudes.
    """
    evidence = _Evidence.of(features, which, surplus, expected)

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        place = torch.from_numpy(flat)
        value, gradient = evidence.at(place)
        away = (place - medians) / spreads
        return float(away.square().sum()) / 2 - value, (away / spreads - gradient).numpy()

    bounds = [(float(m - _FARTHEST * s), float(m + _FARTHEST * s)) for m, s in zip(medians, spreads, strict=True)]
    options = {"maxiter": _MOST_STEPS, "ftol": 1e-6}
    found = scipy.optimize.minimize(loss, medians.numpy(), jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    return torch.from_numpy(np.asarray(found.x))


@dataclass(frozen=True)
class _Evidence:
    """The log evidence of the amplitudes, from features of which the average over the hazard is taken off."""

    roots: Tensor  # features times the root of Λ, shape (n, m)
    score: Tensor  # Fᵀ(δ − Λ), shape (m,)
    which: Tensor
    gram: Tensor | None  # of the roots where they have no more columns than rows

    @classmethod
    def of(cls, features: Tensor, which: Tensor, surplus: Tensor, expected: Tensor) -> _Evidence:
        centred = features - average_over_hazard(features, expected)
        roots = centred * expected.clamp_min(0).sqrt()[:, None]
        few = features.shape[1] <= len(features)
        return cls(roots, centred.T @ surplus, which, roots.T @ roots if few else None)

    def at(self, log_amplitudes: Tensor) -> tuple[float, Tensor]:
        """Return the log evidence and its gradient."""
        amplitude = log_amplitudes.exp()[self.which]
        beta = amplitude * self.score
        if self.gram is not None:
            matrix = amplitude[:, None] * self.gram * amplitude
            matrix.diagonal().add_(1.0)
            factor = cholesky(matrix)
            inverse = torch.cholesky_inverse(factor)
            mean, variance = inverse @ beta, inverse.diagonal()
        else:
            scaled = self.roots * amplitude
            matrix = scaled @ scaled.T
            matrix.diagonal().add_(1.0)
            factor = cholesky(matrix)
            half = torch.linalg.solve_triangular(factor, scaled, upper=False)
            mean = beta - half.T @ (half @ beta)
            variance = 1 - half.square().sum(0)
        value = float(beta @ mean) / 2 - float(factor.diagonal().log().sum())
        gradient = torch.zeros_like(log_amplitudes).index_add_(0, self.which, mean.square() + variance - 1)
        return value, gradient
