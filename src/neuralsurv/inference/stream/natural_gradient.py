r"""Stochastic variational inference for rows that do not fit into memory: natural-gradient steps on mini-batches.

The state is the sums S of `BatchTerms`: the posterior follows from them by one factorisation. A step moves S a part
:math:`\rho_t` of the way to an unbiased estimate :math:`\hat S_t` from a few blocks of rows: on
:math:`(\Sigma^{-1}, \Sigma^{-1}\mu)` that is :math:`(1-\rho_t)\eta + \rho_t\hat\eta`. With
:math:`\rho_t = a/(t + a - 1)` the steps satisfy :math:`\sum\rho = \infty, \sum\rho^2 < \infty`, and S is an average of
all estimates with weights like :math:`t^{a-1}`. In the last pass the estimates are also added up as they come: every
row is in that total exactly once, so that the final posterior has no sampling noise of its own; the only error left is
that the posterior still moved a little during the pass.
"""

from __future__ import annotations

import math

import numpy as np
import torch

from neuralsurv.inference.stream.kept_directions import ReducedGaussian
from neuralsurv.inference.stream.packed_rows import block_order, minibatches
from neuralsurv.inference.stream.snapshots import Snapshot
from neuralsurv.inference.stream.streamed_problem import STAGE, StreamedProblem, StreamedResult

# Share of the first pass in which q stays at the mode while the sums are averaged.
_HOLD = 0.1
# a, how much more later estimates count; 1 would be the plain average of all.
_FORGETTING = 2.0
_STATE = ("sums", "total", "middle", "scales", "trace", "done")


def take_steps(problem: StreamedProblem, *, blocks: int, passes: int, seed: int) -> StreamedResult:
    """Take natural-gradient steps on mini-batches of blocks, for some passes over the rows."""
    return _Steps(problem, blocks, passes, seed).run()


class _Steps:
    """The state of the steps: the running sums, and the totals of the last pass."""

    def __init__(self, problem: StreamedProblem, blocks: int, passes: int, seed: int) -> None:
        self.problem, self.blocks, self.passes, self.seed = problem, blocks, passes, seed
        self.each = max(1, round(problem.rows.blocks / blocks))
        self.hold = max(1, math.ceil(_HOLD * self.each))
        self.done = 0
        self.sums, self.total, self.middle = problem.no_sums(), problem.no_sums(), problem.no_sums()
        self.scales = problem.log_scales
        self.trace: list[float] = []
        found = problem.checkpoint.resume(STAGE)
        if found is not None:
            found.restore(self)

    def snapshot(self) -> Snapshot:
        return Snapshot.of(STAGE, self, _STATE)

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
            problem.checkpoint.save(self.snapshot)
            problem.report(self.done, steps, self.trace[-1] if self.trace else math.nan)
        problem.checkpoint.save(self.snapshot, now=True)
        final, scales = problem.learned_posterior(self.total, self.scales)
        moved = self._moved(final)
        return StreamedResult(self.total, self.total, scales, tuple(self.trace), moved < 1.0, moved)

    def _moved(self, final: ReducedGaussian) -> float:
        """Return how far the mean went from the middle of the last pass, in posterior standard deviations."""
        gap = final.mean - self.problem.posterior(self.middle, self.scales).mean
        deviation = torch.linalg.solve_triangular(final.inverse_factor.T, gap[:, None], upper=True)
        return float(deviation.square().mean().sqrt())
