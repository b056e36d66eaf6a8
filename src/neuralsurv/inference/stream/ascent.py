r"""Coordinate ascent over rows that do not fit into memory: exact sweeps, or natural-gradient steps on mini-batches.

The state is the sums S of `BatchTerms`: the posterior follows from them by one factorisation.

A **sweep** replaces S by the sums of all rows under the posterior; where that would lower the ELBO, the step is halved.

A **step** moves S a part :math:`\rho_t` of the way to an unbiased estimate :math:`\hat S_t` from a few blocks of rows:
on :math:`(\Sigma^{-1}, \Sigma^{-1}\mu)` that is :math:`(1-\rho_t)\eta + \rho_t\hat\eta` (stochastic variational
inference). With :math:`\rho_t = a/(t + a - 1)` the steps satisfy :math:`\sum\rho = \infty, \sum\rho^2 < \infty`, and S
is an average of all estimates with weights like :math:`t^{a-1}`. In the last pass the estimates are also added up as
they come: every row is in that total exactly once, so that the final posterior has no sampling noise of its own; the
only error left is that the posterior still moved a little during the pass.
"""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from neuralsurv.inference.stream.kept_directions import ReducedGaussian
from neuralsurv.inference.stream.packed_rows import block_order, minibatches
from neuralsurv.inference.stream.snapshots import Snapshot
from neuralsurv.inference.stream.streamed_problem import STAGE, StreamedProblem, StreamedResult

# Blocks between two points at which a sweep can be saved: about a million rows.
_PORTION = 4096
_HALVINGS = 12
_ROUNDING = 1e-12
# Share of the first pass in which q stays at the mode while the sums are averaged.
_HOLD = 0.1
# a, how much more later estimates count; 1 would be the plain average of all.
_FORGETTING = 2.0


def sweep_all_rows(problem: StreamedProblem, *, tolerance: float, most: int) -> StreamedResult:
    """Sweep over all rows until a full sweep gains less than `tolerance` nats; the ELBO never falls."""
    run = _Sweeps(problem)
    while not run.converged and len(run.trace) < most:
        run.take(run.total(), tolerance)
    run.save(now=True)
    return StreamedResult(run.sums, run.wanted, run.scales, tuple(run.trace), run.converged, 0.0)


def take_steps(problem: StreamedProblem, *, blocks: int, passes: int, seed: int) -> StreamedResult:
    """Take natural-gradient steps on mini-batches of blocks, for some passes over the rows."""
    return _Steps(problem, blocks, passes, seed).run()


class _Ascent:
    """What sweeps and steps share: sums, scales of the prior, the ELBO so far, and snapshots of what changes."""

    changing: ClassVar[tuple[str, ...]]

    def __init__(self, problem: StreamedProblem) -> None:
        self.problem = problem
        self.sums, self.scales = problem.no_sums(), problem.log_scales
        self.trace: list[float] = []

    def resume(self) -> None:
        found = self.problem.checkpoint.resume(STAGE)
        if found is not None:
            found.restore(self)

    def save(self, *, now: bool = False) -> None:
        self.problem.checkpoint.save(lambda: Snapshot.of(STAGE, self, self.changing), now=now)

    def save_and_report(self, done: int, total: int) -> None:
        self.save()
        self.problem.report(done, total, self.trace[-1] if self.trace else math.nan)


class _Sweeps(_Ascent):
    """Where the sweeps are (`sums`), the sums of the rows there (`wanted`), and the step that is tried."""

    changing = (
        *("sums", "wanted", "tried", "scales", "tried_scales", "partial"),
        *("trace", "length", "portion", "started", "converged"),
    )

    def __init__(self, problem: StreamedProblem) -> None:
        super().__init__(problem)
        self.length = 1.0
        self.wanted = self.tried = self.sums
        self.tried_scales = self.scales
        self.partial, self.portion = self.sums.clone(), 0
        self.started = self.converged = False
        self.parts = minibatches(np.arange(problem.rows.blocks), _PORTION)
        self.resume()
        self.q = problem.posterior(self.tried, self.tried_scales) if self.started else problem.start()

    def total(self) -> Tensor:
        """Return the sums of all rows under the posterior that is tried."""
        while self.portion < len(self.parts):
            self.partial = self.partial + self.problem.sums(self.parts[self.portion], self.q)
            self.portion += 1
            self.save_and_report(len(self.trace) * len(self.parts) + self.portion, len(self.parts))
        return self.partial

    def take(self, found: Tensor, tolerance: float) -> None:
        """Accept or reject what was tried, and choose what to try next."""
        if not self.started:
            # These are the sums under the point mass at the mode, which has no ELBO.
            self.started = True
            self._try(found)
            return
        bound = self.problem.elbo(found, self.q, self.tried_scales)
        gain = bound - self.trace[-1] if self.trace else math.inf
        if not self.trace or bound >= self.trace[-1] - _ROUNDING * abs(bound):
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
            self._try(torch.lerp(self.sums, self.wanted, self.length))

    def _try(self, sums: Tensor) -> None:
        self.tried = sums
        self.q, self.tried_scales = self.problem.learned_posterior(sums, self.scales)
        self.partial, self.portion = torch.zeros_like(self.partial), 0


class _Steps(_Ascent):
    """The running sums of the steps, and the totals of the last pass."""

    changing = ("sums", "total", "middle", "scales", "trace", "done")

    def __init__(self, problem: StreamedProblem, blocks: int, passes: int, seed: int) -> None:
        super().__init__(problem)
        self.blocks, self.passes, self.seed = blocks, passes, seed
        self.each = max(1, round(problem.rows.blocks / blocks))
        self.hold = max(1, math.ceil(_HOLD * self.each))
        self.done = 0
        self.total = self.middle = self.sums
        self.resume()

    def rate(self, step: int) -> float:
        """Return ρ of a step, counted from 0: a plain average while q is at the mode, then one that forgets."""
        if step < self.hold:
            return 1 / (step + 1)
        return _FORGETTING / (step + _FORGETTING)

    def run(self) -> StreamedResult:
        problem, steps = self.problem, self.each * self.passes
        order: list[np.ndarray] = []
        for step in range(self.done, steps):
            number, place = divmod(step, self.each)
            if not order or place == 0:
                order = minibatches(block_order(problem.rows.blocks, self.seed, number), self.blocks)
            if step < self.hold:
                q = problem.start()
            else:
                q, self.scales = problem.learned_posterior(self.sums, self.scales)
            found = problem.sums(order[place], q)
            estimate = found * (problem.rows.blocks / len(order[place]))
            self.sums = torch.lerp(self.sums, estimate, self.rate(step))
            if number == self.passes - 1:
                self.total = self.total + found
                if place == self.each // 2:
                    self.middle = self.sums
            self.done = step + 1
            if place == self.each - 1:
                after, self.scales = problem.learned_posterior(self.sums, self.scales)
                self.trace.append(problem.elbo(self.sums, after, self.scales))
            self.save_and_report(self.done, steps)
        self.save(now=True)
        final, scales = problem.learned_posterior(self.total, self.scales)
        moved = self._moved(final)
        return StreamedResult(self.total, self.total, scales, tuple(self.trace), moved < 1.0, moved)

    def _moved(self, final: ReducedGaussian) -> float:
        """Return how far the mean went from the middle of the last pass, in posterior standard deviations."""
        gap = final.mean - self.problem.posterior(self.middle, self.scales).mean
        deviation = torch.linalg.solve_triangular(final.inverse_factor.T, gap[:, None], upper=True)
        return float(deviation.square().mean().sqrt())
