"""How the paper's algorithm works: a bound that is Gaussian, and sweeps that raise it."""

from __future__ import annotations

import math
import warnings
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from neuralsurv import PaperNeuralSurv
from neuralsurv.data.simulate import SimulatedCohort, lognormal_cohort
from neuralsurv.errors import CollapseWarning
from neuralsurv.model.augmentation import log_thinning, polya_gamma_mean
from pictures.posterior import END, LEVEL, two_people
from pictures.sheet import BLUE, GREEN, RED, label, panels, save

# Variance of g for the picture of curvatures.
VARIANCE = 0.25


def quadratic_bound(g: Tensor, touching: float) -> Tensor:
    """Return the Pólya–Gamma bound of log σ(g) that touches it at ± `touching`: a parabola, Gaussian in g."""
    c = torch.tensor(touching, dtype=g.dtype)
    return logsigmoid(c) + (g - c) / 2 - polya_gamma_mean(c) * (g**2 - c**2) / 2


def exact_curvature(mean: Tensor, variance: float) -> Tensor:
    """Return minus the expected second derivative of −σ(g), g Gaussian, by Gauss–Hermite quadrature."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    share = torch.sigmoid(mean[:, None] + math.sqrt(variance) * torch.from_numpy(nodes))
    return share * (1 - share) * (1 - 2 * share) @ torch.from_numpy(weights) / math.sqrt(2 * math.pi)


def bound_curvature(mean: Tensor, variance: float) -> Tensor:
    """Return the curvature that the bound gives to the same point: latent mass times E[ω]."""
    size = torch.sqrt(mean**2 + variance)
    return torch.exp(log_thinning(mean, size)) * polya_gamma_mean(size)


def draw_bound(out: Path) -> Path:
    """Draw the bound, and the curvature it gives to a point of the integral beside the exact one."""
    figure, rows = panels(2)
    bound, curvature = rows[0]
    g = torch.linspace(-6, 6, 241, dtype=torch.float64)
    bound.plot(g, logsigmoid(g), color="black", label="log σ(g)")
    for touching, colour in ((1.0, BLUE), (4.0, RED)):
        bound.plot(g, quadratic_bound(g, touching), color=colour, label=f"touches at ±{touching:g}")
        ends = torch.tensor([-touching, touching], dtype=torch.float64)
        bound.plot(ends, logsigmoid(ends), "o", color=colour, markersize=4)
    bound.set_ylim(-9, 0.5)
    bound.legend(frameon=False, fontsize=9, loc="lower right")
    label(bound, "an event: a parabola below log σ", "g")
    mean = torch.linspace(-6, -1, 101, dtype=torch.float64)
    share = torch.sigmoid(mean)
    curvature.loglog(share, bound_curvature(mean, VARIANCE), color=RED, label="by the bound")
    curvature.loglog(share, exact_curvature(mean, VARIANCE), color=GREEN, label="exact")
    curvature.legend(frameon=False, fontsize=9)
    label(curvature, "time at risk: information", "σ(g)")
    return save(figure, out / "algorithm_bound.png")


def sweep_plainly(cohort: SimulatedCohort) -> PaperNeuralSurv:
    """Fit the paper's model with one hidden layer and sweeps as printed, without shortcuts."""
    model = PaperNeuralSurv(hidden=(16,), accelerate=False, random_state=0, verbose=False)
    with warnings.catch_warnings():
        # It collapses on this cohort, which is what the picture shows.
        warnings.simplefilter("ignore", CollapseWarning)
        return model.fit(cohort.x, cohort.y)


def draw_sweeps(out: Path, size: int = 80) -> Path:
    """Draw the ELBO of the paper's method after each sweep, and the curves of the posterior."""
    cohort = lognormal_cohort(size, seed=0)
    model = sweep_plainly(cohort)
    figure, rows = panels(2)
    elbo, curves = rows[0]
    model.plot_elbo(ax=elbo)
    label(elbo, "PaperNeuralSurv: ELBO", "sweep", "nats")
    times = np.linspace(0, END, 81)
    people = two_people(cohort)
    model.plot_survival(people, times, level=LEVEL, ax=curves)
    truth = cohort.true_survival(times, people)
    curves.plot(times, truth.T, color="black", linestyle=":", linewidth=1.2)
    curves.legend(frameon=False, fontsize=9)
    label(curves, "its end: posterior and truth", "time", "S(t)")
    return save(figure, out / "algorithm_sweeps.png")
