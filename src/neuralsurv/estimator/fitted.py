"""The result of a fit as one frozen object, and the attributes of the estimator that read from it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from neuralsurv.data.features import Encoding
from neuralsurv.model.prior import Gamma, PointMass
from neuralsurv.posterior.diagnostics import Diagnostics
from neuralsurv.posterior.gaussian import Posterior

# More unique training times than this are thinned to quantiles for the curves that scikit-survival calls.
_MOST_TIMES = 1000


@dataclass(frozen=True, eq=False)
class Fitted:
    """A fitted model: all that predictions, summaries and files need.

    Attributes
    ----------
    posterior : Posterior
        q(phi) and q(theta), in scaled time (time divided by `time_scale`).
    phi_prior : Gamma or PointMass
        The prior of phi.
    encoding : Encoding
        How covariates become numbers.
    time_scale : float
        The largest training time, in the user's unit.
    times : ndarray
        The distinct training times; see :func:`thinned`.
    event_quartiles : ndarray of shape (3,), or None
        Quartiles of the training event times; None where an older model file lacks them.
    trace : ndarray
        The evidence lower bound as the fit went on, in nats.
    diagnostics : Diagnostics
        What to know before trusting the fit.
    training : dict of str to float
        Numbers of rows and events, of rows with late entry, and the weight of the events.
    roles : dict of str to str
        Columns of the outcome by their role, where they were named.
    named : bool
        Whether the covariates had names.
    draw_seed : int
        Seed of the joint draws behind predictions.
    """

    posterior: Posterior
    phi_prior: Gamma | PointMass
    encoding: Encoding
    time_scale: float
    times: np.ndarray
    event_quartiles: np.ndarray | None
    trace: np.ndarray
    diagnostics: Diagnostics
    training: dict[str, float]
    roles: dict[str, str]
    named: bool
    draw_seed: int


def thinned(times: np.ndarray) -> np.ndarray:
    """Return distinct training times, in order, or their quantiles if there are more than 1,000."""
    return np.quantile(times, np.linspace(0, 1, _MOST_TIMES)) if len(times) > _MOST_TIMES else times


class FittedAttributes:
    """The attributes of a fitted estimator by their scikit-learn names."""

    fitted_: Fitted

    @property
    def posterior_(self) -> Posterior:
        """q(phi) and q(theta), in scaled time."""
        return self.fitted_.posterior

    @property
    def phi_prior_(self) -> Gamma | PointMass:
        """The prior of phi."""
        return self.fitted_.phi_prior

    @property
    def encoding_(self) -> Encoding:
        """How covariates become numbers."""
        return self.fitted_.encoding

    @property
    def time_scale_(self) -> float:
        """The largest training time, in the user's unit."""
        return self.fitted_.time_scale

    @property
    def unique_times_(self) -> np.ndarray:
        """The distinct training times (their quantiles, if there are more than 1,000)."""
        return self.fitted_.times

    @property
    def event_quartiles_(self) -> np.ndarray | None:
        """Quartiles of the training event times, or None."""
        return self.fitted_.event_quartiles

    @property
    def elbo_(self) -> np.ndarray:
        """The evidence lower bound as the fit went on."""
        return self.fitted_.trace

    @property
    def diagnostics_(self) -> Diagnostics:
        """What to know before trusting the fit."""
        return self.fitted_.diagnostics

    @property
    def training_(self) -> dict[str, float]:
        """Numbers of training rows and events."""
        return self.fitted_.training

    @property
    def columns_(self) -> dict[str, str]:
        """Columns of the outcome by their role, where they were named."""
        return self.fitted_.roles

    @property
    def n_features_in_(self) -> int:
        """Number of covariates."""
        return len(self.fitted_.encoding.columns)

    @property
    def feature_names_in_(self) -> np.ndarray:
        """Names of the covariates, where they had any."""
        if not self.fitted_.named:
            raise AttributeError("the covariates had no names")
        return np.array([column.name for column in self.fitted_.encoding.columns], dtype=object)
