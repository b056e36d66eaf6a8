"""Estimates of the memory and the file size of a fit of the paper's method, from the sizes of the problem."""

from __future__ import annotations

import torch

from neuralsurv.data.cohort import Cohort
from neuralsurv.inference.footprint import BYTES, VECTORS, file_bytes, largest_block, require_fit
from neuralsurv.inference.paper.settings import PaperSettings
from neuralsurv.model.network import MLP
from neuralsurv.solvers.choose import choose, costs

# The conversion of the dual posterior to a form without its points takes more matrices of their size than the sweeps.
_COMPACTING = 2.0


def paper_bytes(points: int, covariates: int, settings: PaperSettings, *, memory: float) -> float:
    """Return the peak memory of a fit of P points, in bytes; the solver may hold `memory` of it."""
    hidden = settings.hidden
    weights = MLP(covariates, hidden, settings.activation).size
    # Covariates of the points, as the search for the mode has them and as the layers' inputs; activations and
    # derivatives of the layers.
    numbers = points * float(3 * (covariates + 1) + 3 * sum(hidden) + VECTORS)
    solver = choose(points, weights, memory).solver if settings.solver == "auto" else settings.solver
    algebra = next(cost.memory for cost in costs(points, weights) if cost.solver == solver)
    if solver == "dual":
        algebra *= _COMPACTING
    return BYTES * (numbers + largest_block(points, weights)) + algebra


def require_paper(cohort: Cohort, settings: PaperSettings, *, memory: float) -> None:
    """Refuse a fit that does not fit into memory, before its points are laid out."""
    points = count_points(cohort, settings)
    require_fit(paper_bytes(points, cohort.covariates, settings, memory=memory), points, len(cohort))


def count_points(cohort: Cohort, settings: PaperSettings) -> int:
    """Return how many points there are, or a little more, without laying them out."""
    events = int(cohort.event.sum())
    if settings.quadrature != "trapezoid":
        return events + len(cohort) * settings.quadrature_points
    cells = settings.quadrature_points - 1
    return events + int((torch.floor(cohort.time * cells) - torch.floor(cohort.entry * cells) + 1).sum())


def paper_file_bytes(rows: int, events: int, covariates: int, settings: PaperSettings) -> float:
    """Return about how large the model file will be."""
    points = events + rows * settings.quadrature_points
    weights = MLP(covariates, settings.hidden, settings.activation).size
    # The rows inform about as many directions as there are rows: measured.
    return file_bytes(rows, covariates, settings.hidden, weights, min(weights, points, 2 * rows))
