r"""Feature learning: mini-batch training by Adam.

The objective is a sum over rows plus the prior,

.. math:: \sum_\text{events} w\,\mathrm{softplus}(-g) + \phi\sum_\text{nodes} c\,\sigma(g)
          + \tfrac12\theta^\top T\theta,

and a step uses a mini-batch of blocks in its place, times the number of blocks over those used: an unbiased estimate,
since every pass goes through the blocks in a new random order. The learning rate falls to 0 along half a cosine.

After a few steps the gradient is taken at weights drawn around the current ones, with variances :math:`1/(T + I)`: this
finds approximately the mean of the Gaussian with independent weights that is closest to the posterior, and not the
mode, which also fits the noise of the rows (Khan et al. 2018). The information I of the rows comes for free with Adam:
the gradients of batches of b of N rows vary by :math:`I/(Nb)` around the mean over rows, and near the end that is the
average of their squares.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import softplus

from neuralsurv.data.cohort import Cohort
from neuralsurv.errors import NotFiniteError
from neuralsurv.inference.stream.packed_rows import PackedRows, block_order, minibatches
from neuralsurv.inference.stream.processes import ProcessGroup
from neuralsurv.inference.stream.snapshots import Snapshot, SnapshotStore
from neuralsurv.model.hazard import Normaliser
from neuralsurv.model.network import Network
from neuralsurv.model.points import build_points
from neuralsurv.model.quadrature import Rule

STAGE = "features"
_MEAN_DECAY, _SQUARE_DECAY, _FLOOR = 0.9, 0.999, 1e-8
# Steps in which the rate rises to its largest value
_WARM_UP = 100
# … but no more than this share of all steps.
_WARM_UP_SHARE = 0.1
# With fewer batches per pass, the variance of the gradients is not known well enough to draw weights.
_FEWEST_BATCHES = 8
# Weight of the last step in the running average of the objective.
_FORGETTING = 0.05

StepReport = Callable[[int, int, float], None]


@dataclass(frozen=True)
class Objective:
    """The objective on a batch."""

    network: Network
    normaliser: Normaliser
    # From the number of a pass and of a block to the quadrature rule of its rows; a rule with few random nodes is
    # cheaper than one with many fixed ones, and right on average.
    rule: Callable[[int, int], Rule]
    precision: Tensor  # of the prior, shape (m,)
    phi: float  # φ, which is fixed

    def batch(self, rows: Cohort, rule: Rule, theta: Tensor) -> Tensor:
        """Return Σ softplus(−g) of the events, Σ c σ(g), and the gradient, of a batch: shape (2 + m,)."""
        points = build_points(rows, rule, 1.0)
        x = rows.x[points.row]
        events = points.events
        mass = points.weight[events:] / self.normaliser(points.time[events:], x[events:])
        g, pullback = self.network.bind(points.time, x)(theta)
        share = torch.sigmoid(g[events:])
        weight = points.weight[:events]
        slope = torch.cat([-weight * torch.sigmoid(-g[:events]), self.phi * mass * (share - share.square())])
        values = torch.stack([weight @ softplus(-g[:events]), mass @ share])
        return torch.cat([values, pullback(slope)])


@dataclass(frozen=True)
class FeatureTraining:
    """The schedule of feature learning."""

    passes: int  # 0 for none
    blocks: int  # blocks of rows per step
    rate: float  # largest learning rate of Adam
    seed: int  # of the order of the blocks, and of the noise

    def steps(self, blocks: int) -> int:
        """Return the number of steps for this many blocks of rows."""
        return self.passes * max(1, round(blocks / self.blocks))

    def learning_rate(self, step: int, total: int) -> float:
        """Return the learning rate of a step, counted from 0."""
        decay = 0.5 * (1 + math.cos(math.pi * step / total))
        return self.rate * min(1.0, (step + 1) / warm_up(total)) * decay


def warm_up(total: int) -> int:
    """Return the number of steps in which the learning rate rises."""
    return max(1, min(_WARM_UP, round(_WARM_UP_SHARE * total)))


@dataclass
class _Adam:
    """Adam, written out: torch's own rounds differently, and the draws need its running squares."""

    step: int
    theta: Tensor
    mean: Tensor
    square: Tensor
    value: float

    def snapshot(self) -> Snapshot:
        return Snapshot.of(STAGE, self, [field.name for field in fields(self)])

    def drawn(self, precision: Tensor, rows: float, batch: float, seed: int) -> Tensor:
        """Return weights drawn around the current ones, for a step with a mini-batch of `batch` of all `rows`."""
        information = self.square * (rows * batch / (1 - _SQUARE_DECAY**self.step))
        noise = np.random.default_rng([seed, 5, self.step]).standard_normal(len(self.theta))
        return self.theta + torch.from_numpy(noise) / (precision + information).sqrt_()

    def move(self, gradient: Tensor, rate: float) -> None:
        """Take one step, in place, since m may be large."""
        self.step += 1
        self.mean.lerp_(gradient, 1 - _MEAN_DECAY)
        self.square.mul_(_SQUARE_DECAY).addcmul_(gradient, gradient, value=1 - _SQUARE_DECAY)
        spread = (self.square / (1 - _SQUARE_DECAY**self.step)).sqrt_().add_(_FLOOR)
        self.theta.addcdiv_(self.mean, spread, value=-rate / (1 - _MEAN_DECAY**self.step))


def learn_features(
    objective: Objective,
    rows: PackedRows,
    processes: ProcessGroup,
    start: Tensor,
    row_count: int,
    training: FeatureTraining,
    checkpoint: SnapshotStore,
    report: StepReport = lambda step, total, value: None,
) -> Tensor:
    """Return the mean that mini-batch training finds from `start`, shape (m,).

    `report` gets after each step its number, the total number and the running objective per row.
    """
    state = _Adam(0, start.clone(), torch.zeros_like(start), torch.zeros_like(start), math.nan)
    found = checkpoint.resume(STAGE)
    if found is not None:
        found.restore(state)
    total = training.steps(rows.blocks)
    each = max(1, total // max(1, training.passes))
    order: list[np.ndarray] = []
    for step in range(state.step, total):
        number, place = divmod(step, each)
        if not order or place == 0:
            order = minibatches(block_order(rows.blocks, training.seed, number), training.blocks)
        chosen = order[place]
        at = state.theta
        if step >= warm_up(total) and each >= _FEWEST_BATCHES:
            # The same in every process.
            share = len(chosen) / rows.blocks
            at = state.drawn(objective.precision, row_count, share * row_count, training.seed)
        local = start.new_zeros(2 + len(start))
        for block, batch in rows.read(chosen):
            local += objective.batch(batch, objective.rule(number, block), at)
        sums = processes.sum(local) * (rows.blocks / len(chosen))
        pull = objective.precision * state.theta
        value = (float(sums[0] + objective.phi * sums[1]) + float(state.theta @ pull) / 2) / row_count
        if not math.isfinite(value):
            raise NotFiniteError(
                f"the objective became {value} in step {step + 1}; look for extreme covariates or times."
            )
        state.value = value if math.isnan(state.value) else state.value + _FORGETTING * (value - state.value)
        state.move((sums[2:] + pull) / row_count, training.learning_rate(step, total))
        checkpoint.save(state.snapshot)
        report(step + 1, total, state.value)
    return state.theta
