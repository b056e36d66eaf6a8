"""Estimates of the peak memory of a fit, from the sizes of the problem, and the refusal of one that does not fit.

Only what grows with the problem is counted: matrices with a row for each point or weight, and the largest block of
rows that is formed at once. ``benchmarks/proof/faults.py`` compares the estimates with the peaks that were measured.
"""

from __future__ import annotations

from neuralsurv.memory import require
from neuralsurv.names import counted
from neuralsurv.solvers.rows import BLOCK_NUMBERS

ADVICE = (
    "Use NeuralSurv.fit_stream, whose memory does not grow with the rows; or fewer rows, fewer columns (categories of "
    "many levels have one each), or a smaller network (hidden=…)."
)
BYTES = 8
# Vectors over the points that live at the same time: times, rows, weights, moments of g, curvatures, slopes.
VECTORS = 12
# Copies of the table, covariates and outcome, while it is encoded, sorted and merged; between 7 and 19 were measured.
_TABLES = 8
_OUTCOME = 4


def require_table(rows: int, columns: int) -> None:
    """Refuse a table of covariates that will not fit once it is encoded, N rows of `columns` numbers."""
    work = f"a table of {rows} rows and {counted(columns, 'encoded column')}"
    require(BYTES * _TABLES * float(rows) * (columns + _OUTCOME), work, ADVICE)


def require_fit(needed: float, points: int, rows: int) -> None:
    """Refuse a fit whose peak, in bytes, does not fit into memory."""
    require(needed, f"this fit of {points} points ({rows} different rows with their nodes)", ADVICE)


def largest_block(points: int, weights: int) -> float:
    """Return the number of elements of the largest block of rows that is formed at once."""
    return min(float(points) * weights, float(BLOCK_NUMBERS))


def file_bytes(
    rows: int,
    covariates: int,
    hidden: tuple[int, ...],
    weights: int,
    directions: int,
    *,
    linear: int = 0,
    linear_directions: int = 0,
    settings: int = 1,
) -> float:
    """Return about how large the file of a model will be, or a little more: see `neuralsurv.files.packed_gaussian`.

    `covariates` counts encoded columns, `directions` those of the `weights` that the rows inform (`linear` and
    `linear_directions` are the same of the linear path), and `settings` those of the prior's scales that the posterior
    is averaged over.
    """
    units, inputs = (*hidden, 1)[0] if weights else 0, covariates + 1
    rank = directions + linear_directions
    layer = min(units * inputs * directions, min(rows, inputs) * (inputs + units * directions))
    rest = float(weights - units * inputs + linear) * rank
    return BYTES * (layer + rest + settings * rank * rank / 2 + 2 * (weights + linear))
