"""DQS (Yanagisawa 2023): a network for the probabilities of time bins, trained by a proper score for censored rows.

Written from the description of the method. The training loop of the networks written here is at the end of the file.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from sklearn.model_selection import train_test_split
from torch import Tensor, nn

from neuralsurv.errors import InputError
from neuralsurv.inference.threads import threads_for
from neuralsurv_bench.methods.interface import Fitted, Floats, Method, Rows, Settings, Split

BINS = 4
RATE = 1e-2
DROPOUT = 0.1
EPSILON = 1e-6
# Up to 256 rows an epoch is a single step, and batch norm needs some tens of them to know its running means.
PATIENCE = 100


def bin_edges(train: Rows, *, beyond: bool) -> Floats:
    """Return the edges of the time bins, from 0.

    Parameters
    ----------
    train : Rows
        Training rows.
    beyond : bool
        False: `BINS` bins of equal width up to the last training time + 1, as published; F is then forced to 1 there,
        though most people of a cohort may outlive it. True: `BINS` bins up to the last training time, and one more
        bin as wide as all of them for those who outlive it.
    """
    last = float(train.time.max())
    if beyond:
        return np.append(np.linspace(0.0, last, BINS + 1), 2.0 * last)
    return np.linspace(0.0, last + 1.0, BINS + 1)


def binned_score(logits: Tensor, time: Tensor, event: Tensor, edges: Tensor) -> Tensor:
    """Return the score to be made small, one number a row.

    An event in bin k costs -log p_k. Of a row censored at c in bin k, the part w = P(T in bin k | T > c) is treated as
    an event in that bin and the rest as surviving it; w comes from the model itself and is held fixed.

    Parameters
    ----------
    logits : Tensor of shape (n, B)
        Of the probabilities of the bins.
    time : Tensor of shape (n,)
        Observed times; those outside the edges count as in the first or last bin.
    event : Tensor of bool, shape (n,)
        Whether the event was seen.
    edges : Tensor of shape (B + 1,)
        Increasing.
    """
    probability = torch.softmax(logits, dim=1)
    bins = (torch.searchsorted(edges, time, right=True) - 1).clamp(0, len(edges) - 2)
    in_bin = probability.gather(1, bins[:, None])[:, 0]
    at_end = probability.cumsum(dim=1).gather(1, bins[:, None])[:, 0]
    with torch.no_grad():
        part_to_come = (1 - (time - edges[bins]) / (edges[bins + 1] - edges[bins])).clamp(0.0, 1.0)
        to_come = part_to_come * in_bin
        weight = to_come / (to_come + 1 - at_end).clamp(min=1e-12)
    surviving = (1 - at_end).clamp(min=0.0)
    censored = -(weight * torch.log(in_bin + EPSILON) + (1 - weight) * torch.log(surviving + EPSILON))
    return torch.where(event, -torch.log(in_bin + EPSILON), censored)


def _network(inputs: int, hidden: tuple[int, ...], outputs: int) -> nn.Sequential:
    """Return linear, relu, batch norm and dropout for each hidden width, then a linear layer."""
    layers: list[nn.Module] = []
    for width in hidden:
        layers += [nn.Linear(inputs, width), nn.ReLU(), nn.BatchNorm1d(width), nn.Dropout(DROPOUT)]
        inputs = width
    return nn.Sequential(*layers, nn.Linear(inputs, outputs)).double()


@dataclass(frozen=True)
class BinnedCurves:
    """S falls along a line within each bin.

    Attributes
    ----------
    training_mode : bool
        Predict with dropout at work and with the batch's own means and variances, as published.
    seed : int
        Of the dropout of a prediction.
    """

    network: nn.Sequential
    edges: Floats
    training_mode: bool
    seed: int

    def survival(self, x: Floats, times: Floats) -> Floats:
        """Return S(t | x), shape (len(x), len(times))."""
        if self.training_mode and len(x) < 2:
            raise InputError(
                f"DQS as published predicts with the mean and variance of the rows it is given, and {len(x)} row has "
                "no variance: give at least 2 rows, or use the variant 'fair'."
            )
        # A copy, because batch norm in training mode changes its running means.
        network = copy.deepcopy(self.network).train(self.training_mode)
        with torch.no_grad(), torch.random.fork_rng(devices=[]), threads_for(0):
            torch.manual_seed(self.seed)
            probability = torch.softmax(network(double_tensor(x)), dim=1).numpy()
        at_edges = np.minimum(np.pad(probability.cumsum(axis=1), ((0, 0), (1, 0))), 1.0)
        return np.stack([1.0 - np.interp(times, self.edges, row) for row in at_edges])

    def risk(self, x: Floats) -> None:
        """Return None: there are curves."""


def _fit(split: Split, settings: Settings) -> Fitted:
    train, validation = with_validation(split, settings.seed)
    edges = bin_edges(train, beyond=settings.variant == "fair")
    edge_tensor = double_tensor(edges)
    torch.manual_seed(settings.seed)
    network = _network(train.x.shape[1], settings.hidden, len(edges) - 1)

    def loss(rows: RowTensors) -> Tensor:
        return binned_score(network(rows.x), rows.time, rows.event, edge_tensor).mean()

    train_network(network, loss, train, validation, rate=RATE)
    return BinnedCurves(network, edges, settings.variant == "as-published", settings.seed)


METHODS = (
    Method(
        name="DQS",
        family="deep",
        fit=_fit,
        variants={
            "as-published": "4 bins up to the last training time + 1, where everybody is dead; predicts in training "
            "mode (dropout at work, batch norm by the test rows)",
            "fair": "4 bins up to the last training time and one beyond it; predicts in evaluation mode",
        },
    ),
)


def double_tensor(values: Floats) -> Tensor:
    """Return a copy as float64 tensor; torch cannot share the memory of an array that is reversed or read-only."""
    return torch.from_numpy(np.array(values, dtype=np.float64, order="C"))


@dataclass(frozen=True)
class RowTensors:
    """Rows as tensors (float64, bool)."""

    x: Tensor
    time: Tensor
    event: Tensor

    @classmethod
    def of(cls, rows: Rows) -> RowTensors:
        """Return the rows as tensors."""
        return cls(
            double_tensor(rows.x),
            double_tensor(rows.time),
            torch.from_numpy(np.array(rows.event, dtype=bool, order="C")),
        )


def with_validation(split: Split, seed: int) -> tuple[Rows, Rows]:
    """Return training and validation rows; if none of the latter has an event, a seeded fifth of the former serves."""
    train = split.train
    if split.validation.event.any():
        return train, split.validation
    both_kinds = min(train.event.sum(), (~train.event).sum()) >= 2
    kept, left = train_test_split(
        np.arange(len(train)), test_size=0.2, random_state=seed, stratify=train.event if both_kinds else None
    )
    return (
        Rows(train.x[kept], train.time[kept], train.event[kept]),
        Rows(train.x[left], train.time[left], train.event[left]),
    )


def train_network(
    network: nn.Module,
    loss: Callable[[RowTensors], Tensor],
    train: Rows,
    validation: Rows,
    *,
    rate: float,
    patience: int = PATIENCE,
    epochs: int = 1000,
    batch: int = 256,
    slowest_rate: float | None = None,
) -> int:
    """Train by Adam until the validation loss has not fallen for `patience` epochs; leave the best weights in place.

    Parameters
    ----------
    network : Module
        Is trained, and left in evaluation mode.
    loss : callable
        Mean loss of the network on some rows.
    train, validation : Rows
        Rows to learn from and to stop by.
    rate : float
        Learning rate of Adam.
    patience, epochs, batch : int
        Epochs without a better validation loss, epochs at most, rows a step at most.
    slowest_rate : float, optional
        If given, the rate is multiplied by 0.9 on a plateau of ten epochs until it is this.

    Returns
    -------
    int
        The epoch whose weights were kept, from 1; 0 if no epoch had a finite validation loss.
    """
    # Fused: one call for all weights, half the time of a step of a network this small.
    optimiser = torch.optim.Adam(network.parameters(), lr=rate, fused=True)
    schedule = None
    if slowest_rate is not None:
        schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimiser, factor=0.9, min_lr=slowest_rate)
    to_learn, to_stop = RowTensors.of(train), RowTensors.of(validation)
    # Parts of equal size: a last batch of one row would have no variance for batch norm.
    parts = math.ceil(len(train) / batch)
    best, best_epoch, best_weights = math.inf, 0, copy.deepcopy(network.state_dict())
    weights = network.state_dict()
    with threads_for(0):
        for epoch in range(1, epochs + 1):
            network.train()
            for rows in torch.tensor_split(torch.randperm(len(train)), parts):
                optimiser.zero_grad()
                loss(RowTensors(to_learn.x[rows], to_learn.time[rows], to_learn.event[rows])).backward()  # type: ignore[no-untyped-call]
                optimiser.step()
            network.eval()
            with torch.no_grad():
                value = float(loss(to_stop))
            if value < best:
                best, best_epoch = value, epoch
                for name, kept in best_weights.items():
                    kept.copy_(weights[name])
            elif epoch - best_epoch >= patience:
                break
            if schedule is not None:
                schedule.step(value)
    network.load_state_dict(best_weights)
    return best_epoch
