"""What a fit will hold in memory at its peak, from its sizes alone, and the refusal of one that does not fit.

Only what grows with the problem is counted: matrices with a row for each point or weight, and the largest block of
rows that is formed at once. ``benchmarks/proof/faults.py`` compares the estimates with the peaks that were measured.
"""

from __future__ import annotations

import torch
from torch import Tensor

from neuralsurv.memory import require
from neuralsurv.model.module_network import MOST_NUMBERS_DENSE, ModuleNetwork
from neuralsurv.model.network import MLP
from neuralsurv.model.rows import BLOCK_NUMBERS
from neuralsurv.presets import Choices, DefaultChoices
from neuralsurv.solvers.choose import choose, costs

ADVICE = (
    "Use fit_stream, whose memory does not grow with the rows; or fewer rows, fewer columns (categories of many levels "
    "have one each), or a smaller network (hidden=…)."
)
_PAPER_ADVICE = ADVICE.removesuffix(".") + "; or solver='krylov', which holds least and takes longest."
_BYTES = 8
# Vectors over the points that live at the same time: times, rows, weights, moments of g, curvatures, slopes.
_VECTORS = 12
# At the end the dual posterior is freed of its points, which takes more matrices of their size than the sweeps do.
_COMPACTING = 2.0
# Copies of the table, covariates and outcome, while it is encoded, sorted and merged; between 7 and 19 were measured.
_TABLES = 8
_OUTCOME = 4


def require_table(rows: int, columns: int) -> None:
    """Refuse a table of covariates that will not fit once it is encoded, N rows of so many numbers."""
    work = f"a table of {rows} rows and {columns} encoded columns"
    require(_BYTES * _TABLES * float(rows) * (columns + _OUTCOME), work, ADVICE)


def paper_bytes(
    points: int,
    covariates: int,
    choices: Choices,
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
    choices : Choices
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
    choices: Choices,
    module: ModuleNetwork | None,
    *,
    memory: float,
    directions: int,
) -> None:
    """Refuse a fit of the paper preset that does not fit into memory, before its points are laid out.

    Parameters as in :func:`neuralsurv.inference.fit.fit` and :func:`paper_bytes`.
    """
    points = count_points(time, event, entry, choices)
    needed = paper_bytes(points, x.shape[1], choices, module, memory=memory, directions=directions)
    require(needed, f"this fit of {points} points ({len(time)} different rows with their nodes)", _PAPER_ADVICE)


def count_points(time: Tensor, event: Tensor, entry: Tensor, choices: Choices) -> int:
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


def _block(points: int, weights: int) -> float:
    """Return how many numbers the largest block of rows has that is formed at once."""
    return min(float(points) * weights, float(BLOCK_NUMBERS))
