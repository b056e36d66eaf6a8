"""Sumo-Net (Rindt et al. 2022): a network that rises in time, trained by the exact right-censored likelihood.

Written from the description of the method: F(t | x) = σ(h(t, x)) with h non-decreasing in t.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from neuralsurv.inference.threads import threads_for
from neuralsurv_bench.methods.dqs import RowTensors, double_tensor, train_network, with_validation
from neuralsurv_bench.methods.interface import Fitted, Floats, Method, Settings, Split

RATE, SLOWEST_RATE = 1e-2, 1e-3
DROPOUT = 0.1
EPSILON = 1e-6
# Points (row, time) that a prediction holds in memory at once.
POINTS_AT_ONCE = 200_000


class _CovariateLayer(nn.Module):
    """Linear, layer norm, tanh, dropout; added to its input where the widths agree."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(inputs, width), nn.LayerNorm(width), nn.Tanh(), nn.Dropout(DROPOUT))
        self.skip = inputs == width

    def forward(self, values: Tensor) -> Tensor:
        out: Tensor = self.layers(values)
        return values + out if self.skip else out


class _RisingLayer(nn.Module):
    """A linear layer with weights ≥ 0 (through relu) and a free bias: it rises wherever its input does."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        bound = 1 / math.sqrt(inputs)
        # Drawn above 0: a weight that starts below it has no gradient through relu and would stay dead.
        self.weight = nn.Parameter(torch.empty(width, inputs).uniform_(0, bound))
        self.bias = nn.Parameter(torch.empty(width).uniform_(-bound, bound))

    def forward(self, values: Tensor) -> Tensor:
        return F.linear(values, F.relu(self.weight), self.bias)


class SumoNet(nn.Module):
    """h(t, x), non-decreasing in t.

    Parameters
    ----------
    inputs : int
        Number of covariates.
    hidden : tuple of int
        Widths of the layers that see covariates only; those that see time as well have the same widths.
    """

    def __init__(self, inputs: int, hidden: tuple[int, ...]) -> None:
        super().__init__()
        widths = (inputs, *hidden)
        self.covariates = nn.Sequential(*map(_CovariateLayer, widths[:-1], widths[1:]))
        mixed = hidden[0]
        self.of_time = _RisingLayer(1, mixed - mixed // 2)
        self.of_covariates = nn.Linear(widths[-1], mixed // 2)
        self.rising = nn.ModuleList(map(_RisingLayer, (mixed, *hidden[1:-1]), hidden[1:]))
        self.last = _RisingLayer(hidden[-1], 1)

    def forward(self, features: Tensor, time: Tensor) -> Tensor:
        """Return h at features (…, width) and times (…), which are broadcast against each other."""
        timed, fixed = self.of_time(time[..., None]), self.of_covariates(features)
        # Broadcast all but the last dimension, in which the two halves stand side by side.
        shape = (timed[..., 0] + fixed[..., 0]).shape
        values = torch.tanh(torch.cat([timed.expand(*shape, -1), fixed.expand(*shape, -1)], dim=-1))
        for layer in self.rising:
            risen = torch.tanh(layer(values))
            values = values + risen if risen.shape == values.shape else risen
        height: Tensor = self.last(values)[..., 0]
        return height

    def negative_log_likelihood(self, x: Tensor, time: Tensor, event: Tensor) -> Tensor:
        """Return -log f(t | x) of events and -log S(t | x) of censored rows, one number a row."""
        # The density is a derivative itself, so even a loss that nobody differentiates needs the graph of h.
        to_be_differentiated = torch.is_grad_enabled()
        with torch.enable_grad():
            time = time.detach().requires_grad_()
            height = self(self.covariates(x), time)
            (slope,) = torch.autograd.grad(height.sum(), time, create_graph=to_be_differentiated)
        density = torch.sigmoid(height) * torch.sigmoid(-height) * slope
        return torch.where(event, -torch.log(density + EPSILON), F.softplus(height))


@dataclass(frozen=True)
class SumoCurves:
    """S(t | x) = 1 - σ(h(t / scale, x)).

    Attributes
    ----------
    scale : float
        The last training time.
    given_positive : bool
        Divide by S(0 | x), which the network does not hold at 1: the curve of a time known to be above 0. Every term
        of the likelihood is at least as high after the division, so nothing that was learnt is lost by it.
    shuffle_seed : int, optional
        If given, the rows of a prediction are shuffled, as published.
    """

    network: SumoNet
    scale: float
    given_positive: bool
    shuffle_seed: int | None

    def survival(self, x: Floats, times: Floats) -> Floats:
        """Return S(t | x), shape (len(x), len(times))."""
        parts = max(1, math.ceil(len(x) * (len(times) + 1) / POINTS_AT_ONCE))
        survival = np.concatenate([self._survival(part, times) for part in np.array_split(x, parts)])
        if self.shuffle_seed is not None:
            survival = survival[np.random.default_rng(self.shuffle_seed).permutation(len(x))]
        return survival

    def _survival(self, x: Floats, times: Floats) -> Floats:
        with torch.no_grad(), threads_for(0):
            moments = double_tensor(np.append(0.0, times) / self.scale)
            features = self.network.covariates(double_tensor(x))[:, None, :]
            log_survival = -F.softplus(self.network(features, moments))
            if self.given_positive:
                log_survival = log_survival - log_survival[:, :1]
            survival: Floats = log_survival[:, 1:].exp().numpy()
        # h rises in exact arithmetic; its rounding may not.
        return np.minimum.accumulate(survival.clip(0.0, 1.0), axis=1)

    def risk(self, x: Floats) -> None:
        """Return None: there are curves."""


def _fit(split: Split, settings: Settings) -> Fitted:
    train, validation = with_validation(split, settings.seed)
    scale = float(train.time.max())
    torch.manual_seed(settings.seed)
    network = SumoNet(train.x.shape[1], settings.hidden).double()

    def loss(rows: RowTensors) -> Tensor:
        return network.negative_log_likelihood(rows.x, rows.time / scale, rows.event).mean()

    train_network(network, loss, train, validation, rate=RATE, slowest_rate=SLOWEST_RATE)
    fair = settings.variant == "fair"
    return SumoCurves(network, scale, given_positive=fair, shuffle_seed=None if fair else settings.seed)


METHODS = (
    Method(
        name="Sumo-Net",
        family="deep",
        fit=_fit,
        variants={
            "as-published": "test rows shuffled before they are scored; S(0) as the network has it",
            "fair": "rows in order; curves divided by S(0), which is then 1",
        },
    ),
)
