r"""The level of the hazard over time, and the strength of what was learned, set by what is predicted for single rows.

The ELBO asks that hazards are right on average over q, and sees the weights across the kept directions as a spread
that no row can narrow. What users see is :math:`\mathrm{E}_q S(t|x)`, and over a spread of hazards that lies above
:math:`\exp(-\mathrm{E}_q\Lambda)`: of people whose hazard is uncertain, those with low ones stay. A posterior of all
weights makes up for it, since every row pulls its own g; one with a wide rest does not, and its curves come out too
high. And features that were learned from the very rows of the posterior tell people apart better there than elsewhere.

So the mean of the weights of time alone, the bias and the basis B(t), and one factor of all other weights, the
strength, are moved to where

.. math:: \sum_i w_i\log\mathrm{E}_q\,p(\text{row}_i|\theta) + \log p(\text{these weights})

is highest: the score of the predictive distribution itself (Jankowiak, Pleiss and Gardner 2020). The expectation is
over joint draws of the weights, so that what is uncertain of a row stays so along its time. The strength comes from
rows that features were not learned from, by Newton's method; the level then takes one more step on many rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from neuralsurv.inference.distributed import Team
from neuralsurv.inference.kept_directions import split_rows
from neuralsurv.inference.linearise import linearise_network
from neuralsurv.inference.packed import PackedRows, RowBatch, permutation
from neuralsurv.model.additive import Additive
from neuralsurv.model.hazard import Normaliser
from neuralsurv.model.points import build_points
from neuralsurv.model.quadrature import Rule
from neuralsurv.model.rows import Rows
from neuralsurv.model.shared_inputs import times_matrix
from neuralsurv.solvers.subspace import SubspaceGaussian

_DRAWS = 64
# Blocks of 256 rows for Newton's method, whose draws of g are held in memory, and for the last step.
_BLOCKS_TO_SETTLE = 32
_BLOCKS_TO_FINISH = 512
# Blocks that features are not learned from: so many, and no more than this share of all.
_BLOCKS_TO_HOLD_OUT = 16
_SHARE_TO_HOLD_OUT = 0.1
# Prior standard deviation of the strength, of which 0 is as learned.
_STRENGTH_SCALE = 1.0
_STEPS = 30
_HALVINGS = 20
# The score is as high as it gets when a step promises less than this, in nats.
_ENOUGH = 1e-8
# The seed of the draws is apart from those of the order of blocks; so is the order by which blocks are held out.
_PURPOSE = 3
_ORDER_TO_HOLD_OUT = 2**40

Report = Callable[[int, int], None]


@dataclass(frozen=True)
class LevelProblem:
    """What the level depends on.

    Attributes
    ----------
    network, normaliser, rule
        The hazard of the default preset, and the quadrature.
    theta_star : Tensor of shape (m,)
        Where the network is linearised.
    theta : SubspaceGaussian
        q(theta), whose level is to be set.
    phi : float
        The value at which phi is held.
    precision : Tensor of shape (m,)
        Prior precision of the weights.
    """

    network: Additive
    normaliser: Normaliser
    rule: Rule
    theta_star: Tensor
    theta: SubspaceGaussian
    phi: float
    precision: Tensor

    @property
    def places(self) -> Tensor:
        """Where the weights of the level are: the bias and those of the time basis."""
        first = self.network.slopes
        times = torch.arange(first, first + self.network.basis.size)
        return torch.cat([torch.tensor([self.network.linear_size - 1]), times])

    @cached_property
    def effects(self) -> Tensor:
        """The mean of all other weights, which the strength is a factor of; 0 at the places, shape (m,)."""
        effects = self.theta.mean.clone()
        effects[self.places] = 0
        return effects

    @cached_property
    def prior(self) -> tuple[Tensor, Tensor]:
        """Precision of level and strength, and where they are before they are moved, each of shape (k,)."""
        precision, start = self.precision[self.places], self.theta.mean[self.places]
        last = precision.new_tensor([_STRENGTH_SCALE**-2])
        return torch.cat([precision, last]), torch.cat([start, 0 * last])

    def columns(self, time: Tensor, rows: Rows) -> Tensor:
        """Return how g at P points of Jacobian rows `rows` changes with level and strength, shape (P, k)."""
        return torch.cat(
            [torch.ones_like(time)[:, None], self.network.basis.columns(time), rows.times(self.effects)[:, None]], 1
        )

    def shifted(self, shift: Tensor) -> SubspaceGaussian:
        """Return q(theta) with the mean moved by `shift` (k,): the level's weights, and last the strength."""
        moved = shift[-1] * self.effects
        moved[self.places] = shift[:-1]
        inner = self.theta.inner_mean + self.theta.basis.T @ (moved * self.theta.precision.sqrt())
        return replace(self.theta, inner_mean=inner)

    def batch(self, rows: RowBatch, draws: Tensor) -> LevelBatch:
        """Work out g of every draw (S, m) at the points of a batch."""
        # A row of weight w is w rows, not a row with w times the likelihood.
        alone = torch.ones_like(rows.weight)
        points = build_points(rows.time, rows.event, rows.entry, alone, self.rule, 1.0)
        x = rows.x[points.row]
        linearised = linearise_network(self.network, self.theta_star, points.time, x)
        lead, tail = split_rows(linearised.rows, self.network.linear_size)
        inside, across = draws[:, : self.network.linear_size], draws[:, self.network.linear_size :]
        g = torch.addmm(linearised.offset, inside, lead.T) + times_matrix(tail, points, rows.x, across.T).T
        events = points.events
        mass = self.phi * points.weight[events:] / self.normaliser(points.time[events:], x[events:])
        columns = self.columns(points.time, linearised.rows)
        return LevelBatch(g, points.row, events, mass, columns, rows.weight)


@dataclass(frozen=True)
class LevelBatch:
    """g of S draws at the P points of n rows.

    Attributes
    ----------
    g : Tensor of shape (S, P)
        At events, then at nodes.
    row : Tensor of shape (P,)
        The row of each point.
    events : int
        How many points are events.
    mass : Tensor of shape (P − events,)
        phi times quadrature weight over Z.
    columns : Tensor of shape (P, k)
        How g changes with level and strength.
    weight : Tensor of shape (n,)
        Row weights.
    """

    g: Tensor
    row: Tensor
    events: int
    mass: Tensor
    columns: Tensor
    weight: Tensor

    def _by_row(self, values: Tensor) -> Tensor:
        """Add up values (S, P) of points over the points of each row, shape (S, n)."""
        return values.new_zeros(len(values), len(self.weight)).index_add_(1, self.row, values)

    def _log_likelihoods(self, share: Tensor, g: Tensor) -> Tensor:
        """Return the log-likelihood of each row for each draw, but for what is known of it, shape (S, n)."""
        return self._by_row(torch.cat([logsigmoid(g[:, : self.events]), -self.mass * share[:, self.events :]], 1))

    def sums(self, shift: Tensor) -> Tensor:
        """Return score, gradient and minus the Hessian at a shift, flat: 1 + k + k² numbers."""
        draws, k = len(self.g), len(shift)
        g = self.g + self.columns @ shift
        share = torch.sigmoid(g)
        rows = self._log_likelihoods(share, g)
        score = self.weight @ (torch.logsumexp(rows, 0) - np.log(draws))
        # How much each draw counts in a row that has come out as it has.
        belief = torch.softmax(rows, 0)
        inner = share * (1 - share)
        at_events, at_nodes = 1 - share[:, : self.events], -self.mass * inner[:, self.events :]
        slope = torch.cat([at_events, at_nodes], 1)
        bend = torch.cat([inner[:, : self.events], -at_nodes * (1 - 2 * share[:, self.events :])], 1)
        each = torch.stack([self._by_row(slope * column) for column in self.columns.T])
        mean = (belief * each).sum(1)
        point_belief = belief[:, self.row]
        curvature = self.columns.T @ ((self.weight[self.row] * (point_belief * bend).sum(0))[:, None] * self.columns)
        flat = each.reshape(k, -1)
        spread = (flat * (belief * self.weight).reshape(-1)) @ flat.T - (mean * self.weight) @ mean.T
        return torch.cat([score[None], mean @ self.weight, (curvature - spread).reshape(-1)])


def held_out_blocks(blocks: int, seed: int) -> np.ndarray:
    """Return the numbers of the blocks that features are not to be learned from; none of a few."""
    count = min(_BLOCKS_TO_HOLD_OUT, int(_SHARE_TO_HOLD_OUT * blocks))
    return permutation(blocks, seed, _ORDER_TO_HOLD_OUT)[:count]


def set_level(
    problem: LevelProblem,
    rows: PackedRows,
    held_out: np.ndarray,
    team: Team,
    seed: int,
    report: Report = lambda done, total: None,
) -> SubspaceGaussian:
    """Return q(theta) with the level and the strength by which rows are predicted best.

    Parameters
    ----------
    problem : LevelProblem
        What they depend on.
    rows : PackedRows
        The rows of all processes.
    held_out : ndarray of int
        Blocks that features were not learned from; if there are none, the strength stays as it is.
    team : Team
        The processes; every one must call this.
    seed : int
        Of the draws and of the choice of blocks.
    report : callable
        Called with the number of blocks that are done, and of all.
    """
    generator = torch.Generator().manual_seed(int(np.random.SeedSequence([seed, _PURPOSE]).generate_state(1)[0]))
    draws = problem.theta.draw(_DRAWS, generator)
    order = permutation(rows.blocks, seed, 0)
    few, many = (held_out if len(held_out) else order[:_BLOCKS_TO_SETTLE]), order[:_BLOCKS_TO_FINISH]
    again = len(many) > len(few)
    total = len(few) + again * len(many)

    def batches(blocks: np.ndarray, before: int) -> Iterator[LevelBatch]:
        for done, (_, batch) in enumerate(rows.read(blocks), before + 1):
            yield problem.batch(batch, draws)
            report(done, total)

    k = len(problem.places) + 1
    level = torch.arange(k - 1)
    held = list(batches(few, 0))
    shift = _settle(problem, held, team, rows.blocks / len(few), torch.arange(k) if len(held_out) else level)
    del held
    if again:
        found = _objective(problem, batches(many, len(few)), team, rows.blocks / len(many), shift)
        shift = shift + _step(problem, *found[1:], level)
    return problem.shifted(team.share(shift))


def _settle(problem: LevelProblem, held: list[LevelBatch], team: Team, share: float, free: Tensor) -> Tensor:
    """Climb to the best level, or level and strength, for some rows; the score never falls."""
    shift = problem.precision.new_zeros(len(problem.places) + 1)
    score, gradient, information = _objective(problem, held, team, share, shift)
    for _ in range(_STEPS):
        step = _step(problem, gradient, information, free)
        if float(step @ gradient) < _ENOUGH:
            break
        for _ in range(_HALVINGS):
            found = _objective(problem, held, team, share, shift + step)
            if found[0] > score:
                break
            step = step / 2
        else:
            break
        shift = shift + step
        score, gradient, information = found
    return shift


def _objective(
    problem: LevelProblem, batches: Iterable[LevelBatch], team: Team, share: float, shift: Tensor
) -> tuple[float, Tensor, Tensor]:
    """Return score, gradient and information of all rows, estimated from some of them, with the prior."""
    k = len(shift)
    total = shift.new_zeros(1 + k + k * k)
    for batch in batches:
        total += batch.sums(shift)
    total = share * team.sum(total)
    precision, start = problem.prior
    pull = precision * (start + shift)
    score = float(total[0]) - 0.5 * float(pull @ (start + shift))
    return score, total[1 : 1 + k] - pull, total[1 + k :].reshape(k, k) + torch.diag(precision)


def _step(problem: LevelProblem, gradient: Tensor, information: Tensor, free: Tensor) -> Tensor:
    """Return Newton's step of the `free` ones; where the score bends the wrong way, its curvature is the prior's."""
    root = problem.prior[0][free].sqrt()
    values, vectors = torch.linalg.eigh(information[free][:, free] / root / root[:, None])
    step = torch.zeros_like(gradient)
    step[free] = vectors @ ((vectors.T @ (gradient[free] / root)) / values.clamp_min(1.0)) / root
    return step
