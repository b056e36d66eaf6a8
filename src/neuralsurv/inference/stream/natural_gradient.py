r"""Variational inference for rows that do not fit into memory: exact sweeps, and natural-gradient steps on samples.

The state is the sums S of `terms`: the belief follows from them by one factorisation. A sweep replaces S by the sums of
all rows under the belief. A natural-gradient step moves S a part :math:`\rho_t` of the way to an unbiased estimate
:math:`\hat S_t` from a few blocks of rows: on :math:`(\Sigma^{-1}, \Sigma^{-1}\mu)` that is
:math:`(1-\rho_t)\eta + \rho_t\hat\eta`. With :math:`\rho_t = a/(t + a - 1)` the steps shrink as they must
(:math:`\sum\rho = \infty, \sum\rho^2 < \infty`), and S is an average of all estimates with weights like
:math:`t^{a-1}`. In the last pass the estimates are also added up as they come: every row is in that total exactly
once, so that the final belief has no sampling noise of its own, only what little the belief moved during the pass.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from neuralsurv.errors import NotFiniteError
from neuralsurv.inference.stream.batch_terms import BatchTerms
from neuralsurv.inference.stream.kept_directions import Belief
from neuralsurv.inference.stream.packed_rows import PackedRows, groups, permutation
from neuralsurv.inference.stream.processes import Team
from neuralsurv.inference.stream.snapshots import Keeper, Snapshot

STAGE = "posterior"
# Blocks between two points at which a sweep can be saved: about a million rows.
_PORTION = 4096
_HALVINGS = 12
_ROUNDING = 1e-12
# Share of the first pass in which the belief stays at the mode while the sums settle.
_HOLD = 0.1
# a, how much more later estimates count; 1 would be the plain average of all.
_FORGETTING = 2.0

Report = Callable[[int, int, float], None]


@dataclass(frozen=True)
class Settled:
    """Where the inference ended.

    Attributes
    ----------
    sums : Tensor
        S; the belief follows from it.
    last : Tensor
        Sums of all rows under that belief (exact sweeps), or the best there is of them.
    log_scales : Tensor of shape (G,)
        Log scales of the prior.
    elbo : tuple of float
        ELBO plus log hyper-prior, after each sweep or (an estimate) after each pass.
    converged : bool
        Whether the last sweep gained less than the tolerance; for steps on samples, whether the last half pass moved
        the mean by less than one posterior standard deviation.
    moved : float
        That movement: root mean square over the directions, in posterior standard deviations; 0 for sweeps.
    """

    sums: Tensor
    last: Tensor
    log_scales: Tensor
    elbo: tuple[float, ...]
    converged: bool
    moved: float


@dataclass(frozen=True)
class Inference:
    """One inference problem.

    Attributes
    ----------
    terms : BatchTerms
        What rows say.
    rows : PackedRows
        The rows.
    team : Team
        The processes that share them.
    mode : Tensor of shape (m,)
        Where the network is linearised, and the sweeps start.
    log_scales : Tensor of shape (G,)
        Log scales of the prior to start with.
    keeper : Keeper
        Where snapshots go.
    report : callable
        Called with the finished part of the work, all of it, and the ELBO so far.
    """

    terms: BatchTerms
    rows: PackedRows
    team: Team
    mode: Tensor
    log_scales: Tensor
    keeper: Keeper
    report: Report = lambda done, total, elbo: None

    def _sums(self, blocks: np.ndarray, belief: Belief) -> Tensor:
        """Return the sums of some blocks, over all processes."""
        local = torch.zeros(self.terms.length, dtype=torch.float64)
        for _, batch in self.rows.read(blocks):
            local += self.terms.batch(batch, belief)
        return self.team.sum(local)

    def _believe(self, sums: Tensor, log_scales: Tensor) -> tuple[Belief, Tensor]:
        """Return the belief for sums, with the scales that go with them."""
        told = self.terms.told(sums)
        # Process 0 decides: another processor may round the last digit differently.
        log_scales = self.team.share(self.terms.directions.learn_scales(told, log_scales))
        return self.terms.directions.believe(told, log_scales), log_scales

    def _elbo(self, sums: Tensor, belief: Belief, log_scales: Tensor) -> float:
        value = torch.tensor(self.terms.elbo(sums, belief, log_scales), dtype=torch.float64)
        bound = float(self.team.share(value))
        if not math.isfinite(bound):
            raise NotFiniteError(f"the ELBO became {bound}; look for extreme covariates or weights.")
        return bound

    def sweep(self, *, tolerance: float, most: int) -> Settled:
        """Sweep over all rows until a full sweep gains less than `tolerance` nats; the ELBO never falls.

        Parameters
        ----------
        tolerance : float
            In nats.
        most : int
            Limit on the sweeps.
        """
        run = _Sweeps(self)
        while not run.converged and len(run.trace) < most:
            run.take(run.total(), tolerance)
        return run.outcome()

    def step(self, *, blocks: int, passes: int, seed: int) -> Settled:
        """Take natural-gradient steps on samples of the rows.

        Parameters
        ----------
        blocks : int
            Blocks of rows a step.
        passes : int
            Passes through the rows, at least 1.
        seed : int
            Of the order of the blocks.
        """
        return _Steps(self, blocks, passes, seed).run()


class _Sweeps:
    """The state of exact sweeps: where they stand (`sums`), what the rows say there, and the step that is tried."""

    def __init__(self, problem: Inference) -> None:
        self.problem = problem
        self.trace: list[float] = []
        self.length = 1.0
        empty = torch.zeros(problem.terms.length, dtype=torch.float64)
        self.sums, self.wanted, self.tried = empty, empty, empty
        self.scales = self.tried_scales = problem.log_scales
        self.partial, self.portion = empty.clone(), 0
        self.converged = False
        self.parts = groups(np.arange(problem.rows.blocks), _PORTION)
        self.belief = problem.terms.directions.certain(problem.mode)
        self.started = False
        self._resume()

    def _resume(self) -> None:
        found = self.problem.keeper.resumed(STAGE)
        if found is None:
            return
        for name in ("sums", "wanted", "tried", "scales", "tried_scales", "partial"):
            setattr(self, name, found.tensors[name].clone())
        self.trace = found.tensors["trace"].tolist()
        self.length, self.portion = found.numbers["length"], int(found.numbers["portion"])
        self.started, self.converged = bool(found.numbers["started"]), bool(found.numbers["converged"])
        if self.started:
            self.belief = self._belief(self.tried, self.tried_scales)

    def _belief(self, sums: Tensor, scales: Tensor) -> Belief:
        return self.problem.terms.directions.believe(self.problem.terms.told(sums), scales)

    def snapshot(self) -> Snapshot:
        names = ("sums", "wanted", "tried", "scales", "tried_scales", "partial")
        tensors = {name: getattr(self, name).clone() for name in names}
        tensors["trace"] = torch.tensor(self.trace, dtype=torch.float64)
        numbers = {
            "length": self.length,
            "portion": self.portion,
            "started": float(self.started),
            "converged": float(self.converged),
        }
        return Snapshot(STAGE, numbers, tensors)

    def total(self) -> Tensor:
        """Go through all rows under the belief that is tried."""
        problem = self.problem
        bound = self.trace[-1] if self.trace else math.nan
        while self.portion < len(self.parts):
            self.partial = self.partial + problem._sums(self.parts[self.portion], self.belief)
            self.portion += 1
            problem.keeper.offer(self.snapshot)
            problem.report(len(self.trace) * len(self.parts) + self.portion, len(self.parts), bound)
        return self.partial

    def take(self, found: Tensor, tolerance: float) -> None:
        """Judge what was tried, and choose what to try next."""
        if not self.started:
            # All mass was at the mode: the first full belief.
            self.started = True
            self._try(found, self.scales)
            return
        bound = self.problem._elbo(found, self.belief, self.tried_scales)
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
        self.belief, self.tried_scales = self.problem._believe(sums, scales)
        self.partial, self.portion = torch.zeros_like(self.partial), 0

    def outcome(self) -> Settled:
        self.problem.keeper.offer(self.snapshot, now=True)
        return Settled(self.sums, self.wanted, self.scales, tuple(self.trace), self.converged, 0.0)


class _Steps:
    """The state of steps on samples: the running sums, the totals of the last pass."""

    def __init__(self, problem: Inference, blocks: int, passes: int, seed: int) -> None:
        self.problem, self.blocks, self.passes, self.seed = problem, blocks, passes, seed
        self.each = max(1, round(problem.rows.blocks / blocks))
        self.hold = max(1, math.ceil(_HOLD * self.each))
        self.done = 0
        empty = torch.zeros(problem.terms.length, dtype=torch.float64)
        self.sums, self.total, self.middle = empty, empty.clone(), empty.clone()
        self.scales = problem.log_scales
        self.trace: list[float] = []
        found = problem.keeper.resumed(STAGE)
        if found is not None:
            for name in ("sums", "total", "middle", "scales"):
                setattr(self, name, found.tensors[name].clone())
            self.trace = found.tensors["trace"].tolist()
            self.done = int(found.numbers["done"])

    def snapshot(self) -> Snapshot:
        tensors = {name: getattr(self, name).clone() for name in ("sums", "total", "middle", "scales")}
        tensors["trace"] = torch.tensor(self.trace, dtype=torch.float64)
        return Snapshot(STAGE, {"done": float(self.done)}, tensors)

    def rate(self, step: int) -> float:
        """Return ρ of a step, counted from 0: a plain average while the belief is held, then one that forgets."""
        if step < self.hold:
            return 1 / (step + 1)
        return _FORGETTING / (step + _FORGETTING)

    def run(self) -> Settled:
        problem, steps = self.problem, self.each * self.passes
        order: list[np.ndarray] = []
        for step in range(self.done, steps):
            number, place = divmod(step, self.each)
            if not order or place == 0:
                order = groups(permutation(problem.rows.blocks, self.seed, number), self.blocks)
            if step < self.hold:
                belief = problem.terms.directions.certain(problem.mode)
            else:
                belief, self.scales = problem._believe(self.sums, self.scales)
            found = problem._sums(order[place], belief)
            estimate = found * (problem.rows.blocks / len(order[place]))
            self.sums = torch.lerp(self.sums, estimate, self.rate(step))
            if number == self.passes - 1:
                self.total = self.total + found
                if place == self.each // 2:
                    self.middle = self.sums
            self.done = step + 1
            if place == self.each - 1:
                after, self.scales = problem._believe(self.sums, self.scales)
                self.trace.append(problem._elbo(self.sums, after, self.scales))
            problem.keeper.offer(self.snapshot)
            problem.report(self.done, steps, self.trace[-1] if self.trace else math.nan)
        problem.keeper.offer(self.snapshot, now=True)
        belief, scales = problem._believe(self.total, self.scales)
        moved = self._moved(belief)
        return Settled(self.total, self.total, scales, tuple(self.trace), moved < 1.0, moved)

    def _moved(self, final: Belief) -> float:
        """Return how far the mean went from the middle of the last pass, in posterior standard deviations."""
        directions = self.problem.terms.directions
        gap = final.mean - directions.believe(self.problem.terms.told(self.middle), self.scales).mean
        deviation = torch.linalg.solve_triangular(final.inverse_factor.T, gap[:, None], upper=True)
        return float(deviation.square().mean().sqrt())
