"""Small cohorts as packed rows, with their terms and checkpoints in memory, for tests of streamed inference."""

from __future__ import annotations

import atexit

import torch

from inference.problems import baseline_exposure, event_weight, simulated
from neuralsurv.data.cohort import Cohort
from neuralsurv.inference.default.settings import DefaultSettings
from neuralsurv.inference.default.structure import build_network, build_prior
from neuralsurv.inference.stream.batch_terms import BatchTerms
from neuralsurv.inference.stream.kept_directions import KeptDirections
from neuralsurv.inference.stream.packed_rows import PackedRows, Packer
from neuralsurv.inference.stream.processes import ProcessGroup
from neuralsurv.inference.stream.snapshots import SnapshotStore
from neuralsurv.inference.stream.streamed_problem import StreamedProblem
from neuralsurv.model.hazard import Constant
from neuralsurv.model.quadrature import ShiftedLog

COHORT = simulated(700, covariates=3, entry=True, weight=True, seed=5)


def pack(rows: Cohort, *, chunk: int = 200) -> PackedRows:
    """Return rows packed in chunks whose last block is not full."""
    packer = Packer(None, rows.x.shape[1], seed=0)
    for number, first in enumerate(range(0, len(rows), chunk)):
        packer.add(number, rows.take(slice(first, first + chunk)))
    return packer.finish(ProcessGroup())


def batch_terms(rows: Cohort = COHORT, hidden: tuple[int, ...] = (4,), star: float = 0.0) -> BatchTerms:
    """Return the terms, all directions kept, linearised at random weights of size `star`."""
    settings = DefaultSettings(hidden=hidden)
    network = build_network(rows.event_time, rows.event_weight, rows.covariates, settings, 3)
    prior = build_prior(network, settings)
    mode = star * torch.randn(network.size, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    rule = ShiftedLog(settings.quadrature_points, network.basis.shift)
    directions = KeptDirections.all(prior)
    phi = event_weight(rows) / baseline_exposure(rows, 1.0)
    return BatchTerms(network, Constant(1 / 30), rule, mode, directions, phi)


ROWS = pack(COHORT)
# Also in a worker that has imported this file and runs no test.
atexit.register(ROWS.close)


def streamed_problem(terms: BatchTerms, *, log_scales=None, checkpoint=None) -> StreamedProblem:  # type: ignore[no-untyped-def]
    scales = terms.directions.prior.medians if log_scales is None else log_scales
    return StreamedProblem(terms, ROWS, ProcessGroup(), scales, checkpoint or SnapshotStore())


class KilledError(Exception):
    pass


class Kept:
    """Keeps every snapshot, and ends the run after so many."""

    def __init__(self, found=None, dies_after=None):
        self.constants, self.snapshots, self.found, self.dies_after = {}, [], found, dies_after

    def resume(self, stage):
        return self.found if self.found is not None and self.found.stage == stage else None

    def save(self, snapshot, *, now=False):
        self.snapshots.append(snapshot())
        if len(self.snapshots) == self.dies_after:
            raise KilledError
