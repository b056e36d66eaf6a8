r"""Feature learning: mini-batch training by Adam.

The objective is a sum over rows plus the prior,

.. math:: \sum_\text{events} w\,\mathrm{softplus}(-g) + \phi\sum_\text{nodes} c\,\sigma(g)
          + \tfrac12\theta^\top T\theta,

and a step uses the rows of a few blocks in its place, times the number of blocks over those used: an unbiased estimate,
since every pass goes through the blocks in a fresh random order. Steps shrink to nothing along half a cosine.

After a few steps the gradient is taken at weights that are drawn around the present ones, with variances
:math:`1/(T + I)`: what is found is then about the mean of the Gaussian with independent weights that is closest to the
posterior, and not its highest point, which has fitted the noise of the rows as well (Khan et al. 2018). The information
I of the rows costs nothing, as Adam has it: gradients of batches of b of N rows vary by :math:`I/(Nb)` around the mean
over rows, and that is what the average of their squares comes to near the end.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

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
# The gradients of fewer batches a pass do not tell how rows vary, so that there is no noise.
_FEWEST_BATCHES = 8
# How fast the running average of the objective forgets.
_FORGETTING = 0.05

Report = Callable[[int, int, float], None]


@dataclass(frozen=True)
class Objective:
    """The objective on a batch.

    Attributes
    ----------
    network, normaliser
        The hazard.
    rule : callable
        From the number of a pass and of a block to the quadrature rule of its rows; a rule with few random nodes is
        cheaper than one with many fixed ones, and right on average.
    precision : Tensor of shape (m,)
        Prior precision T.
    phi : float
        φ, which is held.
    """

    network: Network
    normaliser: Normaliser
    rule: Callable[[int, int], Rule]
    precision: Tensor
    phi: float

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
class Training:
    """How to train.

    Attributes
    ----------
    passes : int
        Passes through the rows; 0 for none.
    blocks : int
        Blocks of rows a step.
    rate : float
        Largest step of Adam.
    seed : int
        Of the order of the blocks, and of the noise.
    """

    passes: int
    blocks: int
    rate: float
    seed: int

    def steps(self, blocks: int) -> int:
        """Return the number of steps for so many blocks of rows."""
        return self.passes * max(1, round(blocks / self.blocks))


@dataclass
class _Adam:
    step: int
    theta: Tensor
    mean: Tensor
    square: Tensor
    value: float

    def snapshot(self) -> Snapshot:
        numbers = {"step": self.step, "value": self.value}
        tensors = {"theta": self.theta, "adam_mean": self.mean, "adam_square": self.square}
        return Snapshot(STAGE, numbers, {name: tensor.clone() for name, tensor in tensors.items()})

    def drawn(self, precision: Tensor, rows: float, batch: float, seed: int) -> Tensor:
        """Return weights around the present ones, for a step with a batch of so many rows."""
        information = self.square * (rows * batch / (1 - _SQUARE_DECAY**self.step))
        noise = np.random.default_rng([seed, 5, self.step]).standard_normal(len(self.theta))
        return self.theta + torch.from_numpy(noise) / (precision + information).sqrt_()

    def move(self, gradient: Tensor, rate: float) -> None:
        """Take one step; in place, since m may be large."""
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
    training: Training,
    checkpoint: SnapshotStore,
    report: Report = lambda step, total, value: None,
) -> Tensor:
    """Return the mean that mini-batch training finds from `start`.

    Parameters
    ----------
    objective : Objective
        What is lowered.
    rows : PackedRows
        The rows.
    processes : ProcessGroup
        The processes that share them.
    start : Tensor of shape (m,)
        Where to start.
    row_count : int
        Number of all rows.
    training : Training
        How to train.
    checkpoint : SnapshotStore
        Where the state is saved.
    report : callable
        Called after each step with its number, the number of all steps and the running objective, per row.
    """
    found = checkpoint.resume(STAGE)
    if found is None:
        state = _Adam(0, start.clone(), torch.zeros_like(start), torch.zeros_like(start), math.nan)
    else:
        theta, mean, square = (found.tensors[name].clone() for name in ("theta", "adam_mean", "adam_square"))
        numbers = found.numbers
        state = _Adam(int(numbers["step"]), theta, mean, square, numbers["value"])
    total = training.steps(rows.blocks)
    each = max(1, total // max(1, training.passes))
    warm_up = max(1, min(_WARM_UP, round(_WARM_UP_SHARE * total)))
    order: list[np.ndarray] = []
    for step in range(state.step, total):
        number, place = divmod(step, each)
        if not order or place == 0:
            order = minibatches(block_order(rows.blocks, training.seed, number), training.blocks)
        chosen = order[place]
        at = state.theta
        if step >= warm_up and each >= _FEWEST_BATCHES:
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
        decay = 0.5 * (1 + math.cos(math.pi * step / total))
        state.move((sums[2:] + pull) / row_count, training.rate * min(1.0, (step + 1) / warm_up) * decay)
        checkpoint.save(state.snapshot)
        report(step + 1, total, state.value)
    return state.theta
