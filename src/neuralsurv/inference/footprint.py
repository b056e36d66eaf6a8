"""What a fit will hold in memory at its peak, from its sizes alone, and the refusal of one that does not fit.

Only what grows with the problem is counted: matrices with a row for each point or weight, and the largest block of
rows that is formed at once. ``benchmarks/proof/faults.py`` compares the estimates with the peaks that were measured.
"""

from __future__ import annotations

import torch
from torch import Tensor

from neuralsurv.inference.choices import DefaultChoices, PaperChoices
from neuralsurv.memory import require
from neuralsurv.model.module_network import MOST_NUMBERS_DENSE, ModuleNetwork
from neuralsurv.model.network import MLP
from neuralsurv.solvers.choose import choose, costs
from neuralsurv.solvers.rows import BLOCK_NUMBERS

ADVICE = (
    "Use fit_stream with the default preset, whose memory does not grow with the rows; or fewer rows, fewer columns "
    "(categories of many levels have one each), or a smaller network (hidden=…)."
)
_BYTES = 8
# Vectors over the points that live at the same time: times, rows, weights, moments of g, curvatures, slopes.
_VECTORS = 12
# At the end the dual posterior is freed of its points, which takes more matrices of their size than the sweeps do.
_COMPACTING = 2.0
# Copies of the table, covariates and outcome, while it is encoded, sorted and merged; between 7 and 19 were measured.
_TABLES = 8
_OUTCOME = 4
# What the default preset does by the size of a table; see `neuralsurv.inference.default.fit`.
_MOST_DIRECTIONS = 200
_ROWS_WITHOUT_NETWORK = 2000
_COVARIATES_WITHOUT_PRODUCTS = 64
_ROWS_AVERAGED = 1000
# Settings of the prior's scales that a posterior is averaged over, about.
_SETTINGS = 30


def require_table(rows: int, columns: int) -> None:
    """Refuse a table of covariates that will not fit once it is encoded, N rows of so many numbers."""
    work = f"a table of {rows} rows and {columns} encoded columns"
    require(_BYTES * _TABLES * float(rows) * (columns + _OUTCOME), work, ADVICE)


def paper_bytes(
    points: int,
    covariates: int,
    choices: PaperChoices,
    module: ModuleNetwork | None = None,
    *,
    memory: float,
    directions: int,
) -> float:
    """Return the peak of a fit of the paper preset.

    Parameters
    ----------
    points : int
        Events and quadrature nodes, P.
    covariates : int
        Encoded columns.
    choices : PaperChoices
        The network and the solver.
    module : ModuleNetwork, optional
        A network of the user's.
    memory : float
        What the solver may hold, in bytes, where it is chosen by cost.
    directions : int
        Most numbers that the directions of rows which cannot be held may have together.
    """
    hidden = choices.hidden if module is None else ()
    weights = MLP(covariates, hidden, choices.activation).size if module is None else module.size
    # Covariates of the points, as the search for the mode has them and as the layers' inputs; activations and
    # derivatives of the layers.
    numbers = points * float(3 * (covariates + 1) + 3 * sum(hidden) + _VECTORS)
    if module is not None and points * weights > MOST_NUMBERS_DENSE:
        rank = min(points, max(1, directions // weights))
        return _BYTES * (numbers + 2.0 * rank * (points + weights) + BLOCK_NUMBERS)
    if module is not None:
        numbers += points * weights
    solver = choose(points, weights, memory).solver if choices.solver == "auto" else choices.solver
    algebra = next(cost.memory for cost in costs(points, weights) if cost.solver == solver)
    if solver == "dual":
        algebra *= _COMPACTING
    return _BYTES * (numbers + _block(points, weights)) + algebra


def require_paper(
    time: Tensor,
    event: Tensor,
    entry: Tensor,
    x: Tensor,
    choices: PaperChoices,
    module: ModuleNetwork | None,
    *,
    memory: float,
    directions: int,
) -> None:
    """Refuse a fit of the paper preset that does not fit into memory, before its points are laid out.

    Parameters as in :func:`neuralsurv.inference.paper.fit.fit` and :func:`paper_bytes`.
    """
    points = count_points(time, event, entry, choices)
    needed = paper_bytes(points, x.shape[1], choices, module, memory=memory, directions=directions)
    require(needed, f"this fit of {points} points ({len(time)} different rows with their nodes)", ADVICE)


def count_points(time: Tensor, event: Tensor, entry: Tensor, choices: PaperChoices) -> int:
    """Return how many points the paper preset has, or a little more, without laying them out."""
    events = int(event.sum())
    if choices.quadrature != "trapezoid":
        return events + len(time) * choices.quadrature_points
    cells = choices.quadrature_points - 1
    return events + int((torch.floor(time * cells) - torch.floor(entry * cells) + 1).sum())


def additive_bytes(
    points: int, covariates: int, linear: int, hidden: tuple[int, ...], weights: int, kept: int
) -> float:
    """Return the peak of a fit of the default preset.

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
        Directions that are kept at most, of the products and of the network each.
    """
    rank = min(linear, kept) + min(weights - linear, kept)
    # The rows in the directions that are kept, twice: for two scales, or as parts and as a whole. The columns of the
    # linear path and the layers' inputs and derivatives.
    numbers = points * float(2 * rank + covariates + 2 * linear + 2 * sum(hidden) + _VECTORS)
    return _BYTES * (numbers + 2.0 * weights * rank + _block(points, weights))


def require_additive(
    rows: int, events: int, covariates: int, choices: DefaultChoices, linear: int, weights: int, kept: int
) -> None:
    """Refuse a fit of the default preset that does not fit into memory; parameters as in `additive_bytes`."""
    points = events + rows * choices.quadrature_points
    work = f"this fit of {points} points ({rows} different rows with their nodes)"
    require(additive_bytes(points, covariates, linear, choices.hidden, weights, kept), work, ADVICE)


def model_file_bytes(
    rows: int, events: int, covariates: int, choices: PaperChoices | DefaultChoices, draws: int = 0
) -> float:
    """Return about how large the file of a model will be, or a little more: see `neuralsurv.files.packed_gaussian`.

    Parameters
    ----------
    rows, events : int
        Training rows and those with an event.
    covariates : int
        Encoded columns.
    choices : PaperChoices or DefaultChoices
        The network and the prior.
    draws : int
        Posterior draws that the file holds in place of a Gaussian.
    """
    points = events + rows * choices.quadrature_points
    weights = MLP(covariates, choices.hidden, choices.activation).size
    units, inputs = (*choices.hidden, 1)[0], covariates + 1
    # The rows speak of about as many directions as there are of them; for the paper preset this was measured.
    directions, linear, linear_directions, settings = min(weights, points, 2 * rows), 0, 0, 1
    if isinstance(choices, DefaultChoices):
        few = covariates < _COVARIATES_WITHOUT_PRODUCTS
        products = covariates * (covariates - 1) // 2 if choices.pairs and few else 0
        linear = 2 * covariates + products
        # All of the linear path is kept where there are fewer columns than points.
        each = covariates if covariates <= points else min(rows, _MOST_DIRECTIONS)
        linear_directions = 2 * each + min(products, _MOST_DIRECTIONS)
        directions = min(directions, _MOST_DIRECTIONS)
        settings = _SETTINGS if choices.average and rows <= _ROWS_AVERAGED else 1
        if choices.neighbourhoods and few and rows >= _ROWS_WITHOUT_NETWORK:
            weights = units = directions = 0
            linear = linear_directions = 2 * (covariates + choices.neighbourhoods)
    if draws:
        return _BYTES * float(draws) * (weights + linear)
    rank = directions + linear_directions
    layer = min(units * inputs * directions, min(rows, inputs) * (inputs + units * directions))
    rest = float(weights - units * inputs + linear) * rank
    return _BYTES * (layer + rest + settings * rank * rank / 2 + 2 * (weights + linear))


def _block(points: int, weights: int) -> float:
    """Return how many numbers the largest block of rows has that is formed at once."""
    return min(float(points) * weights, float(BLOCK_NUMBERS))
