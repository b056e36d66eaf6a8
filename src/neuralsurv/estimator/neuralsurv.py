"""NeuralSurv, the default model as an estimator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from neuralsurv.data.cohort import Cohort
from neuralsurv.data.features import Encoding
from neuralsurv.errors import InputError
from neuralsurv.estimator.base import one_cause
from neuralsurv.estimator.own_network import own_network
from neuralsurv.estimator.streaming import StreamedEstimator
from neuralsurv.inference.default.fit import fit_default
from neuralsurv.inference.default.footprint import default_file_bytes
from neuralsurv.inference.default.settings import DefaultSettings
from neuralsurv.inference.linearised_fit import LinearisedFit

_BUILT_IN = "does nothing for a network of your own (network=…)"


class NeuralSurv(StreamedEstimator):
    """Bayesian survival model: individual survival curves with credible bands.

    The hazard is phi · σ(g(t, x)) / Z. g is a sum of linear effects, a time basis, effects that change with time,
    products of two covariates, curves of single covariates and neighbourhoods of training rows; its weights have a
    Gaussian prior. There is nothing to tune: the scales of the prior are inferred and averaged over. A parameter that
    would have no effect in a fit is refused.

    Parameters
    ----------
    hidden : tuple of int, optional
        Widths of the hidden layers of a network of random units that replaces curves and neighbourhoods, such as
        ``(64,)``; ``()`` for neither. By default there is no such network in `fit`, and one layer of 64 in
        `fit_stream`, which has no curves and no neighbourhoods.
    activation : {"relu", "tanh", "silu"}, optional
        Activation of the hidden layers; silu by default. If given, `fit` has the network, with one layer of 64 unless
        `hidden` says otherwise.
    neighbourhoods : int, optional
        Largest number of training rows whose neighbourhoods are units of g: 400 by default, 0 for none. There are none
        with more than 64 encoded covariates. Refused together with `hidden` or `activation`.
    headroom : float
        Ceiling of the hazard, as a multiple of the crude event rate.
    quadrature_points : int
        Quadrature nodes per row for the integrals over time.
    average : bool
        Whether the posterior is averaged over scales of the prior, or taken at the best ones. With more than 4,000
        different rows it is always at the best.
    tolerance : float
        Gain in nats below which the ascent for one setting of the scales stops.
    max_sweeps : int
        Limit on its steps.
    network : torch.nn.Module or OwnNetwork, optional
        A network of your own in place of curves and neighbourhoods; :class:`OwnNetwork` says how it is trained and
        which of its weights have a posterior. See the page "Your own network".
    standardise : bool
        Whether covariates are centered and scaled (on the training rows).
    draws : int
        Posterior draws behind every prediction.
    verbose : bool or "auto"
        Whether to show progress; ``"auto"`` does so on a terminal.
    random_state : int, RandomState or None
        Seed of the posterior draws behind predictions, and of the random weights and the training of a network
        (`hidden`, `activation`, `network`, `fit_stream`). The posterior of the default model itself does not depend
        on it.

    Attributes
    ----------
    fitted_ : Fitted
        The result of the fit; the other attributes read from it.
    posterior_ : Posterior
        q(phi) and q(theta), in scaled time (time divided by `time_scale_`).
    elbo_ : ndarray
        The best score (ELBO plus log hyper-prior, in nats) after each setting of the prior's scales that was tried.
    diagnostics_ : Diagnostics
        What to know before trusting the fit.
    time_scale_ : float
        The largest training time, in the user's unit.
    unique_times_ : ndarray
        The distinct training times (their quantiles, if there are more than 1,000).
    event_quartiles_ : ndarray of shape (3,), or None
        Quartiles of the training event times, with row weights; None where an older model file lacks them.
    n_features_in_ : int
        Number of covariates.
    feature_names_in_ : ndarray of str
        Their names, where X had any.

    Examples
    --------
    >>> from neuralsurv import NeuralSurv
    >>> from neuralsurv.data.simulate import lognormal_cohort
    >>> cohort = lognormal_cohort(40, seed=1)
    >>> model = NeuralSurv(random_state=0)
    >>> curves = model.fit(cohort.x, cohort.y).predict_survival(cohort.x.head(2), times=[10, 20])
    >>> curves.mean.shape
    (2, 2)
    """

    def __init__(
        self,
        *,
        hidden: tuple[int, ...] | None = None,
        activation: str | None = None,
        neighbourhoods: int | None = None,
        headroom: float = 100.0,
        quadrature_points: int = 12,
        average: bool = True,
        tolerance: float = 1e-3,
        max_sweeps: int = 100,
        network: Any = None,
        standardise: bool = True,
        draws: int = 1000,
        verbose: bool | str = "auto",
        random_state: Any = None,
    ) -> None:
        self.hidden = hidden
        self.activation = activation
        self.neighbourhoods = neighbourhoods
        self.headroom = headroom
        self.quadrature_points = quadrature_points
        self.average = average
        self.tolerance = tolerance
        self.max_sweeps = max_sweeps
        self.network = network
        self.standardise = standardise
        self.draws = draws
        self.verbose = verbose
        self.random_state = random_state

    def _settings(self) -> DefaultSettings:
        sizes = {"hidden": self.hidden, "activation": self.activation, "neighbourhoods": self.neighbourhoods}
        ascent = {"average": self.average, "tolerance": self.tolerance, "max_sweeps": self.max_sweeps}
        return DefaultSettings.of(**sizes, **ascent, headroom=self.headroom, quadrature_points=self.quadrature_points)

    def _check_parameters(self) -> None:
        self._settings()
        own = own_network(self.network)
        if own is not None:
            _ = own.training
            self._refuse_unused(dict.fromkeys(("hidden", "activation", "neighbourhoods"), _BUILT_IN))

    def _check_causes(self, causes: Sequence[int | str], *, exact: bool) -> None:
        """Refuse several causes of events except in a fit of the model without a network."""
        if exact:
            raise InputError(one_cause("exact draws take one cause of events", causes))
        if self.network is not None or self._settings().random_network:
            raise InputError(one_cause("a network (network=, hidden=, activation=) takes one cause of events", causes))

    def _check_encoding(self, encoding: Encoding) -> None:
        if self.network is None:
            encoding.check_flat()

    def _infer(self, cohort: Cohort, encoding: Encoding, seed: int) -> LinearisedFit:
        own = own_network(self.network)
        module, training = (None, None) if own is None else (own.wrapped(encoding.layout, cohort), own.training)
        return fit_default(cohort, self._settings(), seed=seed, verbose=self.verbose, module=module, training=training)

    def _file_bytes(self, rows: int, events: int, covariates: int) -> float:
        return default_file_bytes(rows, events, covariates, self._settings())
