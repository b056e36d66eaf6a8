"""The default model: nothing to tune, the posterior mean as the curve."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from neuralsurv import NeuralSurv
from neuralsurv.inference.default.settings import Ablation, DefaultSettings
from neuralsurv_bench.methods.interface import Floats, Method, Settings, Split

NAME = "NeuralSurv default"

# The ingredients of the model, each taken away or replaced, by the name that results are stored under. The values are
# parameters of `AblatedNeuralSurv`.
CHANGES: dict[str, dict[str, Any]] = {
    "as the preset": {},
    "no network": {"hidden": ()},
    "16 units": {"hidden": (16,)},
    "256 units": {"hidden": (256,)},
    "two layers of 32": {"hidden": (32, 32)},
    "tanh": {"activation": "tanh"},
    "no linear path": {"ablation": Ablation(linear=False)},
    "effects constant in time": {"ablation": Ablation(varying=False)},
    "no products of covariates": {"ablation": Ablation(pairs=False)},
    "a scale for each covariate": {"ablation": Ablation(per_covariate=True), "average": False},
    "time by its logarithm alone": {"ablation": Ablation(bumps=0)},
    "12 bumps of time": {"ablation": Ablation(bumps=12)},
    "headroom 10": {"headroom": 10.0},
    "headroom 30": {"headroom": 30.0},
    "Pólya-Gamma bound": {"ablation": Ablation(curvature="polya-gamma")},
    "Fisher information": {"ablation": Ablation(curvature="fisher")},
    "scales by the bare ELBO": {"ablation": Ablation(hyper_priors=False)},
    "best scales, not averaged": {"average": False},
    "linearised anew at the posterior mean": {"ablation": Ablation(relinearise=2)},
    "three draws of the network, evenly mixed": {},
    "three draws of the network, stacked by leave-one-out": {},
}
# Those that are mixtures of fits which are linearised at other draws of the network, and how they are weighed.
MIXTURES = {
    "three draws of the network, evenly mixed": "even",
    "three draws of the network, stacked by leave-one-out": "stacked",
}
MIXED = 3
STACKING_ROUNDS = 2000

_SENTENCE = "the default model on the training rows alone; it has no use for validation rows"


class AblatedNeuralSurv(NeuralSurv):
    """The default model with parts changed that no parameter of the estimator reaches.

    Parameters
    ----------
    ablation : Ablation
        What is changed; by default nothing is.
    **parameters
        Those of :class:`neuralsurv.NeuralSurv`.
    """

    def __init__(self, *, ablation: Ablation | None = None, **parameters: Any) -> None:
        super().__init__(**parameters)
        self.ablation = ablation

    def _settings(self) -> DefaultSettings:
        return replace(super()._settings(), ablation=self.ablation or Ablation())


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


@dataclass(frozen=True)
class FittedMixture:
    """Fits that were linearised at other draws of the network, and their shares.

    Attributes
    ----------
    parts : tuple of FittedDefault
        The fits.
    shares : ndarray of shape (len(parts),)
        How much each counts.
    """

    parts: tuple[FittedDefault, ...]
    shares: np.ndarray

    def survival(self, x: Floats, times: Floats) -> Floats | None:
        """Return the mean curve of the mixture, shape (len(x), len(times))."""
        return np.asarray(np.tensordot(self.shares, [part.survival(x, times) for part in self.parts], 1))

    def risk(self, x: Floats) -> Floats | None:
        """Return None: there are curves."""
        return None

    def details(self) -> dict[str, Any]:
        """Return what to know of the fits."""
        return {"shares": self.shares.tolist(), "parts": [part.details() for part in self.parts]}


def leave_one_out(model: NeuralSurv, x: Floats, outcome: tuple[Floats, np.ndarray]) -> np.ndarray:
    """Return the log density of each row given the others, by Pareto-smoothed importance sampling, shape (n,)."""
    import arviz_stats

    loo: Any = arviz_stats.loo
    with warnings.catch_warnings():
        # A row that the others say little of is a reason to weigh it by what there is, not to stop.
        warnings.simplefilter("ignore", UserWarning)
        return np.asarray(loo(model.to_inference_data(x, outcome), pointwise=True).elpd_i)


def stack(scores: np.ndarray) -> np.ndarray:
    """Return the shares (K,) that maximise Σ log Σ_k share_k exp(score_ik), for scores of shape (n, K).

    Examples
    --------
    >>> import numpy as np
    >>> from neuralsurv_bench.methods.neuralsurv_default import stack
    >>> stack(np.log([[0.9, 0.1], [0.9, 0.1]])).round(3).tolist()
    [1.0, 0.0]
    """
    relative = np.exp(scores - scores.max(axis=1, keepdims=True))
    shares = np.full(scores.shape[1], 1 / scores.shape[1])
    # EM for the shares of a mixture with known parts: every round raises the sum.
    for _ in range(STACKING_ROUNDS):
        shares = (relative * shares / (relative @ shares)[:, None]).mean(axis=0)
    return np.asarray(shares)


def default_method(change: str = "as the preset") -> Method:
    """Return the default model, with one of `CHANGES`, as a method."""

    def fit_one(split: Split, kept: np.ndarray, seed: int) -> FittedDefault:
        model = AblatedNeuralSurv(**CHANGES[change], random_state=seed, verbose=False)
        model.fit(split.train.x[:, kept], (split.train.time, split.train.event))
        return FittedDefault(model, kept)

    def fit(split: Split, settings: Settings) -> FittedDefault | FittedMixture:
        kept = np.ptp(split.train.x, axis=0) > 0
        if change not in MIXTURES:
            return fit_one(split, kept, settings.seed)
        parts = tuple(fit_one(split, kept, settings.seed + 1000 * k) for k in range(MIXED))
        shares = np.full(MIXED, 1 / MIXED)
        if MIXTURES[change] == "stacked":
            rows = split.train.x[:, kept], (split.train.time, split.train.event)
            shares = stack(np.column_stack([leave_one_out(part.model, *rows) for part in parts]))
        return FittedMixture(parts, shares)

    return Method(NAME, "ours", fit, {"fair": _SENTENCE})


METHODS = (default_method(),)
