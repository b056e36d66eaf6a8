r"""The choice of neighbourhoods for a cohort: ranks, relevances of the covariates, centres, combinations.

The relevances are those of the highest evidence in a model with a closed form: every row has the hazard of the whole
cohort, times :math:`e^{f(x)}`, with f a Gaussian process of the kernel and a variance of its own. To second order in f
the log-likelihood of a row is :math:`(\delta - \Lambda)f - \Lambda f^2/2`, with :math:`\Lambda` the cumulative hazard
of the cohort up to its time; so with columns P of m centres, :math:`b = P^\top(\delta - \Lambda)` and
:math:`B = I + P^\top\mathrm{diag}(\Lambda)P`, the log evidence is :math:`\tfrac12 b^\top B^{-1}b - \tfrac12\log|B|`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import scipy.optimize
import torch
from torch import Tensor

from neuralsurv.data.cohort import Cohort
from neuralsurv.data.column_moments import EVENTS_FOR_EFFECT
from neuralsurv.model.neighbourhoods import Neighbourhoods, proximity, rank_scores
from neuralsurv.progress import bar

# The ranks of a covariate with more distinct values than this are interpolated between this many of them.
_MOST_VALUES = 256
# Share of the rows that two values must make up to be the only ones that ranks tell apart.
_NEARLY_ALL = 0.95
# Rows and centres of the search for the relevances, and the most numbers that their distances may take.
_ROWS, _CENTRES = 2000, 200
_MOST_NUMBERS = 2**25
# Spreads (of the logarithm) of relevances and variance around their medians, and the median of the variance. With the
# median relevance, 1/d, two rows are at a distance of about 1.
_SPREAD = 1.5
_VARIANCE = 0.3
_MOST_STEPS = 60
# Columns that are kept, at most; and what they must vary by, as a share of the first.
_MOST_COLUMNS = 200
_LEAST_SHARE = 1e-6
_JITTER = 1e-6
# Share of the variance of all combinations that those which are left out may have.
_LEFT_OUT = 0.05
# How far a logarithm may move from its median, in spreads.
_FARTHEST = 4.0

Report = Callable[[int, float], None]


def choose_neighbourhoods(cohort: Cohort, *, count: int, verbose: bool | str | int = False) -> Neighbourhoods:
    """Choose the neighbourhoods for a cohort.

    Rows and centres are every k-th row in the canonical order, which has nothing to do with the covariates: nothing is
    left to chance.

    Parameters
    ----------
    cohort : Cohort
        The training rows, sorted by time.
    count : int
        Number of units M, at most.
    verbose : bool or "auto"
        Whether to show progress.
    """
    x, weight = cohort.x, cohort.weight
    expected = weight * cumulative_hazard(cohort)
    events = torch.where(cohort.event, weight, torch.zeros_like(weight))
    values, ranks = rank_tables(x, weight, events, expected)
    scores, surplus = rank_scores(values, ranks, x), events - expected
    rows = every_kth(len(x), min(_ROWS, max(_CENTRES, _MOST_NUMBERS // (_CENTRES * x.shape[1]))))
    with bar("relevance of the covariates", None, verbose) as advance:
        relevance = find_relevance(
            scores[rows],
            scores[every_kth(len(x), _CENTRES)],
            surplus[rows],
            expected[rows],
            lambda step, evidence: advance(step, f"step {step}, log evidence {evidence:.3f}"),
        )
    centres = scores[every_kth(len(x), count)]
    mix, mean = _combinations(scores, centres, relevance, weight)
    return Neighbourhoods(values, ranks, centres, relevance, mix, mean)


def every_kth(rows: int, count: int) -> Tensor:
    """Return `count` places that are spread evenly over the rows, or all of them.

    Examples
    --------
    >>> from neuralsurv.inference.default.neighbourhood_choice import every_kth
    >>> every_kth(6, 3).tolist(), every_kth(2, 3).tolist()
    ([1, 3, 5], [0, 1])
    """
    if rows <= count:
        return torch.arange(rows)
    return ((torch.arange(count, dtype=torch.float64) + 0.5) * rows / count).long()


def rank_tables(x: Tensor, weight: Tensor, events: Tensor, expected: Tensor) -> tuple[Tensor, Tensor]:
    """Return values of every column and their ranks: the middle of the jump of its distribution function.

    Values beside a frequent one that have too few events for an effect of their own, observed (`events`) or `expected`,
    have its rank. Otherwise the few rows that hold them would be far from all others: a rank is blind to how few it
    sets apart.
    """
    tables = []
    for column in x.T:
        distinct, which = torch.unique(column, return_inverse=True)
        mass, seen, due = (torch.zeros_like(distinct).index_add_(0, which, w) for w in (weight, events, expected))
        group = _with_frequent(np.maximum(seen.numpy(), due.numpy()), (mass / mass.sum()).numpy())
        total = np.bincount(group, mass.numpy(), minlength=len(group))
        middle = ((total.cumsum() - total / 2) / total.sum())[group]
        values = distinct.numpy()
        if len(values) > _MOST_VALUES:
            places = np.interp(np.linspace(0, 1, _MOST_VALUES), middle, np.arange(len(values)))
            some = np.unique(np.round(places).astype(int))
            values, middle = values[some], middle[some]
        tables.append((values, middle))
    longest = max(2, *(len(values) for values, _ in tables))
    padded = [[np.pad(part, (0, longest - len(part)), mode="edge") for part in table] for table in tables]
    values, ranks = (torch.from_numpy(np.stack(parts)) for parts in zip(*padded, strict=True))
    return values, ranks


def _with_frequent(events: np.ndarray, share: np.ndarray) -> np.ndarray:
    """Return the place of each value, or of the frequent one beside it with whose rows its own are ranked.

    Values between two frequent ones that together have too few events go with the one that has more. So do all others
    where two values make up nearly all rows, as in indicators of levels that have rare ones beside them.
    """
    group = np.arange(len(events))
    first = np.sort(np.argsort(-events, kind="stable")[:2])
    alone = share[first].sum() >= _NEARLY_ALL
    frequent = first if alone else group
    frequent = frequent[events[frequent] >= EVENTS_FOR_EFFECT]
    for start, stop in itertools.pairwise([-1, *frequent, len(events)]):
        beside = [place for place in (start, stop) if 0 <= place < len(events)]
        if beside and (alone or events[start + 1 : stop].sum() < EVENTS_FOR_EFFECT):
            group[start + 1 : stop] = max(beside, key=lambda place: events[place])
    return group


def cumulative_hazard(cohort: Cohort) -> Tensor:
    """Return the Nelson–Aalen cumulative hazard of the cohort over each row's time at risk, shape (N,).

    Examples
    --------
    >>> import torch
    >>> from neuralsurv.data.cohort import Cohort
    >>> from neuralsurv.inference.default.neighbourhood_choice import cumulative_hazard
    >>> one = torch.ones(2)
    >>> cumulative_hazard(Cohort.of([1.0, 2.0], one > 0, 0 * one, one, torch.zeros(2, 1))).tolist()
    [0.5, 1.5]
    """
    time, entry, weight = cohort.time, cohort.entry, cohort.weight
    moments, which = torch.unique(cohort.event_time, return_inverse=True)
    deaths = torch.zeros_like(moments).index_add_(0, which, cohort.event_weight)

    def before(ends: Tensor) -> Tensor:
        """Weight of the rows whose end lies before each moment."""
        ordered, order = ends.sort()
        total = torch.cat([weight.new_zeros(1), weight[order].cumsum(0)])
        return total[torch.searchsorted(ordered, moments)]

    at_risk = before(entry) - before(time)
    steps = torch.cat([deaths.new_zeros(1), (deaths / at_risk).cumsum(0)])
    until = steps[torch.searchsorted(moments, time, right=True)]
    return until - steps[torch.searchsorted(moments, entry, right=True)]


def average_over_hazard(columns: Tensor, expected: Tensor) -> Tensor:
    """Return the averages of columns (n, m) over the expected events (n,) of the rows.

    0 where no events are expected at all: some of the rows may all end before the first event.
    """
    return expected @ columns / expected.sum().clamp_min(torch.finfo(expected.dtype).tiny)


def find_relevance(
    scores: Tensor,
    centres: Tensor,
    surplus: Tensor,
    expected: Tensor,
    report: Report = lambda step, evidence: None,
) -> Tensor:
    """Return the relevances of the highest evidence with their hyper-prior, shape (d,).

    Parameters
    ----------
    scores, centres : Tensor of shape (n, d) and (m, d)
        Rank scores of the rows, and of the centres that span the function.
    surplus, expected : Tensor of shape (n,)
        Observed minus expected events of each row, δ − Λ, and Λ.
    report : callable
        Called after each step with its number and the log evidence plus log hyper-prior.
    """
    d, count = scores.shape[1], len(centres)
    apart = torch.stack([(a[:, None] - b).abs().reshape(-1) for a, b in zip(scores.T, centres.T, strict=True)])
    between = torch.stack([(b[:, None] - b).abs().reshape(-1) for b in centres.T])
    eye = torch.eye(count, dtype=torch.float64)
    start = torch.cat([torch.full((d,), -math.log(d), dtype=torch.float64), torch.tensor([math.log(_VARIANCE)])])

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        place = torch.tensor(flat, dtype=torch.float64, requires_grad=True)
        relevance = place[:d].exp()
        kernel = torch.exp(-(relevance @ between)).reshape(count, count) + _JITTER * eye
        near = torch.exp(-(relevance @ apart)).reshape(-1, count)
        columns = torch.linalg.solve_triangular(torch.linalg.cholesky(kernel), near.T, upper=False).T
        columns = (columns - average_over_hazard(columns, expected)) * (place[d] / 2).exp()
        factor = torch.linalg.cholesky(eye + columns.T @ (columns * expected[:, None]))
        score = torch.linalg.solve_triangular(factor, (columns.T @ surplus)[:, None], upper=False)
        evidence = score.square().sum() / 2 - factor.diagonal().log().sum()
        value = ((place - start) / _SPREAD).square().sum() / 2 - evidence
        (gradient,) = torch.autograd.grad(value, place)
        return float(value.detach()), gradient.numpy()

    steps = itertools.count(1)

    def after_step(intermediate_result: scipy.optimize.OptimizeResult) -> None:
        report(next(steps), -float(intermediate_result.fun))

    options = {"maxiter": _MOST_STEPS, "ftol": 1e-6}
    bounds = [(float(middle - _FARTHEST * _SPREAD), float(middle + _FARTHEST * _SPREAD)) for middle in start]
    found = scipy.optimize.minimize(
        loss, start.numpy(), jac=True, method="L-BFGS-B", bounds=bounds, options=options, callback=after_step
    )
    return torch.from_numpy(np.asarray(found.x[:d])).exp()


def _combinations(scores: Tensor, centres: Tensor, relevance: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return the combinations of units with independent weights, scaled to a mean variance of 1, and their means.

    Combinations that hardly vary over the rows are left out.
    """
    values, vectors = torch.linalg.eigh(proximity(centres, centres, relevance))
    kept = min(_MOST_COLUMNS, int((values > _LEAST_SHARE * values[-1]).sum()))
    mix = vectors[:, -kept:] / values[-kept:].sqrt()
    share = weight / weight.sum()
    plain = proximity(scores, centres, relevance) @ mix
    mean = share @ plain
    spread = float((share @ (plain - mean).square()).sum().sqrt())
    turned = varying_most((plain - mean) / spread * share.sqrt()[:, None], _LEFT_OUT)
    # In the layout that a file gives back: products must be the same to the last bit.
    return (mix @ turned / spread).contiguous(), mean @ turned / spread


def varying_most(roots: Tensor, left_out: float, most: int | None = None) -> Tensor:
    """Return orthonormal directions (k, r) of columns (N, k) that leave out no more than a share of their squares.

    With a limit on their number they may leave out more.

    Examples
    --------
    >>> import torch
    >>> from neuralsurv.inference.default.neighbourhood_choice import varying_most
    >>> varying_most(torch.tensor([[3.0, 0.0], [0.0, 1.0]]), left_out=0.1).abs().tolist()
    [[1.0], [0.0]]
    """
    squares, directions = torch.linalg.eigh(roots.T @ roots)
    total = squares.clamp_min(0).cumsum(0)
    dropped = min(int((total <= left_out * total[-1]).sum()), len(total) - 1)
    if most is not None:
        dropped = max(dropped, len(total) - most)
    found: Tensor = directions[:, dropped:].flip(1)
    return found
