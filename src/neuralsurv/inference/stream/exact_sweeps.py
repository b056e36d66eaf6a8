"""Exact coordinate ascent over rows that do not fit into memory.

The state is the sums S of `BatchTerms`: the posterior follows from them by one factorisation. A sweep replaces S by the
sums of all rows under the posterior; where that would lower the ELBO, the step is halved.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from neuralsurv.inference.stream.packed_rows import minibatches
from neuralsurv.inference.stream.snapshots import Snapshot
from neuralsurv.inference.stream.streamed_problem import STAGE, StreamedProblem, StreamedResult

# Blocks between two points at which a sweep can be saved: about a million rows.
_PORTION = 4096
_HALVINGS = 12
_ROUNDING = 1e-12
_STATE = (
    *("sums", "wanted", "tried", "scales", "tried_scales", "partial"),
    *("trace", "length", "portion", "started", "converged"),
)


def sweep_all_rows(problem: StreamedProblem, *, tolerance: float, most: int) -> StreamedResult:
    """Sweep over all rows until a full sweep gains less than `tolerance` nats; the ELBO never falls."""
    run = _Sweeps(problem)
    while not run.converged and len(run.trace) < most:
        run.take(run.total(), tolerance)
    return run.result()


class _Sweeps:
    """The state of the sweeps: where they are (`sums`), the sums of the rows there, and the step that is tried."""

    def __init__(self, problem: StreamedProblem) -> None:
        self.problem = problem
        self.trace: list[float] = []
        self.length = 1.0
        empty = problem.no_sums()
        self.sums, self.wanted, self.tried = empty, empty, empty
        self.scales = self.tried_scales = problem.log_scales
        self.partial, self.portion = empty.clone(), 0
        self.started = self.converged = False
        self.parts = minibatches(np.arange(problem.rows.blocks), _PORTION)
        self.q = problem.start()
        found = problem.checkpoint.resume(STAGE)
        if found is not None:
            found.restore(self)
        if self.started:
            self.q = problem.posterior(self.tried, self.tried_scales)

    def snapshot(self) -> Snapshot:
        return Snapshot.of(STAGE, self, _STATE)

    def total(self) -> Tensor:
        """Return the sums of all rows under the posterior that is tried."""
        problem = self.problem
        bound = self.trace[-1] if self.trace else math.nan
        while self.portion < len(self.parts):
            self.partial = self.partial + problem.sums(self.parts[self.portion], self.q)
            self.portion += 1
            problem.checkpoint.save(self.snapshot)
            problem.report(len(self.trace) * len(self.parts) + self.portion, len(self.parts), bound)
        return self.partial

    def take(self, found: Tensor, tolerance: float) -> None:
        """Accept or reject what was tried, and choose what to try next."""
        if not self.started:
            # These are the sums under the point mass at the mode, which has no ELBO.
            self.started = True
            self._try(found, self.scales)
            return
        bound = self.problem.elbo(found, self.q, self.tried_scales)
        risen = not self.trace or bound >= self.trace[-1] - _ROUNDING * abs(bound)
        if risen:
            gain = bound - self.trace[-1] if self.trace else math.inf
            self.sums, self.scales, self.wanted = self.tried, self.tried_scales, found
            self.trace.append(bound)
            # A shortened step that gains no more than rounding has nowhere to go either.
            least = tolerance if self.length == 1.0 else _ROUNDING * abs(bound)
            self.converged = gain <= max(least, _ROUNDING * abs(bound))
            self.length = 1.0
        else:
            self.length /= 2
            # No step gains: as high as rounding lets it come.
            self.converged = self.length < 0.5**_HALVINGS
        if not self.converged:
            self._try(torch.lerp(self.sums, self.wanted, self.length), self.scales)

    def _try(self, sums: Tensor, scales: Tensor) -> None:
        self.tried = sums
        self.q, self.tried_scales = self.problem.learned_posterior(sums, scales)
        self.partial, self.portion = torch.zeros_like(self.partial), 0

    def result(self) -> StreamedResult:
        self.problem.checkpoint.save(self.snapshot, now=True)
        return StreamedResult(self.sums, self.wanted, self.scales, tuple(self.trace), self.converged, 0.0)
