"""The method of the paper as an estimator."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from neuralsurv.data.cohort import Cohort
from neuralsurv.data.features import Encoding
from neuralsurv.estimator.base import SurvivalEstimator
from neuralsurv.inference.linearised_fit import LinearisedFit
from neuralsurv.inference.paper.fit import fit_paper
from neuralsurv.inference.paper.footprint import paper_file_bytes
from neuralsurv.inference.paper.settings import PaperSettings


class PaperNeuralSurv(SurvivalEstimator):
    """NeuralSurv as published: MAP, local linearisation, coordinate-ascent variational inference.

    The hazard is phi · t^(rho−1) · σ(g(t, x)) / Z with g a dense network whose weights have standard normal priors.
    It exists to reproduce the paper and to compare with it; :class:`NeuralSurv` is the model to use.

    Parameters
    ----------
    hidden : tuple of int
        Widths of the hidden layers; ``(16,)`` reproduces the published tables, ``()`` is a linear model.
    activation : {"relu", "tanh", "silu"}
        Activation of the hidden layers.
    rho : float
        Exponent of the baseline hazard; 1 is a constant baseline.
    phi_prior : tuple of float
        Shape and rate of the Gamma prior of phi.
    quadrature : {"trapezoid", "gauss-legendre"}
        Rule for the integrals over time.
    quadrature_points : int
        Grid points of the trapezoid, or Gauss–Legendre nodes per row.
    normaliser : {"auto", "half", "closed-form", "monte-carlo"}
        How Z is computed; auto takes one half where that is exact.
    mode : {"direct", "em"}
        How the mode is found: by the paper's EM, or by minimising the same objective directly.
    starts : int
        Number of random starts of that search; the best is kept.
    mode_tolerance : float
        Relative gain of an iteration below which that search stops.
    spread : {"mode", "prior"}
        What q(theta) starts with: all mass at the mode, or the prior's covariance (the paper's text).
    tolerance : float
        Relative change of the parameters below which the variational sweeps stop.
    max_sweeps : int
        Limit on the number of sweeps.
    accelerate : bool
        Whether to take shortcuts to a fixed point of the sweeps: between two of them the best mean is searched, and a
        problem of many quadrature nodes is first solved on few.
    solver : {"auto", "primal", "dual", "low-rank"}
        The linear algebra of the sweeps; auto takes the cheapest that fits into memory.
    standardise : bool
        Whether covariates are centered and scaled (on the training rows).
    draws : int
        Posterior draws behind every prediction.
    warm_start : bool
        Whether another `fit` starts where the last one ended, if the network is of the same size.
    verbose : bool or "auto"
        Whether to show progress; ``"auto"`` does so on a terminal.
    random_state : int, RandomState or None
        Seed of starts and draws.

    Attributes
    ----------
    fitted_ : Fitted
        The result of the fit; the other attributes, those of :class:`NeuralSurv`, read from it.
    elbo_ : ndarray
        The evidence lower bound after each sweep, in nats.

    Examples
    --------
    >>> from neuralsurv import PaperNeuralSurv
    >>> from neuralsurv.data.simulate import lognormal_cohort
    >>> cohort = lognormal_cohort(30, seed=1)
    >>> model = PaperNeuralSurv(hidden=(4,), random_state=0).fit(cohort.x, cohort.y)
    >>> model.predict_survival(cohort.x.head(2), times=[10, 20]).median.shape
    (2, 2)
    """

    def __init__(
        self,
        *,
        hidden: tuple[int, ...] = (16, 16),
        activation: str = "relu",
        rho: float = 1.0,
        phi_prior: tuple[float, float] = (1.0, 1.0),
        quadrature: str = "trapezoid",
        quadrature_points: int = 200,
        normaliser: str = "auto",
        mode: str = "direct",
        starts: int = 2,
        mode_tolerance: float = 1e-6,
        spread: str = "mode",
        tolerance: float = 1e-6,
        max_sweeps: int = 1000,
        accelerate: bool = True,
        solver: str = "auto",
        standardise: bool = True,
        draws: int = 1000,
        warm_start: bool = False,
        verbose: bool | str = "auto",
        random_state: Any = None,
    ) -> None:
        self.hidden = hidden
        self.activation = activation
        self.rho = rho
        self.phi_prior = phi_prior
        self.quadrature = quadrature
        self.quadrature_points = quadrature_points
        self.normaliser = normaliser
        self.mode = mode
        self.starts = starts
        self.mode_tolerance = mode_tolerance
        self.spread = spread
        self.tolerance = tolerance
        self.max_sweeps = max_sweeps
        self.accelerate = accelerate
        self.solver = solver
        self.standardise = standardise
        self.draws = draws
        self.warm_start = warm_start
        self.verbose = verbose
        self.random_state = random_state

    def _settings(self) -> PaperSettings:
        return PaperSettings(**{field.name: getattr(self, field.name) for field in fields(PaperSettings)}).checked()

    def _check_parameters(self) -> None:
        self._settings()

    def _infer(self, cohort: Cohort, encoding: Encoding, seed: int) -> LinearisedFit:
        warm = self.posterior_.theta_star if self.warm_start and hasattr(self, "fitted_") else None
        return fit_paper(cohort, self._settings(), seed=seed, verbose=self.verbose, warm=warm)

    def _file_bytes(self, rows: int, events: int, covariates: int) -> float:
        return paper_file_bytes(rows, events, covariates, self._settings())
