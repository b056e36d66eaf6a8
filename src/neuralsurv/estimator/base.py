"""What the estimators share: from a table to a fitted model, its summary and its file. No maths."""

from __future__ import annotations

import inspect
import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from neuralsurv.arguments import whole_number
from neuralsurv.data.cohort import Cohort, canonical_cohort
from neuralsurv.data.features import Encoding
from neuralsurv.data.missing_codes import missing_codes, warn_of_codes
from neuralsurv.data.stream.survey import Survey
from neuralsurv.data.table import check_episodes, separate_outcome
from neuralsurv.errors import CausesWarning, InputError
from neuralsurv.estimator.plot_methods import PlotMethods
from neuralsurv.estimator.summary import Summary, summarise
from neuralsurv.inference.check.importance import check_posterior
from neuralsurv.inference.exact.fit import diagnose_exact, exact_posterior, sample_fit
from neuralsurv.inference.exact.sampler import FEWEST_DRAWS, check_chains
from neuralsurv.inference.footprint import ADVICE, require_table
from neuralsurv.inference.linearised_fit import LinearisedFit, posterior_of
from neuralsurv.memory import explained
from neuralsurv.posterior.diagnostics import Diagnostics
from neuralsurv.posterior.fitted import Fitted
from neuralsurv.posterior.gaussian import Posterior


class SurvivalEstimator(PlotMethods, ABC):
    """Base of :class:`NeuralSurv` and :class:`PaperNeuralSurv`: a survival model with scikit-learn's interface."""

    standardise: Any
    random_state: Any

    @abstractmethod
    def _check_parameters(self) -> None:
        """Refuse parameters that are invalid, or would have no effect, before any work is done."""

    def _check_causes(self, causes: Sequence[int | str], *, exact: bool) -> None:
        """Refuse several causes of events where the fit takes one."""
        raise InputError(one_cause(f"{type(self).__name__} takes one cause of events", causes))

    def _check_encoding(self, encoding: Encoding) -> None:
        """Refuse covariates that the network cannot read."""
        encoding.check_flat()

    @abstractmethod
    def _infer(self, cohort: Cohort, encoding: Encoding, seed: int) -> LinearisedFit:
        """Fit a canonical cohort."""

    @abstractmethod
    def _file_bytes(self, rows: int, events: int, covariates: int) -> float:
        """Return about how large the model file will be; `covariates` counts encoded columns."""

    def __sklearn_tags__(self) -> Any:
        """Declare which inputs the estimator accepts."""
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
        sample_weight: Any = None,
        id: Any = None,
    ) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : DataFrame or array-like of shape (N, d)
            Covariates: numbers, text, categories, bools; missing values are allowed. With `time` and `event`, the whole
            table. With a `network` of your own, also an array with more axes, or a dict or tuple of arrays and tables
            with N rows each.
        y : structured array, DataFrame, tuple
            Outcome: a structured array (bool event, time), ``(time, event)``, ``(entry, time, event)``, or a frame
            with columns time and event. Leave it out when `time` and `event` are given.
        time, event : str or array-like of shape (N,), optional
            The outcome given separately: names of columns of X, or arrays. Named columns are not used as covariates.
            The event is True or 1, or False or 0 for censoring. With several causes (competing risks; `NeuralSurv`
            only) it is a whole number for each cause and 0 for censoring, or the name of the cause and "censored".
        entry : str or array-like of shape (N,), optional
            When each row enters observation (left truncation, or the start of an episode).
        sample_weight : str or array-like of shape (N,), optional
            Row weights; a weight of 2 counts the row twice.
        id : str or array-like of shape (N,), optional
            Subject of each row, where covariates change over time and a subject has several episodes.

        Returns
        -------
        estimator
            The fitted estimator itself.
        """
        given = {"time": time, "event": event, "entry": entry, "weight": sample_weight, "id": id}
        return self._fit(X, y, given, chains=None)

    def fit_exact(
        self,
        X: Any,
        y: Any = None,
        *,
        time: Any = None,
        event: Any = None,
        entry: Any = None,
        sample_weight: Any = None,
        id: Any = None,
        chains: int = 4,
        warmup: int = 500,
        thin: int = 10,
    ) -> Self:
        """Fit the model, and replace its variational posterior by exact draws (a Gibbs sampler).

        Exact for the linearised model; see the page "Exact draws". It needs the extra ``neuralsurv[gibbs]``.

        Parameters
        ----------
        X, y, time, event, entry, sample_weight, id
            As in :meth:`fit`.
        chains : int
            Number of chains; together they keep `draws` draws.
        warmup : int
            Sweeps discarded at the start of each chain.
        thin : int
            Sweeps per draw that is kept.

        Returns
        -------
        estimator
            The fitted estimator itself.

        Examples
        --------
        >>> from neuralsurv import NeuralSurv
        >>> from neuralsurv.data.simulate import lognormal_cohort
        >>> cohort = lognormal_cohort(25, seed=1)
        >>> model = NeuralSurv(hidden=(), average=False, random_state=0)
        >>> model.fit_exact(cohort.x, cohort.y, warmup=200).diagnostics_.converged
        True
        """
        given = {"time": time, "event": event, "entry": entry, "weight": sample_weight, "id": id}
        return self._fit(X, y, given, chains={"chains": chains, "warmup": warmup, "thin": thin})

    def _fit(self, X: Any, y: Any, given: dict[str, Any], chains: dict[str, int] | None) -> Self:
        whole_number("draws", self.draws)
        self._check_parameters()
        if chains is not None:
            check_chains(**chains)
        frame, outcome, subject, roles = separate_outcome(X, y, given)
        if outcome.causes:
            self._check_causes(outcome.causes, exact=chains is not None)
            warnings.warn(outcome.note, CausesWarning, stacklevel=3)
        survey = Survey.of(outcome)
        survey.check_fittable()
        # A weight of zero means that the row is not there; it must not set the scale of time or of a covariate.
        present = outcome.weight > 0
        outcome, frame = outcome.select(present).by_frequency(), frame[present]
        if subject is not None:
            check_episodes(subject[present], outcome.entry, outcome.time, outcome.event)
        encoding = Encoding.fit(
            frame, outcome.risk_weight(), events=outcome.event_weight(), standardise=self.standardise, like=X
        )
        self._check_encoding(encoding)
        warn_of_codes((code for name in frame.columns for code in missing_codes(frame[name])), stacklevel=3)
        require_table(len(frame), len(encoding.outputs))
        seeds = check_random_state(self.random_state).randint(2**31 - 1, size=2)
        with explained("the fit", ADVICE):
            x, scale = encoding.transform(frame), survey.last_time
            ends, entries = outcome.time / scale, outcome.entry / scale
            cohort = Cohort.of(ends, outcome.event, entries, outcome.weight, x, outcome.cause)
            cohort = canonical_cohort(cohort)
            fit = self._infer(cohort, encoding, int(seeds[0]))
            posterior, diagnostics = self._judge(fit, cohort, chains, int(seeds[0]) + 1)
        named = not isinstance(X, np.ndarray) and hasattr(X, "__dataframe__")
        named = named and all(isinstance(name, str) for name in frame.columns)
        # Assigned last, so that an earlier fit stays whole if this one fails.
        found = (posterior, fit.phi_prior, fit.trace, diagnostics)
        causes, draw_seed = outcome.cause_events(), int(seeds[1])
        self.fitted_ = Fitted.of(survey, encoding, *found, roles=roles, named=named, draw_seed=draw_seed, causes=causes)
        diagnostics.warn(stacklevel=3)
        return self

    def _judge(
        self, fit: LinearisedFit, cohort: Cohort, chains: dict[str, int] | None, seed: int
    ) -> tuple[Posterior, Diagnostics]:
        """Return the variational posterior, checked, or the exact draws that replace it."""
        if chains is None:
            checked = check_posterior(fit, cohort, seed)
            return posterior_of(fit), fit.diagnose().with_check(checked, worst=fit.worst_k_hat)
        each = max(FEWEST_DRAWS, -(-self.draws // chains["chains"]))
        drawn = sample_fit(fit, cohort, draws=each, **chains, seed=seed, verbose=self.verbose)
        return exact_posterior(fit, drawn), diagnose_exact(fit, drawn)

    def _refuse_unused(self, reasons: Mapping[str, str]) -> None:
        """Refuse parameters that were set although this fit does not use them, for the reasons given."""
        usual = inspect.signature(type(self)).parameters
        for name, reason in reasons.items():
            value = getattr(self, name)
            if not _same(value, usual[name].default):
                # The repr of a network may fill pages.
                shown = f"{name}={value!r}" if name != "network" else f"network={type(value).__name__}(…)"
                raise InputError(f"{shown} {reason}; leave it out.")

    def summary(self) -> Summary:
        """Return what was fitted and how it went, as text (``print``) or a table in a notebook."""
        check_is_fitted(self)
        return summarise(self.fitted_, type(self).__name__)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save the fitted model to one file; :func:`neuralsurv.load` opens it.

        The file is written under a temporary name and then renamed, so that a crash leaves the old one intact. A
        symbolic link is followed, and a file that is replaced keeps its mode. A file holds no code: for a subclass of
        an estimator of this package, `load` returns that estimator, and `save` warns of it.
        """
        from neuralsurv.estimator.model_file import save

        check_is_fitted(self)
        save(self, path)


def one_cause(what: str, causes: Sequence[int | str]) -> str:
    """Return a message that several causes cannot be used here, and what to do instead."""
    names = ", ".join(map(str, causes))
    return (
        f"{what}, and the event column has {len(causes)} ({names}). Fit one of them, with all others censored: pass "
        f"df[event] == {causes[0]!r} as the event (--event-value on the command line); or use NeuralSurv().fit, "
        "without a network."
    )


def _same(value: Any, usual: Any) -> bool:
    # An array compared with a string gives one answer for each element.
    return value is usual or bool(np.all(value == usual))
