"""The hazard as a product: a ceiling, a clock, and the share of the ceiling that the network lets through."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from neuralsurv.model.hazard import hazard, log_baseline
from pictures.sheet import BLUE, GREY, RED, label, panels, save

# An example, chosen so that the two hazards cross.
PHI, Z, RHO = 1.5, 0.5, 1.4


def logits(time: Tensor) -> dict[str, Tensor]:
    """Return g of two people along scaled time."""
    return {"A": 2.0 - 4.5 * time, "B": -2.5 + 4.0 * time}


def shares(time: Tensor) -> dict[str, Tensor]:
    """Return the share of the ceiling, σ(g), of the two."""
    return {name: torch.sigmoid(g) for name, g in logits(time).items()}


def draw_hazard(out: Path) -> Path:
    """Draw the three factors and their product."""
    time = torch.linspace(0.005, 1, 200, dtype=torch.float64)
    figure, rows = panels(2, 2)
    (ceiling, clock), (share, product) = rows
    ceiling.plot(time, torch.full_like(time, PHI / Z), color="black")
    ceiling.set_ylim(0, 1.3 * PHI / Z)
    label(ceiling, "ceiling  φ / Z", "time", "events per unit of time")
    for rho, style in ((0.7, ":"), (1.0, "--"), (RHO, "-")):
        clock.plot(time, torch.exp(log_baseline(time, rho)), color="black", linestyle=style, label=f"ρ = {rho:g}")
    clock.set_ylim(0, 2.5)
    clock.legend(frameon=False, fontsize=9)
    label(clock, "×  clock  $t^{ρ−1}$", "time")
    for (name, value), g, colour in zip(shares(time).items(), logits(time).values(), (BLUE, RED), strict=True):
        share.plot(time, value, color=colour, label=f"person {name}")
        rate = hazard(time.new_tensor(PHI), time, g, time.new_tensor(Z), RHO)
        product.plot(time, rate, color=colour)
    share.set_ylim(0, 1)
    share.legend(frameon=False, fontsize=9)
    label(share, "×  share  σ(g(t, x))", "time")
    product.plot(time, PHI / Z * torch.exp(log_baseline(time, RHO)), color=GREY, linestyle="--", label="σ(g) = 1")
    product.set_ylim(0, 1.3 * PHI / Z)
    product.legend(frameon=False, fontsize=9)
    label(product, "=  hazard", "time")
    return save(figure, out / "model_hazard.png")
