"""Draws from the priors of the two models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from neuralsurv import NeuralSurv
from neuralsurv.data.simulate import SimulatedCohort
from neuralsurv.inference.default.settings import DefaultSettings
from neuralsurv.inference.default.structure import build_prior
from neuralsurv.inference.paper.settings import PaperSettings
from neuralsurv.model.additive import Additive
from neuralsurv.model.hazard import hazard
from neuralsurv.model.network import MLP
from neuralsurv.model.prior import Gamma, WeightPrior
from neuralsurv.posterior.gaussian import Draws
from pictures.sheet import BLUE, label, panels, save

DRAWS = 25
DEFAULT, PAPER = DefaultSettings(), PaperSettings()


def default_prior(model: NeuralSurv, count: int, seed: int) -> Draws:
    """Return draws from the prior of a fitted default model: scales from their hyper-priors, then weights."""
    network = model.posterior_.network
    assert isinstance(network, Additive)
    prior = build_prior(network, DEFAULT)
    generator = torch.Generator().manual_seed(seed)
    weights = []
    for _ in range(count):
        noise = torch.randn(len(prior.groups), generator=generator, dtype=torch.float64)
        weights.append(prior.at(prior.medians + prior.spreads * noise).draw(generator))
    return Draws(torch.stack(weights), model.posterior_.phi.draw(count, generator))


def paper_prior(time: Tensor, x: Tensor, count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return σ(g) and survival of draws from the paper's prior for one person, both of shape (count, T)."""
    network = MLP(x.shape[1], PAPER.hidden, PAPER.activation)
    prior = WeightPrior.isotropic(network.size)
    generator = torch.Generator().manual_seed(seed)
    rows = x.expand(len(time), -1)
    g = torch.stack([network.value(prior.draw(generator), time, rows) for _ in range(count)])
    phi = Gamma(*PAPER.phi_prior).draw(count, generator)
    rate = hazard(phi[:, None], time, g, torch.full_like(time, 0.5), PAPER.rho)
    return torch.sigmoid(g), torch.exp(-torch.cumulative_trapezoid(rate, time))


def draw_prior(model: NeuralSurv, cohort: SimulatedCohort, out: Path) -> Path:
    """Plot draws of the share of the ceiling and of survival from both priors, for one person of the cohort."""
    time = torch.linspace(0, 1, 401, dtype=torch.float64)
    x = torch.from_numpy(model.encoding_.transform(cohort.x.head(1)))
    figure, rows = panels(2, 2, sharex=True)
    (paper_share, default_share), (paper_survival, default_survival) = rows
    share, survival = paper_prior(time, x, DRAWS, seed=1)
    _lines(paper_share, time, share)
    _lines(paper_survival, time[1:], survival)
    draws = default_prior(model, DRAWS, seed=1)
    g = model.posterior_.g_draws(draws, time, x.expand(len(time), -1))
    _lines(default_share, time, torch.sigmoid(g))
    default_share.axhline(1 / DEFAULT.headroom, color="black", linestyle=":", label="crude rate of events")
    default_share.set_yscale("log")
    default_share.set_ylim(1e-4, 1)
    default_share.legend(frameon=False, fontsize=9, loc="lower left")
    _lines(default_survival, time, torch.exp(-model.posterior_.cumulative_hazard_draws(draws, time, x))[:, 0])
    label(paper_share, "paper: share of the ceiling", "", "σ(g)")
    label(default_share, "default: share of the ceiling", "", "σ(g), logarithmic")
    for axes, name in ((paper_survival, "paper"), (default_survival, "default")):
        axes.set_ylim(0, 1.02)
        label(axes, f"{name}: survival", "time (1 = last training time)", "S(t)")
    return save(figure, out / "model_prior.png")


def _lines(axes: Any, time: Tensor, values: Tensor) -> None:
    axes.plot(time.numpy(), np.asarray(values).T, color=BLUE, alpha=0.5, linewidth=0.9)
