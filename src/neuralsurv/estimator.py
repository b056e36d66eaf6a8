"""NeuralSurv, the scikit-learn style door: validates, delegates, holds results. No maths."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from neuralsurv.data.features import Encoding, as_frame
from neuralsurv.data.outcome import Outcome
from neuralsurv.diagnostics import Diagnostics, diagnose
from neuralsurv.errors import (
    CollapseWarning,
    ConvergenceWarning,
    InputError,
    NeuralSurvWarning,
    QuadratureWarning,
)
from neuralsurv.inference import fit as inference
from neuralsurv.posterior import Draws, Posterior, people_blocks
from neuralsurv.prediction import Prediction
from neuralsurv.presets import resolve


class NeuralSurv(BaseEstimator):
    """Bayesian neural survival model.

    The hazard is phi · t^(rho−1) · σ(g(t, x)) / Z with g a Bayesian neural network. Parameters left at None take the
    preset's value.

    Parameters
    ----------
    preset : {"paper"}
        Named set of choices; see :mod:`neuralsurv.presets`.
    hidden : tuple of int, optional
        Widths of the hidden layers; ``(16, 16)`` means two hidden layers.
    activation : {"relu", "tanh", "silu"}, optional
        Activation of the hidden layers.
    rho : float, optional
        Exponent of the Weibull baseline; 1 is a constant baseline hazard.
    phi_prior : tuple of float, optional
        Shape and rate of the Gamma prior of phi.
    quadrature : {"trapezoid", "gauss-legendre"}, optional
        Rule for the integrals over time.
    quadrature_points : int, optional
        Points of that rule: of the common grid, or nodes a row.
    normaliser : {"auto", "half", "closed-form", "monte-carlo"}, optional
        How Z is computed.
    mode : {"direct", "em"}, optional
        How the mode is found: by minimising its objective directly, or by the paper's EM.
    starts : int, optional
        Random starts of that search.
    spread : {"mode", "prior"}, optional
        Where the variational sweeps start: all mass at the mode, or the prior's covariance around it.
    tolerance : float, optional
        Relative change of the parameters at which the variational sweeps stop.
    max_sweeps : int, optional
        Limit on the sweeps.
    standardise : bool
        Whether covariates are centered and scaled (on the training rows).
    draws : int
        Posterior draws behind every prediction.
    verbose : bool or "auto"
        Whether to show progress; ``"auto"`` does so on a terminal.
    random_state : int, RandomState or None
        Seed of starts and draws.

    Attributes
    ----------
    posterior_ : Posterior
        q(phi) and q(theta), in scaled time (time divided by `time_scale_`).
    elbo_ : ndarray
        The evidence lower bound after each sweep, in nats.
    diagnostics_ : Diagnostics
        What to know before trusting the fit.
    time_scale_ : float
        The largest training time, in the user's unit.
    n_features_in_ : int
        Number of covariates.
    feature_names_in_ : ndarray of str
        Their names, where X had any.

    Examples
    --------
    >>> from neuralsurv import NeuralSurv
    >>> from neuralsurv.data.simulate import lognormal_cohort
    >>> cohort = lognormal_cohort(40, seed=1)
    >>> model = NeuralSurv(hidden=(4,), quadrature_points=50, starts=1, random_state=0)
    >>> curves = model.fit(cohort.x, cohort.y).predict_survival(cohort.x.head(2), times=[10, 20])
    >>> curves.mean.shape
    (2, 2)
    """

    def __init__(
        self,
        preset: str = "paper",
        *,
        hidden: tuple[int, ...] | None = None,
        activation: str | None = None,
        rho: float | None = None,
        phi_prior: tuple[float, float] | None = None,
        quadrature: str | None = None,
        quadrature_points: int | None = None,
        normaliser: str | None = None,
        mode: str | None = None,
        starts: int | None = None,
        spread: str | None = None,
        tolerance: float | None = None,
        max_sweeps: int | None = None,
        standardise: bool = True,
        draws: int = 1000,
        verbose: bool | str = "auto",
        random_state: Any = None,
    ) -> None:
        self.preset = preset
        self.hidden = hidden
        self.activation = activation
        self.rho = rho
        self.phi_prior = phi_prior
        self.quadrature = quadrature
        self.quadrature_points = quadrature_points
        self.normaliser = normaliser
        self.mode = mode
        self.starts = starts
        self.spread = spread
        self.tolerance = tolerance
        self.max_sweeps = max_sweeps
        self.standardise = standardise
        self.draws = draws
        self.verbose = verbose
        self.random_state = random_state

    posterior_: Posterior
    elbo_: np.ndarray
    diagnostics_: Diagnostics
    time_scale_: float
    n_features_in_: int

    def fit(self, X: Any, y: Any, *, entry: Any = None, weight: Any = None) -> NeuralSurv:
        """Fit the model.

        Parameters
        ----------
        X : DataFrame or array-like of shape (N, d)
            Covariates.
        y : structured array, DataFrame, tuple
            Outcome: see :meth:`neuralsurv.data.outcome.Outcome.from_any`.
        entry : array-like of shape (N,), optional
            When each row enters observation (left truncation).
        weight : array-like of shape (N,), optional
            Row weights; a weight of 2 counts as the row twice.

        Returns
        -------
        NeuralSurv
            The fitted estimator itself.
        """
        choices = resolve(**{name: value for name, value in self.get_params().items() if name not in _NOT_CHOICES})
        if int(self.draws) < 1:
            raise InputError(f"draws={self.draws!r} must be at least 1.")
        outcome = Outcome.from_any(y, entry=entry, weight=weight)
        frame = as_frame(X)
        if len(frame) != len(outcome):
            raise InputError(f"X has {len(frame)} rows but y has {len(outcome)}; both need one for each person.")
        outcome.check_fittable()
        # A weight of zero means that the row is not there; it must not set the scale of time or of a covariate.
        present = outcome.weight > 0
        outcome, frame = outcome.select(present), frame[present]
        outcome.check_fittable()
        encoding = Encoding.fit(frame, outcome.risk_weight(), standardise=self.standardise)
        random = check_random_state(self.random_state)
        seeds = random.randint(2**31 - 1, size=2)
        scale = float(outcome.time.max())
        result = inference.fit(
            inference.to_double(outcome.time / scale),
            torch.from_numpy(outcome.event),
            inference.to_double(outcome.entry / scale),
            inference.to_double(outcome.weight),
            inference.to_double(encoding.transform(frame)),
            choices,
            seed=int(seeds[0]),
            verbose=self.verbose,
        )
        self._keep(result, encoding, frame, scale, int(seeds[1]))
        return self

    def _keep(self, result: inference.Fit, encoding: Encoding, frame: pd.DataFrame, scale: float, seed: int) -> None:
        problem = result.problem
        self.posterior_ = Posterior(
            result.phi, result.theta, result.mode.theta, problem.network, problem.normaliser, problem.rho
        )
        self.elbo_ = np.array(result.info.elbo)
        self.diagnostics_ = diagnose(result)
        self.time_scale_ = scale
        self.encoding_ = encoding
        self.n_features_in_ = len(encoding.columns)
        self._draw_seed = seed
        for message in self.diagnostics_.messages:
            warnings.warn(message, _category(message), stacklevel=3)

    def _blocks(
        self, X: Any, numbers_per_person: int, compute: Callable[[Draws, Tensor], Tensor]
    ) -> Callable[[], Iterator[np.ndarray]]:
        """Return a function that makes the draws block by block, the same ones every time."""
        x = inference.to_double(self.encoding_.transform(X))

        def blocks() -> Iterator[np.ndarray]:
            draws = self.posterior_.draw(int(self.draws), self._draw_seed)
            for part in people_blocks(len(x), numbers_per_person):
                yield compute(draws, x[part]).numpy()

        return blocks

    def _curve(self, name: str, X: Any, times: Any, compute: Callable[[Draws, Tensor, Tensor], Tensor]) -> Prediction:
        """Predict a quantity along times (given in any order, in the user's unit)."""
        check_is_fitted(self)
        values = _check_times(times)
        order = np.argsort(values, kind="stable")
        back = np.argsort(order, kind="stable")
        scaled = inference.to_double(values[order] / self.time_scale_)
        points = self.posterior_.points_per_person(scaled)
        size = points * (self.posterior_.network.size + 2 * int(self.draws))
        return Prediction(
            name=name,
            index=_index(X),
            columns=pd.Index(values, name="time"),
            extrapolated=values > self.time_scale_,
            count=int(self.draws),
            blocks=self._blocks(X, size, lambda draws, x: compute(draws, scaled, x)[:, :, back]),
        )

    def predict_survival(self, X: Any, times: Any) -> Prediction:
        """Predict survival curves.

        Parameters
        ----------
        X : DataFrame or array-like of shape (n, d)
            Covariates, as in `fit`.
        times : array-like of shape (T,)
            Times in the user's unit, 0 or more.

        Returns
        -------
        Prediction
            With ``.mean``, ``.median``, ``.interval(0.9)``, ``.draws``.
        """

        def survival(draws: Draws, scaled: Tensor, x: Tensor) -> Tensor:
            return torch.exp(-self.posterior_.cumulative_hazard_draws(draws, scaled, x))

        return self._curve("survival", X, times, survival)

    def predict_cumulative_hazard(self, X: Any, times: Any) -> Prediction:
        """Predict cumulative hazards; parameters and return value as in :meth:`predict_survival`."""
        return self._curve(
            "cumulative hazard",
            X,
            times,
            lambda draws, scaled, x: self.posterior_.cumulative_hazard_draws(draws, scaled, x),
        )

    def predict_hazard(self, X: Any, times: Any) -> Prediction:
        """Predict hazards, in events per unit of the user's time; parameters as in :meth:`predict_survival`."""

        def hazard(draws: Draws, scaled: Tensor, x: Tensor) -> Tensor:
            values = self.posterior_.hazard_draws(draws, scaled.repeat(len(x)), x.repeat_interleave(len(scaled), 0))
            return values.reshape(len(draws), len(x), len(scaled)) / self.time_scale_

        return self._curve("hazard", X, times, hazard)

    def predict_g(self, X: Any, times: Any) -> Prediction:
        """Predict the network's output g, the logit of the hazard's share of its ceiling."""

        def g(draws: Draws, scaled: Tensor, x: Tensor) -> Tensor:
            values = self.posterior_.g_draws(draws, scaled.repeat(len(x)), x.repeat_interleave(len(scaled), 0))
            return values.reshape(len(draws), len(x), len(scaled))

        return self._curve("g", X, times, g)


_NOT_CHOICES = ("standardise", "draws", "verbose", "random_state")


def _category(message: str) -> type[NeuralSurvWarning]:
    if "collapsed" in message:
        return CollapseWarning
    return QuadratureWarning if "trapezoid" in message else ConvergenceWarning


def _index(X: Any) -> pd.Index:
    return as_frame(X).index


def _check_times(times: Any) -> np.ndarray:
    values = np.atleast_1d(np.asarray(times, dtype=np.float64))
    if values.ndim != 1 or len(values) == 0:
        raise InputError(f"times has shape {values.shape}; give one or more times in a flat list.")
    if not np.isfinite(values).all() or (values < 0).any():
        bad = values[~np.isfinite(values) | (values < 0)][0]
        raise InputError(f"times holds {bad:g}; every time must be a finite number of at least 0.")
    return values
