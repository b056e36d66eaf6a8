r"""Ordinary training of a module, before it is linearised: its features are learned here.

The objective is the one that the posterior has, minus the log of the joint density of data and weights,

.. math:: \sum_\text{events} w\,\mathrm{softplus}(-g) + \phi\sum_\text{nodes} c\,\sigma(g)
          + \tfrac12\theta^\top T\theta,

of the linear path, the time basis and all weights of the module with ``requires_grad``. It is minimised by Adam on
batches of rows. A fifth of the rows are kept aside to say when to stop; the weights of the epoch that predicted these
best are kept, which are the initial ones if training only does harm.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import softplus

from neuralsurv.arguments import positive_number, whole_number
from neuralsurv.errors import NotFiniteError
from neuralsurv.model.likelihood import AdditiveLikelihood
from neuralsurv.model.module_network import ModuleNetwork
from neuralsurv.progress import bar

# Rows of a batch: as many as give this many steps an epoch, within limits. What counts for when to stop is steps.
_STEPS_AN_EPOCH = 16
_FEWEST_IN_BATCH, _MOST_IN_BATCH = 16, 64
_HELD_OUT = 0.2
# Fewer rows than this are too few to keep some aside; nothing is learned from them before the posterior.
_FEWEST_ROWS = 20
# Epochs without a better prediction of the rows kept aside, after which training ends.
_PATIENCE = 12
# The linear path and the time basis may move faster than the module: their columns are of order 1.
_LINEAR_RATE = 3.0


@dataclass(frozen=True)
class ModuleTraining:
    """How a module is trained.

    Attributes
    ----------
    epochs : int
        Largest number of passes over the rows; 0 leaves the module as it is.
    learning_rate : float
        Rate of Adam at the start; it falls to 0 along half a cosine.
    """

    epochs: int = 50
    learning_rate: float = 2e-3

    def checked(self) -> ModuleTraining:
        """Return the settings with every value checked and converted to its type."""
        return ModuleTraining(
            whole_number("epochs", self.epochs, least=0), positive_number("learning_rate", self.learning_rate)
        )


@dataclass(frozen=True)
class Learned:
    """The result of training.

    Attributes
    ----------
    weights : Tensor of shape (m,)
        Weights of the module after the best epoch.
    epochs : int
        Which epoch that was; 0 for the module as it was given.
    held_out : tuple of float
        Mean loss of the rows kept aside before training and after each epoch, in nats per row.
    """

    weights: Tensor
    epochs: int
    held_out: tuple[float, ...]


@dataclass(frozen=True)
class _RowPoints:
    """The points of rows, in one block for each row.

    Attributes
    ----------
    order, ends : Tensor
        Points sorted by row, and where those of each row begin and end.
    """

    order: Tensor
    ends: Tensor

    @classmethod
    def of(cls, likelihood: AdditiveLikelihood) -> _RowPoints:
        row = likelihood.points.row
        counts = torch.bincount(row, minlength=len(likelihood.x))
        return cls(torch.argsort(row, stable=True), torch.cat([counts.new_zeros(1), counts.cumsum(0)]))

    def points(self, rows: Tensor) -> Tensor:
        """Return the points of some rows."""
        return torch.cat([self.order[self.ends[k] : self.ends[k + 1]] for k in rows.tolist()])


class _Trainer:
    """The model in the form that an optimiser moves: a copy of the module, and the weights of the linear path."""

    def __init__(
        self, likelihood: AdditiveLikelihood, module: ModuleNetwork, phi: float, precision: Tensor, dtype: torch.dtype
    ) -> None:
        network, points = likelihood.network, likelihood.points
        self.inner, self.dtype, device = module, dtype, module.device
        self.module = copy.deepcopy(module.module).to(dtype).eval()
        self.parameters = [self.module.get_parameter(name).requires_grad_() for name in self.inner.names]
        self.lead = torch.zeros(network.linear_size, dtype=dtype, device=device, requires_grad=True)
        self.start = [parameter.detach().clone() for parameter in self.parameters]
        cut = network.linear_size
        self.lead_precision = precision[:cut].to(device, dtype)
        shapes = [shape.numel() for shape in self.inner.shapes]
        self.precision = [
            part.reshape(shape).to(device, dtype)
            for part, shape in zip(torch.split(precision[cut:], shapes), self.inner.shapes, strict=True)
        ]
        # Of every point: the columns of the linear path, the clock, the module at its start, and how much it counts.
        columns = network.columns(points.time, likelihood.point_x)
        self.columns = torch.cat([columns, torch.ones_like(columns[:, :1])], 1).to(device, dtype)
        self.clock = network.basis.clock(points.time)
        origin = self.inner.value(network.origin, self.clock, likelihood.point_x)
        self.offset = (network.offset - origin).to(device, dtype)
        self.clock = self.clock.to(device, dtype)
        self.event = torch.arange(len(points)).lt(points.events).to(device)
        self.mass = torch.cat([likelihood.event_weight, phi * likelihood.baseline]).to(device, dtype)
        self.row_x, self.row = likelihood.x, points.row

    def loss(self, points: Tensor) -> Tensor:
        """Return minus the log-likelihood of some points."""
        on = points.to(self.clock.device)
        x = self.inner.layout.unpack(self.row_x[self.row[points]].to(on.device, self.dtype))
        out: Tensor = self.module(self.clock[on], x)
        g = out.reshape(len(points)) + self.offset[on] + self.columns[on] @ self.lead
        return (self.mass[on] * torch.where(self.event[on], softplus(-g), torch.sigmoid(g))).sum()

    def penalty(self) -> Tensor:
        """Return minus the log of the prior density."""
        total = (self.lead_precision * self.lead.square()).sum()
        for parameter, start, precision in zip(self.parameters, self.start, self.precision, strict=True):
            total = total + (precision * (parameter - start).square()).sum()
        return total / 2

    def weights(self) -> Tensor:
        """Return the weights of the module, flat."""
        return torch.cat([p.detach().reshape(-1) for p in self.parameters]).to("cpu", torch.float64)


def _batches(rows: Tensor, generator: torch.Generator) -> Iterator[Tensor]:
    order = rows[torch.randperm(len(rows), generator=generator)]
    # No batch of a handful at the end: its gradient would be all noise.
    size = min(_MOST_IN_BATCH, max(_FEWEST_IN_BATCH, len(order) // _STEPS_AN_EPOCH))
    yield from torch.tensor_split(order, max(1, round(len(order) / size)))


def train(
    likelihood: AdditiveLikelihood,
    module: ModuleNetwork,
    phi: float,
    precision: Tensor,
    training: ModuleTraining,
    *,
    seed: int,
    dtype: torch.dtype,
    verbose: bool | str | int = False,
) -> Learned:
    """Train the module of an additive network.

    Parameters
    ----------
    likelihood : AdditiveLikelihood
        The cohort, with a network whose inner one is `module`.
    module : ModuleNetwork
        The module over all weights that may be trained.
    phi : float
        The value at which phi is fixed.
    precision : Tensor of shape (m,)
        Prior precisions of the weights.
    training : ModuleTraining
        How it is trained.
    seed : int
        Seed of the rows that are kept aside and of the batches.
    dtype : torch.dtype
        Type of the numbers while training.
    verbose : bool or "auto"
        Whether to show progress.
    """
    network, epochs, rate = likelihood.network, training.epochs, training.learning_rate
    count = len(likelihood.x)
    if epochs == 0 or count < _FEWEST_ROWS:
        return Learned(network.origin, 0, ())
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(count, generator=generator)
    aside, rest = order[: int(_HELD_OUT * count)], order[int(_HELD_OUT * count) :]
    rows = _RowPoints.of(likelihood)
    trainer = _Trainer(likelihood, module, phi, precision, dtype)
    optimiser = torch.optim.Adam(
        [{"params": trainer.parameters, "lr": rate}, {"params": [trainer.lead], "lr": _LINEAR_RATE * rate}]
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda k: (1 + math.cos(math.pi * k / epochs)) / 2)

    def judge() -> float:
        with torch.no_grad():
            total = sum(float(trainer.loss(rows.points(part))) for part in torch.split(aside, 4 * _MOST_IN_BATCH))
        return total / len(aside)

    losses, best, weights = [judge()], 0, network.origin
    with bar("training the network", epochs, verbose) as advance:
        for epoch in range(1, epochs + 1):
            for batch in _batches(rest, generator):
                optimiser.zero_grad()
                objective = trainer.loss(rows.points(batch)) / len(batch) + trainer.penalty() / len(rest)
                torch.autograd.backward(objective)
                optimiser.step()
            schedule.step()
            losses.append(judge())
            if not math.isfinite(losses[-1]):
                raise NotFiniteError(
                    f"training of the network reached a loss of {losses[-1]} in epoch {epoch}; lower learning_rate, or "
                    "scale the inputs of the network."
                )
            if losses[-1] < losses[best]:
                best, weights = epoch, trainer.weights()
            advance(epoch, f"epoch {epoch}, loss of rows kept aside {losses[-1]:.4f}, best {losses[best]:.4f}")
            if epoch - best >= _PATIENCE:
                break
    return Learned(weights, best, tuple(losses))
