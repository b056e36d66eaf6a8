"""NeuralSurv, the scikit-learn style door: validates, delegates, holds results. No maths."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from neuralsurv.data.canonical import Rows, canonical_rows
from neuralsurv.data.episodes import check_episodes
from neuralsurv.data.features import Encoding
from neuralsurv.data.stream.time_counts import TimeCounts, event_quartiles
from neuralsurv.data.table import read_table
from neuralsurv.errors import InputError
from neuralsurv.estimator.diagnostics import diagnose
from neuralsurv.estimator.fit_kinds import CHOICES, kind_of, refuse_unused
from neuralsurv.estimator.fitted import Fitted, FittedAttributes, thinned
from neuralsurv.estimator.plot_methods import PlotMethods
from neuralsurv.estimator.predict_methods import PredictMethods
from neuralsurv.estimator.stream_methods import StreamMethods
from neuralsurv.estimator.summary import Summary, summarise
from neuralsurv.inference.check.importance import WeighedDraws, check_posterior, weigh_draws
from neuralsurv.inference.choices import DefaultChoices, PaperChoices, resolve
from neuralsurv.inference.default.fit import AdditiveFit, fit_additive
from neuralsurv.inference.exact.chains import GibbsResult
from neuralsurv.inference.exact.fit import sample_fit
from neuralsurv.inference.exact.sampler import FEWEST_DRAWS, check_chains
from neuralsurv.inference.footprint import ADVICE, require_table
from neuralsurv.inference.paper import fit as inference
from neuralsurv.memory import explained
from neuralsurv.model.module_checks import wrap_module
from neuralsurv.model.module_network import ModuleNetwork
from neuralsurv.posterior.gaussian import Posterior
from neuralsurv.posterior.samples import sampled_posterior

_INFERENCES = ("variational", "importance", "gibbs")


class NeuralSurv(FittedAttributes, PredictMethods, StreamMethods, PlotMethods, BaseEstimator):
    """Bayesian neural survival model.

    The hazard is phi · t^(rho−1) · σ(g(t, x)) / Z with g a Bayesian neural network. Parameters left at None take the
    preset's value; ``(paper)`` marks those that only the paper preset has, ``(default)`` those of the default. A
    parameter that would do nothing in a fit is refused by name.

    Parameters
    ----------
    preset : {"default", "paper"}, PaperChoices or DefaultChoices
        Named set of choices; see :mod:`neuralsurv.inference.choices`. A choice that a preset does not have is refused.
    hidden : tuple of int, optional
        Widths of the hidden layers; ``(16, 16)`` means two hidden layers.
    activation : {"relu", "tanh", "silu"}, optional
        Activation of the hidden layers.
    rho : float, optional
        (paper) Exponent of the Weibull baseline; 1 is a constant baseline hazard.
    phi_prior : tuple of float, optional
        (paper) Shape and rate of the Gamma prior of phi.
    quadrature : {"trapezoid", "gauss-legendre"}, optional
        (paper) Rule for the integrals over time.
    quadrature_points : int, optional
        Points of that rule: of the common grid, or nodes a row.
    normaliser : {"auto", "half", "closed-form", "monte-carlo"}, optional
        (paper) How Z is computed.
    mode : {"direct", "em"}, optional
        (paper) How the mode is found: by minimising its objective directly, or by the paper's EM.
    starts : int, optional
        (paper) Random starts of that search.
    mode_tolerance : float, optional
        (paper) Relative gain of an iteration at which that search stops.
    spread : {"mode", "prior"}, optional
        (paper) Where the variational sweeps start: all mass at the mode, or the prior's covariance around it.
    tolerance : float, optional
        Relative change of the parameters at which the variational sweeps stop; with the default preset, gain
        in nats.
    max_sweeps : int, optional
        Limit on the sweeps.
    accelerate : bool, optional
        (paper) Whether to take shortcuts to a fixed point of the sweeps: a search for the mean and extrapolation
        between them, and first solving on few quadrature nodes.
    solver : {"auto", "primal", "dual", "low-rank"}, optional
        (paper) The linear algebra of the sweeps; ``diagnostics_.solver_reason`` says why auto chose what it did.
    headroom : float, optional
        (default) Ceiling of the hazard, as a multiple of the crude rate of events.
    neighbourhoods : int, optional
        (default) Units that respond to a neighbourhood of training rows, which take the place of hidden layers
        with 2,000 to 50,000 rows; 0 for none, as where `hidden` or `activation` is given.
    average : bool, optional
        (default) Whether the posterior is averaged over scales of the prior, or taken at the best ones.
    inference : {"variational", "importance", "gibbs"}
        How the posterior is found: by the preset's variational approximation; (paper) by draws of a better Gaussian
        with importance weights; or by exact draws of the same linearised model (extra ``gibbs``), which take minutes
        where the others take seconds.
    chains, warmup, thin : int
        (``inference="gibbs"``) Chains of the exact sampler, sweeps thrown away before their first draw, and sweeps for
        each draw that is kept; of all chains together `draws` are kept.
    network : torch.nn.Module, optional
        A network of your own in place of the built-in one: ``forward(t, x)`` with times t of shape (P,) and x the
        covariates of P rows (a tensor, or a tuple or dict of them where X was one), returning P numbers. It is copied,
        never changed. See the page "Your own network".
    bayesian : "all", str or list of str
        Which weights of `network` have a posterior: all that ask for a gradient, or those of the parts that are named.
        The others are only trained, as if they were known exactly: **bands are then too narrow**.
    device : str
        Where `network` runs: "cpu" or "cuda".
    epochs, learning_rate : int, float, optional
        (default) Training of `network` before it is linearised: most passes over the rows (0 for none), rate of Adam.
    standardise : bool
        Whether covariates are centered and scaled (on the training rows).
    draws : int
        Posterior draws behind every prediction.
    warm_start : bool
        (paper) Whether a further `fit` starts where the last one ended, if the network is of the same size.
    verbose : bool or "auto"
        Whether to show progress; ``"auto"`` does so on a terminal.
    random_state : int, RandomState or None
        Seed of starts and draws.

    Attributes
    ----------
    fitted_ : Fitted
        Everything that the fit left behind; the other attributes are read off it.
    posterior_ : Posterior
        q(phi) and q(theta), in scaled time (time divided by `time_scale_`).
    elbo_ : ndarray
        The evidence lower bound after each sweep, in nats; with the default preset, the best score (ELBO plus log
        hyper-prior) after each setting of the prior's scales that was tried.
    diagnostics_ : Diagnostics
        What to know before trusting the fit.
    time_scale_ : float
        The largest training time, in the user's unit.
    unique_times_ : ndarray
        The distinct training times (their quantiles, if there are more than 1,000).
    event_quartiles_ : ndarray of shape (3,), or None
        Quartiles of the training event times, row weights counted; None where an older model file lacks them.
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
        preset: str | PaperChoices | DefaultChoices = "default",
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
        mode_tolerance: float | None = None,
        spread: str | None = None,
        tolerance: float | None = None,
        max_sweeps: int | None = None,
        accelerate: bool | None = None,
        solver: str | None = None,
        headroom: float | None = None,
        neighbourhoods: int | None = None,
        average: bool | None = None,
        inference: str = "variational",
        chains: int = 4,
        warmup: int = 500,
        thin: int = 10,
        network: Any = None,
        bayesian: Any = "all",
        device: str = "cpu",
        epochs: int | None = None,
        learning_rate: float | None = None,
        standardise: bool = True,
        draws: int = 1000,
        warm_start: bool = False,
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
        self.mode_tolerance = mode_tolerance
        self.spread = spread
        self.tolerance = tolerance
        self.max_sweeps = max_sweeps
        self.accelerate = accelerate
        self.solver = solver
        self.headroom = headroom
        self.neighbourhoods = neighbourhoods
        self.average = average
        self.inference = inference
        self.chains = chains
        self.warmup = warmup
        self.thin = thin
        self.network = network
        self.bayesian = bayesian
        self.device = device
        self.epochs = epochs
        self.learning_rate = learning_rate
        self.standardise = standardise
        self.draws = draws
        self.warm_start = warm_start
        self.verbose = verbose
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn what the estimator takes."""
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        return tags

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        time: Any = None,
        event: Any = None,
        entry: Any = None,
        weight: Any = None,
        id: Any = None,
        sample_weight: Any = None,
    ) -> NeuralSurv:
        """Fit the model.

        Parameters
        ----------
        X : DataFrame or array-like of shape (N, d)
            Covariates: numbers, text, categories, bools; gaps are allowed. With `time` and `event`, the whole table.
            With a `network`, also an array of more axes, or a dict or tuple of arrays and tables with N rows each.
        y : structured array, DataFrame, tuple
            Outcome: a structured array (bool event, time), ``(time, event)``, ``(entry, time, event)``, or a frame
            with columns time and event. Leave it out when `time` and `event` are given.
        time, event : str or array-like of shape (N,), optional
            The outcome by itself: names of columns of X, or arrays. Named columns are not used as covariates.
        entry : str or array-like of shape (N,), optional
            When each row enters observation (left truncation, or the start of an episode).
        weight, sample_weight : str or array-like of shape (N,), optional
            Row weights; a weight of 2 counts as the row twice. The second is scikit-learn's name for the first.
        id : str or array-like of shape (N,), optional
            Subject of each row, where covariates change over time and a subject has several episodes.

        Returns
        -------
        NeuralSurv
            The fitted estimator itself.
        """
        parameters = self.get_params(deep=False)
        choices = resolve(**{name: value for name, value in parameters.items() if name in CHOICES})
        self._check_draws()
        lengths = self._check_inference(choices)
        refuse_unused(type(self), parameters, kind_of(choices, parameters))
        if weight is not None and sample_weight is not None:
            raise InputError("weight and sample_weight are two names for one thing; give one of them.")
        weight = sample_weight if weight is None else weight
        given = {"time": time, "event": event, "entry": entry, "weight": weight, "id": id}
        frame, outcome, subject, named = read_table(X, y, given)
        # A weight of zero means that the row is not there; it must not set the scale of time or of a covariate.
        present = outcome.weight > 0
        if not present.any():
            raise InputError(f"every one of the {len(outcome)} rows has a weight of zero; there is nothing to fit.")
        outcome, frame = outcome.select(present), frame[present]
        outcome.check_fittable()
        if subject is not None:
            check_episodes(subject[present], outcome.entry, outcome.time, outcome.event)
        encoding = Encoding.fit(
            frame, outcome.risk_weight(), events=outcome.event_weight(), standardise=self.standardise, like=X
        )
        if self.network is None:
            encoding.check_flat()
        require_table(len(frame), len(encoding.outputs))
        seeds = check_random_state(self.random_state).randint(2**31 - 1, size=2)
        scale = float(outcome.time.max())
        with explained("the fit", ADVICE):
            x = encoding.transform(frame)
            rows = canonical_rows(Rows(outcome.time / scale, outcome.event, outcome.entry / scale, outcome.weight, x))
            result, drawn, checked = self._infer(rows, encoding, choices, lengths, int(seeds[0]))
        event = outcome.event
        # Worked out before anything is changed, so that an earlier fit stays whole if it fails.
        self.fitted_ = Fitted(
            posterior=_posterior(result, drawn),
            phi_prior=result.phi_prior,
            encoding=encoding,
            time_scale=scale,
            times=thinned(np.unique(outcome.time)),
            event_quartiles=event_quartiles(TimeCounts.of(outcome.time[event], outcome.weight[event])),
            trace=np.array(result.elbo),
            diagnostics=diagnose(result, drawn, checked),
            training={
                "rows": len(outcome),
                "events": int(event.sum()),
                "truncated": int((outcome.entry > 0).sum()),
                "weighted_events": outcome.event_weight(),
            },
            roles=named,
            named=_has_names(X, frame),
            draw_seed=int(seeds[1]),
        )
        self.diagnostics_.warn(stacklevel=2)
        return self

    def _infer(
        self,
        rows: Rows,
        encoding: Encoding,
        choices: PaperChoices | DefaultChoices,
        lengths: dict[str, int],
        seed: int,
    ) -> tuple[inference.Fit | AdditiveFit, GibbsResult | WeighedDraws | None, dict[str, float]]:
        """Return the fit of canonical rows, the draws where there are some, and else what a check of it found."""
        cohort = (
            inference.to_double(rows.time),
            torch.from_numpy(rows.event),
            inference.to_double(rows.entry),
            inference.to_double(rows.weight),
            inference.to_double(rows.x),
        )
        module = None
        if self.network is not None:
            module = wrap_module(
                self.network, encoding.layout, cohort[4], bayesian=self.bayesian, device=self.device, time=cohort[0]
            )
        result: inference.Fit | AdditiveFit
        if isinstance(choices, DefaultChoices):
            result = fit_additive(*cohort, choices, seed=seed, verbose=self.verbose, module=module)
        else:
            warm = self._last_mode() if self.warm_start and hasattr(self, "fitted_") else None
            result = inference.fit(*cohort, choices, seed=seed, verbose=self.verbose, warm=warm, module=module)
        if self.inference == "gibbs":
            return result, sample_fit(result, cohort, **lengths, seed=seed + 1, verbose=self.verbose), {}
        if self.inference == "importance":
            assert isinstance(result, inference.Fit)
            return result, weigh_draws(result, cohort, draws=int(self.draws), seed=seed + 1), {}
        return result, None, check_posterior(result, cohort, seed + 1)

    def _last_mode(self) -> torch.Tensor:
        """Return where the search of the last fit ended, with all weights that it could move."""
        network = self.posterior_.network
        if isinstance(network, ModuleNetwork) and network.names != network.trained:
            return network.over(network.trained).own
        return self.posterior_.theta_star

    def _check_draws(self) -> None:
        if not isinstance(self.draws, (int, np.integer)) or self.draws < 1:
            raise InputError(f"draws={self.draws!r} must be a whole number of at least 1.")

    def _check_inference(self, choices: PaperChoices | DefaultChoices) -> dict[str, int]:
        """Refuse an inference that cannot be done, and return the lengths of the exact sampler's chains."""
        if self.inference not in _INFERENCES:
            raise InputError(f"inference={self.inference!r} is not known; use one of {', '.join(_INFERENCES)}.")
        if self.inference == "importance" and isinstance(choices, DefaultChoices):
            raise InputError(
                "inference='importance' corrects the bound of preset='paper'; the default preset has no such bound. "
                "Leave inference out, or use inference='gibbs' for exact draws."
            )
        if self.inference != "gibbs":
            return {}
        check_chains(chains=self.chains, warmup=self.warmup, thin=self.thin)
        each = max(FEWEST_DRAWS, -(-self.draws // self.chains))
        return {"chains": self.chains, "draws": each, "warmup": self.warmup, "thin": self.thin}

    def summary(self) -> Summary:
        """Return what was fitted and how it went, as text (``print``) or a table in a notebook."""
        check_is_fitted(self)
        return summarise(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save the fitted model to one file; :func:`neuralsurv.load` opens it.

        The file is written next to its place and then moved there, so that a crash leaves the old one. A symbolic link
        is followed, and a file that is replaced keeps its mode. A file holds no code: of a class that you derived from
        this one, `load` gives back the NeuralSurv, which `save` says in a warning.
        """
        from neuralsurv.estimator.model_file import save

        check_is_fitted(self)
        save(self, path)


def _posterior(result: inference.Fit | AdditiveFit, drawn: GibbsResult | WeighedDraws | None) -> Posterior:
    """Return what is predicted from: the variational posterior, or the draws that replace it."""
    model = result.likelihood
    if drawn is None:
        return Posterior(result.phi, result.theta, result.theta_star, model.network, model.normaliser, model.rho)
    return sampled_posterior(
        *drawn.flat(),
        theta_star=result.theta_star,
        network=model.network,
        normaliser=model.normaliser,
        rho=model.rho,
    )


def _has_names(X: Any, frame: pd.DataFrame) -> bool:
    """Return whether X was a table whose columns have texts as names."""
    table = not isinstance(X, np.ndarray) and hasattr(X, "__dataframe__")
    return table and all(isinstance(name, str) for name in frame.columns)
