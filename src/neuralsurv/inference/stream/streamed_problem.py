"""The variational problem of packed rows: sums over them, the posterior that follows, and its ELBO."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from neuralsurv.errors import NotFiniteError
from neuralsurv.inference.stream.batch_terms import BatchTerms
from neuralsurv.inference.stream.feature_learning import StepReport
from neuralsurv.inference.stream.kept_directions import Information, KeptDirections, ReducedGaussian
from neuralsurv.inference.stream.packed_rows import PackedRows
from neuralsurv.inference.stream.processes import ProcessGroup
from neuralsurv.inference.stream.snapshots import SnapshotStore
from neuralsurv.model.prior import Group

# The stage of its snapshots.
STAGE = "posterior"

# Rounds of the search, each with one factorisation, and the change of a log scale at which it ends.
_ROUNDS = 20
_ENOUGH = 1e-6
# A Newton step of a log scale within a round is no longer than this.
_LONGEST_STEP = 1.0
# The effective number of parameters of a group is positive, whatever rounding does.
_LEAST_KNOWN = 1e-9


@dataclass(frozen=True)
class StreamedResult:
    """The result of a streamed inference."""

    sums: Tensor  # S, from which the posterior follows
    last: Tensor  # sums of all rows under that posterior (exact sweeps), or the best approximation of them
    log_scales: Tensor  # of the prior, shape (G,)
    elbo: tuple[float, ...]  # ELBO plus log hyper-prior, after each sweep or (an estimate) after each pass
    # Whether the last sweep gained less than the tolerance; for natural-gradient steps, whether the last half pass
    # moved the mean by less than one posterior standard deviation.
    converged: bool
    moved: float  # that movement: root mean square over the directions, in posterior standard deviations; 0 for sweeps


@dataclass(frozen=True)
class StreamedProblem:
    """A variational problem whose rows are read block by block."""

    terms: BatchTerms
    rows: PackedRows
    processes: ProcessGroup  # the processes that share them
    log_scales: Tensor  # of the prior to start with, shape (G,)
    checkpoint: SnapshotStore  # where the state is saved
    report: StepReport = lambda done, total, elbo: None  # called with the work done, all of it, and the ELBO so far

    def no_sums(self) -> Tensor:
        """Return the sums of no rows."""
        return torch.zeros(self.terms.length, dtype=torch.float64)

    def sums(self, blocks: np.ndarray, q: ReducedGaussian) -> Tensor:
        """Return the sums of some blocks under q, over all processes."""
        local = self.no_sums()
        for _, batch in self.rows.read(blocks):
            local += self.terms.batch(batch, q)
        return self.processes.sum(local)

    def start(self) -> ReducedGaussian:
        """Return the point mass at the mode."""
        return self.terms.directions.point_mass(self.terms.theta_star)

    def posterior(self, sums: Tensor, log_scales: Tensor) -> ReducedGaussian:
        """Return the posterior that follows from sums."""
        return self.terms.directions.posterior(self.terms.information(sums), log_scales)

    def learned_posterior(self, sums: Tensor, log_scales: Tensor) -> tuple[ReducedGaussian, Tensor]:
        """Return the posterior that follows from sums, and the scales of the prior that were learned from them."""
        information = self.terms.information(sums)
        # Process 0 decides: another processor may round the last digit differently.
        log_scales = self.processes.broadcast(learn_scales(self.terms.directions, information, log_scales))
        return self.terms.directions.posterior(information, log_scales), log_scales

    def elbo(self, sums: Tensor, q: ReducedGaussian, log_scales: Tensor) -> float:
        """Return ELBO plus log hyper-prior, the same in every process."""
        value = torch.tensor(self.terms.elbo(sums, q, log_scales), dtype=torch.float64)
        bound = float(self.processes.broadcast(value))
        if not math.isfinite(bound):
            raise NotFiniteError(f"the ELBO became {bound}; look for extreme covariates or weights.")
        return bound


def learn_scales(directions: KeptDirections, information: Information, log_scales: Tensor) -> Tensor:
    """Return the log scales of the highest evidence, with the hyper-prior, shape (G,).

    There the scale s of a group of n directions solves Σ E z²/s² − n = (log s − median)/spread². In every round the
    effective number of parameters, n − Σ Var z/s², is fixed (MacKay 1992), which takes far fewer rounds than EM.
    """
    for _ in range(_ROUNDS):
        q = directions.posterior(information, log_scales)
        precision = directions.precision(log_scales)
        square = q.mean * (precision @ q.mean) * directions.scales(log_scales) ** 2
        known = 1 - (precision * (q.inverse_factor.T @ q.inverse_factor)).sum(0)
        found = []
        for k, group in enumerate(directions.prior.groups):
            part = directions.columns(group)
            count = float(known[part].sum())
            if group.start >= directions.leading:
                share = directions.mass_across * q.across / directions.tail_variance(log_scales)
                count += directions.count_across - share
            found.append(_best_scale(float(square[part].sum()), max(count, _LEAST_KNOWN), log_scales[k], group))
        new = torch.tensor(found, dtype=torch.float64)
        moved = float((new - log_scales).abs().max())
        log_scales = new
        if moved < _ENOUGH:
            break
    return log_scales


def _best_scale(square: float, count: float, start: Tensor, group: Group) -> float:
    """Solve square/s² − count = (log s − median)/spread² for log s by Newton's method."""
    log_scale = float(start)
    precision = group.spread**-2
    for _ in range(100):
        power = square * math.exp(-2 * log_scale)
        step = (power - count - (log_scale - math.log(group.median)) * precision) / (2 * power + precision)
        log_scale += max(-_LONGEST_STEP, min(_LONGEST_STEP, step))
        if abs(step) < 1e-12:
            break
    return log_scale
