"""NeuralSurv with its `default` preset: nothing to tune, the posterior mean as the curve."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from neuralsurv import NeuralSurv
from neuralsurv.presets import DEFAULT
from neuralsurv_bench.methods.interface import Floats, Method, Settings, Split

NAME = "NeuralSurv default"

# The ingredients of the preset, each taken away or replaced, by the name of the setting.
CHANGES: dict[str, dict[str, Any]] = {
    "as the preset": {},
    "no network": {"hidden": ()},
    "16 units": {"hidden": (16,)},
    "256 units": {"hidden": (256,)},
    "two layers of 32": {"hidden": (32, 32)},
    "tanh": {"activation": "tanh"},
    "no linear path": {"linear": False},
    "effects constant in time": {"varying": False},
    "no products of covariates": {"pairs": False},
    "a scale for each covariate": {"per_covariate": True, "average": False},
    "time by its logarithm alone": {"bumps": 0},
    "12 bumps of time": {"bumps": 12},
    "headroom 10": {"headroom": 10.0},
    "headroom 100": {"headroom": 100.0},
    "Pólya-Gamma bound": {"curvature": "polya-gamma"},
    "Fisher information": {"curvature": "fisher"},
    "scales by the bare ELBO": {"hyper_priors": False},
    "best scales, not averaged": {"average": False},
    "linearised anew at the posterior mean": {"relinearise": 2},
}

_SENTENCE = "the default preset on the training rows alone; it has no use for validation rows"


@dataclass(frozen=True)
class FittedDefault:
    """A fitted model.

    Attributes
    ----------
    model : NeuralSurv
        The estimator.
    kept : ndarray of bool, shape (d,)
        The columns that vary among the training rows; the estimator refuses the others.
    """

    model: NeuralSurv
    kept: np.ndarray

    def survival(self, x: Floats, times: Floats) -> Floats | None:
        """Return the posterior mean of S(t | x), shape (len(x), len(times))."""
        return np.asarray(self.model.predict_survival(x[:, self.kept], times).mean.to_numpy(), dtype=np.float64)

    def risk(self, x: Floats) -> Floats | None:
        """Return None: there are curves."""
        return None

    def band(self, x: Floats, times: Floats, level: float) -> tuple[Floats, Floats]:
        """Return the credible band of the mean curve of the people `x`, each end of shape (len(times),)."""
        draws = self.model.predict_survival(x[:, self.kept], times).draws.mean(axis=1)
        lower, upper = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2], axis=0)
        return lower, upper

    def details(self) -> dict[str, Any]:
        """Return what to know of the fit."""
        found = self.model.diagnostics_
        return {
            "columns_left_out": int((~self.kept).sum()),
            "converged": found.converged,
            "scales": found.scales,
            "settings": found.settings,
            "rank": found.rank,
            "lost_information": found.lost_information,
            "score": float(self.model.elbo_[-1]),
        }


def default_method(change: str = "as the preset") -> Method:
    """Return the default preset, with one of `CHANGES`, as a method."""

    def fit(split: Split, settings: Settings) -> FittedDefault:
        kept = np.ptp(split.train.x, axis=0) > 0
        model = NeuralSurv(preset=replace(DEFAULT, **CHANGES[change]), random_state=settings.seed, verbose=False)
        model.fit(split.train.x[:, kept], (split.train.time, split.train.event))
        return FittedDefault(model, kept)

    return Method(NAME, "ours", fit, {"fair": _SENTENCE})


METHODS = (default_method(),)
