r"""The level of the hazard over time, set by what the posterior predicts for single rows.

The ELBO asks that hazards are right on average over q, and sees the weights across the kept directions as a spread
that no row can narrow. What users see is :math:`\mathrm{E}_q S(t|x)`, and over a spread of hazards that lies above
:math:`\exp(-\mathrm{E}_q\Lambda)`: of people whose hazard is uncertain, those with low ones stay. A posterior of all
weights makes up for it, since every row pulls its own g; one with a wide rest does not, and its curves come out too
high. So the mean of the few weights of time alone, the bias and the basis B(t), is moved to where

.. math:: \sum_i w_i\log\mathrm{E}_q\,p(\text{row}_i|\theta) + \log p(\text{these weights})

is highest: the score of the predictive distribution itself (Jankowiak, Pleiss and Gardner 2020). The expectation is
over joint draws of the weights, so that what is uncertain of a row stays so along its time. A handful of numbers is
learned from thousands of rows, by Newton's method on some of them and one more step on many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

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
from neuralsurv.model.shared_inputs import times_matrix
from neuralsurv.solvers.subspace import SubspaceGaussian

_DRAWS = 64
# Blocks of 256 rows for Newton's method, whose draws of g are held, and for the last step.
_BLOCKS_TO_SETTLE = 32
_BLOCKS_TO_FINISH = 512
_STEPS = 30
_HALVINGS = 20
# The score is as high as it gets when a step promises less than this, in nats.
_ENOUGH = 1e-8
# The seed of the draws is apart from those of the order of blocks.
_PURPOSE = 3

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

    def columns(self, time: Tensor) -> Tensor:
        """Return what these weights are multiplied with at P scaled times, shape (P, k)."""
        return torch.cat([torch.ones_like(time)[:, None], self.network.basis.columns(time)], 1)

    def shifted(self, shift: Tensor) -> SubspaceGaussian:
        """Return q(theta) with the mean of the level's weights moved by `shift` (k,)."""
        moved = torch.zeros_like(self.precision)
        moved[self.places] = shift
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
        return LevelBatch(g, points.row, events, mass, self.columns(points.time), rows.weight)


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
        What the weights of the level are multiplied with.
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
        """Return score, gradient and minus the Hessian at a shift of the level, flat: 1 + k + k² numbers."""
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


def set_level(
    problem: LevelProblem,
    rows: PackedRows,
    team: Team,
    seed: int,
    report: Report = lambda done, total: None,
) -> SubspaceGaussian:
    """Return q(theta) with the level at which rows are predicted best.

    Parameters
    ----------
    problem : LevelProblem
        What the level depends on.
    rows : PackedRows
        The rows of all processes.
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
    few, many = order[:_BLOCKS_TO_SETTLE], order[:_BLOCKS_TO_FINISH]
    again = len(many) > len(few)
    total = len(few) + again * len(many)

    def batches(blocks: np.ndarray, before: int) -> Iterator[LevelBatch]:
        for done, (_, batch) in enumerate(rows.read(blocks), before + 1):
            yield problem.batch(batch, draws)
            report(done, total)

    held = list(batches(few, 0))
    shift = _settle(problem, held, team, rows.blocks / len(few))
    del held
    if again:
        found = _objective(problem, batches(many, len(few)), team, rows.blocks / len(many), shift)
        shift = shift + _step(problem, *found[1:])
    return problem.shifted(team.share(shift))


def _settle(problem: LevelProblem, held: list[LevelBatch], team: Team, share: float) -> Tensor:
    """Climb to the best level for some rows; the score never falls."""
    shift = problem.precision.new_zeros(len(problem.places))
    score, gradient, information = _objective(problem, held, team, share, shift)
    for _ in range(_STEPS):
        step = _step(problem, gradient, information)
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
    precision = problem.precision[problem.places]
    weights = problem.theta.mean[problem.places] + shift
    score = float(total[0]) - 0.5 * float(precision @ weights**2)
    return score, total[1 : 1 + k] - precision * weights, total[1 + k :].reshape(k, k) + torch.diag(precision)


def _step(problem: LevelProblem, gradient: Tensor, information: Tensor) -> Tensor:
    """Return Newton's step; where the score bends the wrong way, its curvature there is taken as the prior's."""
    root = problem.precision[problem.places].sqrt()
    values, vectors = torch.linalg.eigh(information / root / root[:, None])
    step: Tensor = vectors @ ((vectors.T @ (gradient / root)) / values.clamp_min(1.0)) / root
    return step
