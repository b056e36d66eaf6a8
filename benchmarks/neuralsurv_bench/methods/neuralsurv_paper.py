"""NeuralSurv with its `paper` preset: the covariates as the protocol prepares them, the posterior median as the curve.

The published tables were run with one hidden layer of 16 units, the paper's text says two; both are here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from neuralsurv import NeuralSurv
from neuralsurv.model.prior import Gamma
from neuralsurv_bench.methods.interface import Floats, Method, Settings, Split

# What the published tables were run with, and what the text says.
LAYERS: tuple[tuple[int, ...], ...] = ((16,), (16, 16))

# What may differ from the run behind the published tables, one at a time, by the name of the setting.
CHANGES: dict[str, dict[str, Any]] = {
    "as the preset": {},
    "second seed of the starts": {"random_state": 1},
    "third seed of the starts": {"random_state": 2},
    "mode that stops early": {"mode_tolerance": 1e-3, "starts": 1},
    "mode by EM": {"mode": "em", "starts": 1},
    "sweeps from the prior's spread": {"spread": "prior"},
    "Gauss-Legendre, 32 nodes": {"quadrature": "gauss-legendre", "quadrature_points": 32},
    "5,000 draws": {"draws": 5000},
    "mean curve": {"curve": "mean"},
}

_SENTENCE = "the paper preset on the training rows as the protocol prepares them, not standardised once more"


@dataclass(frozen=True)
class FittedPaper:
    """A fitted model.

    Attributes
    ----------
    model : NeuralSurv
        The estimator.
    kept : ndarray of bool, shape (d,)
        The columns that vary among the training rows; the estimator refuses the others.
    curve : {"median", "mean"}
        Which curve of the posterior stands for it.
    """

    model: NeuralSurv
    kept: np.ndarray
    curve: str = "median"

    def survival(self, x: Floats, times: Floats) -> Floats | None:
        """Return the posterior median (or mean) of S(t | x), shape (len(x), len(times))."""
        found = getattr(self.model.predict_survival(x[:, self.kept], times), self.curve)
        return np.asarray(found.to_numpy(), dtype=np.float64)

    def risk(self, x: Floats) -> Floats | None:
        """Return None: there are curves."""
        return None

    def band(self, x: Floats, times: Floats, level: float) -> tuple[Floats, Floats]:
        """Return the credible band of the mean curve of the people `x`, each end of shape (len(times),).

        A draw is one curve for everybody at once, so its mean over people is a draw of the mean curve.
        """
        draws = self.model.predict_survival(x[:, self.kept], times).draws.mean(axis=1)
        lower, upper = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2], axis=0)
        return lower, upper

    def details(self) -> dict[str, Any]:
        """Return q(phi), in the paper's scaled time, and what to know of the fit."""
        diagnostics, phi = self.model.diagnostics_, self.model.posterior_.phi
        assert isinstance(phi, Gamma)
        return {
            "phi": gamma_summary(phi),
            "columns_left_out": int((~self.kept).sum()),
            "sweeps": diagnostics.sweeps,
            "converged": diagnostics.converged,
            "collapsed": diagnostics.collapsed,
            "latent_points": diagnostics.latent_points,
            "latent_share": diagnostics.latent_share,
            "elbo": float(self.model.elbo_[-1]),
        }


def gamma_summary(distribution: Gamma) -> dict[str, float]:
    """Return shape, rate, median and the 95 % interval of a Gamma distribution."""
    lower, upper = distribution.interval(0.95)
    return {
        "shape": float(distribution.shape),
        "rate": float(distribution.rate),
        "median": distribution.quantile(0.5),
        "lower": lower,
        "upper": upper,
    }


def paper_method(
    hidden: tuple[int, ...] | None, phi_prior: tuple[float, float] | None = None, change: str = "as the preset"
) -> Method:
    """Return the paper preset as a method.

    Parameters
    ----------
    hidden : tuple of int or None
        Widths of the hidden layers, whatever the experiment asks for; None to do as the experiment asks.
    phi_prior : tuple of float, optional
        Shape and rate of the prior of phi, if not the preset's.
    change : str
        One of `CHANGES`.
    """

    def fit(split: Split, settings: Settings) -> FittedPaper:
        kept = np.ptp(split.train.x, axis=0) > 0
        options = {"random_state": settings.seed, **CHANGES[change]}
        curve = options.pop("curve", "median")
        model = NeuralSurv(
            preset="paper",
            hidden=settings.hidden if hidden is None else hidden,
            phi_prior=phi_prior,
            standardise=False,
            verbose=False,
            **options,
        )
        model.fit(split.train.x[:, kept], (split.train.time, split.train.event))
        return FittedPaper(model, kept, curve)

    name = "NeuralSurv paper" if hidden is None else f"NeuralSurv paper {str(hidden).replace(' ', '')}"
    # Two layers take about four times as long as one: too long for thousands of fits.
    slow = hidden is not None and len(hidden) > 1
    return Method(name, "ours", fit, {"as-published": _SENTENCE, "fair": _SENTENCE}, slow=slow)


METHODS = tuple(paper_method(hidden) for hidden in LAYERS)
