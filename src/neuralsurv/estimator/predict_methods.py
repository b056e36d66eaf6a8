"""The prediction methods of the estimator: each checks its arguments, then calls a `Predictor`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from neuralsurv.arguments import whole_number
from neuralsurv.data.cause_values import cause_number, flags_of_any
from neuralsurv.data.features import Encoding
from neuralsurv.data.frames import as_frame
from neuralsurv.data.outcome import Outcome
from neuralsurv.data.parts import container_of
from neuralsurv.data.table import require_rows
from neuralsurv.errors import InputError
from neuralsurv.metrics.discrimination import antolini_concordance
from neuralsurv.model.prior import Gamma, PointMass
from neuralsurv.names import check_known
from neuralsurv.posterior.diagnostics import Diagnostics
from neuralsurv.posterior.fitted import Fitted
from neuralsurv.posterior.gaussian import Posterior
from neuralsurv.prediction.incidence import IncidencePredictor
from neuralsurv.prediction.mean_predictor import MeanPredictor
from neuralsurv.prediction.prediction import Curve, Prediction
from neuralsurv.prediction.predictor import Predictor, check_times


def _part(name: str) -> Any:
    """Return a property that reads a field of `Fitted`."""
    return property(lambda self: getattr(self.fitted_, name))


class PredictMethods(BaseEstimator):
    """Predictions of a fitted model, also in the forms of scikit-learn, scikit-survival and ArviZ."""

    draws: Any
    verbose: Any
    fitted_: Fitted

    # The result of the fit by scikit-learn's names.
    posterior_: Posterior = _part("posterior")
    phi_prior_: Gamma | PointMass = _part("phi_prior")
    encoding_: Encoding = _part("encoding")
    time_scale_: float = _part("time_scale")
    unique_times_: np.ndarray = _part("times")
    event_quartiles_: np.ndarray | None = _part("event_quartiles")
    elbo_: np.ndarray = _part("trace")
    diagnostics_: Diagnostics = _part("diagnostics")
    training_: dict[str, float] = _part("training")
    columns_: dict[str, str] = _part("roles")

    @property
    def causes_(self) -> tuple[int | str, ...]:
        """The causes of events, the most frequent first; empty where the model was fitted to one cause."""
        check_is_fitted(self, "fitted_")
        return tuple(self.fitted_.causes)

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

    def _predictor(self, *tables: Any) -> Predictor:
        """Return the predictor, after checking that the model is fitted and that `tables` have its columns."""
        check_is_fitted(self)
        whole_number("draws", self.draws)
        for X in tables:
            # A matrix has no column names, so only its width can be checked; the message is scikit-learn's.
            nameless = not hasattr(X, "__dataframe__") and self.encoding_.container == container_of(X) == "table"
            width = as_frame(X).shape[1] if nameless else self.n_features_in_
            if width != self.n_features_in_:
                raise InputError(
                    f"X has {width} features, but {type(self).__name__} is expecting {self.n_features_in_} features "
                    "as input."
                )
        return Predictor.from_fitted(self.fitted_, int(self.draws), self.verbose)

    def _means(self, X: Any) -> MeanPredictor:
        """Return the predictor of posterior means without bands, after the same checks."""
        predictor = self._predictor(X)
        return MeanPredictor(predictor, self.fitted_.mean_curves)

    def _by_cause(self, *tables: Any) -> IncidencePredictor:
        """Return the predictor by cause, after the same checks."""
        return IncidencePredictor.of(self._predictor(*tables), self.fitted_)

    def _hazard_of(self, X: Any, cause: Any) -> Predictor:
        """Return the predictor of the hazard of a cause, or of any event without one."""
        if cause is None:
            return self._predictor(X)
        predictor = self._predictor(X)
        cause_number(cause, self.causes_)
        return IncidencePredictor.of(predictor, self.fitted_).of_cause(cause)

    def predict_survival(self, X: Any, times: Any) -> Prediction:
        """Predict survival curves; with several causes, the probability of no event of any cause.

        Parameters
        ----------
        X : DataFrame or array-like of shape (n, d)
            Covariates, as in `fit`.
        times : array-like of shape (T,)
            Times in the user's unit, 0 or more, in any order.

        Returns
        -------
        Prediction
            With ``.mean``, ``.median``, ``.interval(0.9)``, ``.draws``, ``.to_frame()``, ``.plot()``.
        """
        return self._predictor(X).survival(X, times)

    def predict_mean_survival(self, X: Any, times: Any) -> pd.DataFrame:
        """Predict the posterior mean of survival, without bands and many times faster than with them.

        Parameters as in :meth:`predict_survival`, whose ``.mean`` is the mean of its draws; this one is closer to the
        mean of the posterior. :meth:`predict`, :meth:`score` and the metrics of the commands use it. A model with a
        network, also one of your own, takes the mean of `draws` draws that are moved to have the mean of the posterior.

        Returns
        -------
        DataFrame of shape (n, T)
            One row for each person, one column for each time.

        Examples
        --------
        >>> from neuralsurv import NeuralSurv
        >>> from neuralsurv.data.simulate import lognormal_cohort
        >>> cohort = lognormal_cohort(40, seed=1)
        >>> model = NeuralSurv(random_state=0).fit(cohort.x, cohort.y)
        >>> mean, draws = model.predict_mean_survival(cohort.x, [10, 20]), model.predict_survival(cohort.x, [10, 20])
        >>> bool((mean - draws.mean).abs().max(axis=None) < 0.02)
        True
        """
        values = self._means(X).survival(X, times)
        return pd.DataFrame(values, index=as_frame(X).index, columns=pd.Index(check_times(times), name="time"))

    def predict_cumulative_hazard(self, X: Any, times: Any, *, cause: Any = None) -> Prediction:
        """Predict cumulative hazards; parameters and return value as in :meth:`predict_survival`.

        With several causes it is that of `cause`, or of any event without one.
        """
        return self._hazard_of(X, cause).cumulative_hazard(X, times)

    def predict_hazard(self, X: Any, times: Any, *, cause: Any = None) -> Prediction:
        """Predict hazards, in events per unit of the user's time; parameters as in :meth:`predict_survival`.

        With several causes it is the cause-specific hazard of `cause`, or that of any event without one.
        """
        return self._hazard_of(X, cause).hazard(X, times)

    def predict_cumulative_incidence(self, X: Any, times: Any, cause: Any = None) -> Prediction:
        """Predict the probability of an event of a cause, before any other event, by the given times.

        In every joint draw the cumulative incidences of all causes and event-free survival add up to 1.

        Parameters
        ----------
        X : DataFrame or array-like of shape (n, d)
            Covariates, as in `fit`.
        times : array-like of shape (T,)
            Times in the user's unit, 0 or more, in any order.
        cause : int or str, optional
            One of `causes_`; all of them, in columns (cause, time), without one.

        Returns
        -------
        Prediction
            As in :meth:`predict_survival`.

        Examples
        --------
        >>> import warnings
        >>> from neuralsurv import NeuralSurv
        >>> from neuralsurv.data.simulate.competing import competing_cohort
        >>> cohort = competing_cohort(100, seed=1)
        >>> with warnings.catch_warnings():
        ...     warnings.simplefilter("ignore")  # it says how the event column was read
        ...     model = NeuralSurv(random_state=0).fit(cohort.x, time=cohort.time, event=cohort.event)
        >>> sorted(model.causes_)
        ['death', 'relapse']
        >>> relapse = model.predict_cumulative_incidence(cohort.x.head(2), [1, 2], cause="relapse")
        >>> relapse.mean.shape
        (2, 2)
        """
        return self._by_cause(X).cumulative_incidence(X, times, cause)

    def predict_rmtl(self, X: Any, horizon: float, cause: Any = None) -> Prediction:
        """Predict the restricted mean time lost to a cause: the time up to `horizon` that follows its events.

        It is the area under the cumulative incidence. Over all causes the times lost add up to `horizon` minus the
        restricted mean survival time. Without a `cause`, all of them are in columns.
        """
        return self._by_cause(X).rmtl(X, horizon, cause)

    def predict_conditional_survival(self, X: Any, times: Any, given: float) -> Prediction:
        """Predict survival of people who are known to be event-free at time `given`.

        Parameters
        ----------
        X : DataFrame or array-like of shape (n, d)
            Covariates.
        times : array-like of shape (T,)
            Times, counted from the same origin as in `fit`; the prediction is 1 up to `given`.
        given : float
            Time that the person has reached.
        """
        return self._predictor(X).conditional_survival(X, times, given)

    def predict_quantile(self, X: Any, q: Any) -> Prediction:
        """Predict the time by which a share `q` of people like this have had the event.

        Parameters
        ----------
        X : DataFrame or array-like of shape (n, d)
            Covariates.
        q : float or array-like
            Shares, strictly between 0 and 1; 0.5 is the median.

        Returns
        -------
        Prediction
            A draw whose curve does not come that far within the training range is infinite; ``.unreached`` is the
            share of such draws.
        """
        return self._predictor(X).quantile(X, q)

    def predict_median(self, X: Any) -> Prediction:
        """Predict the median event time; see :meth:`predict_quantile`."""
        return self._predictor(X).quantile(X, 0.5)

    def predict_event_time(self, X: Any) -> Prediction:
        """Predict each person's event time: ``.interval(0.9)`` is a prediction interval for it.

        The draws come from the posterior predictive distribution, so they reflect both the uncertainty about the curve
        and the randomness of the event given the curve. A draw beyond the training range is infinite. With several
        causes it is the time of the first event of any cause.
        """
        return self._predictor(X).event_time(X)

    def predict_rmst(self, X: Any, horizon: float) -> Prediction:
        """Predict the restricted mean survival time: the mean time without the event up to `horizon`."""
        return self._predictor(X).rmst(X, horizon)

    def predict_difference(
        self, X_a: Any, X_b: Any, times: Any = None, *, horizon: float | None = None, cause: Any = None
    ) -> Prediction:
        """Predict differences between people, from joint draws.

        Parameters
        ----------
        X_a, X_b : DataFrame or array-like of shape (n, d)
            People to compare row by row; X_b may be a single row.
        times : array-like of shape (T,), optional
            Compare survival at these times, or …
        horizon : float, optional
            … the restricted mean survival time up to here.
        cause : int or str, optional
            With several causes: compare the cumulative incidence of this one in place of survival, or the restricted
            mean time lost to it.

        Returns
        -------
        Prediction
            a − b.
        """
        if cause is not None:
            cause_number(cause, self.causes_)
            return self._by_cause(X_a, X_b).difference(X_a, X_b, times, horizon, cause)
        return self._predictor(X_a, X_b).difference(X_a, X_b, times, horizon)

    def predict_survival_path(
        self, X: Any, times: Any, *, entry: Any = None, time: Any = None, id: Any = None
    ) -> Prediction:
        """Predict survival of subjects whose covariates change, along given episodes.

        Parameters
        ----------
        X : DataFrame or array-like of shape (N, d)
            One row for each episode; those of a subject must follow each other without a gap.
        times : array-like of shape (T,)
            Times up to the end of every subject's last episode. Survival is 1 at the start of the first.
        entry, time, id : str or array-like of shape (N,), optional
            Start and end of the episodes and their subjects; the column names used in `fit` if not given.
        """
        predictor = self._predictor(X)
        frame = as_frame(X)
        parts = {}
        for key, given in (("entry", entry), ("time", time), ("id", id)):
            given = self.columns_.get(key) if given is None else given
            if given is None:
                raise InputError(f"{key} is not given, and no column of that role was named in fit.")
            if isinstance(given, str):
                check_known(given, list(frame.columns), what="column")
            parts[key] = np.asarray(frame[given] if isinstance(given, str) else given)
            require_rows(len(frame), key, len(parts[key]))
        ends = Outcome.from_arrays(parts["time"], np.zeros(len(frame), dtype=bool), parts["entry"])
        return predictor.path_survival(X, times, parts["id"], ends.entry, ends.time)

    def predict(self, X: Any) -> np.ndarray:
        """Return a risk score, the expected share of the time to the last training time that is lost: higher is worse.

        With several causes it is the time lost to all of them together; :meth:`predict_rmtl` has that of each.

        It is 1 minus the restricted mean survival time divided by that time, so that people are ranked by how long they
        are expected to go without the event, also where hazards cross.
        """
        means = self._means(X)
        return np.asarray(1 - means.rmst(X, self.time_scale_) / self.time_scale_)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return Antolini's concordance index of the posterior mean curves: 0.5 is chance, 1 is perfect.

        With several causes it is that of event-free survival, for which any event counts;
        :func:`neuralsurv.metrics.cause_concordance` is one for each cause.

        Parameters
        ----------
        X : DataFrame or array-like of shape (n, d)
            Covariates.
        y : as in `fit`
            Outcomes of the same rows. A row with late entry is compared only with events after its entry.
        sample_weight : array-like of shape (n,), optional
            Row weights, in place of those that y may hold; a pair of rows counts the product of its two.

        Notes
        -----
        The curves are predicted at the event times. If there are more than 128 different ones, 128 of them, evenly
        spread by rank from the first to the last, are used and the curves are linear between them, so that memory
        grows with the rows and not with rows × events.
        See :func:`neuralsurv.metrics.antolini_concordance`.
        """
        y = flags_of_any(y, self.causes_) if self.causes_ else y
        outcome = Outcome.from_any(y, weight=sample_weight)
        require_rows(len(as_frame(X)), "y", len(outcome))
        times = np.unique(outcome.time[outcome.event & (outcome.weight > 0)])
        if len(times) == 0:
            raise InputError(f"none of the {len(outcome)} rows has an event: the concordance index is not defined.")
        if len(times) > 128:
            times = times[np.linspace(0, len(times) - 1, 128).round().astype(int)]
        survival = self.predict_mean_survival(X, times).to_numpy()
        return antolini_concordance(
            outcome.time, outcome.event, survival, times, entry=outcome.entry, weight=outcome.weight
        )

    def predict_survival_function(self, X: Any, return_array: bool = False) -> np.ndarray:
        """Return one callable survival curve (posterior mean) for each row, as scikit-survival's estimators do.

        Parameters
        ----------
        X : DataFrame or array-like of shape (n, d)
            Covariates.
        return_array : bool
            Return the matrix of values at `unique_times_` instead.
        """
        return self._functions(MeanPredictor.survival, X, return_array)

    def predict_cumulative_hazard_function(self, X: Any, return_array: bool = False) -> np.ndarray:
        """Return one callable cumulative hazard for each row; see :meth:`predict_survival_function`."""
        return self._functions(MeanPredictor.cumulative_hazard, X, return_array)

    def _functions(self, predict: Any, X: Any, return_array: bool) -> np.ndarray:
        means = self._means(X)
        times = np.concatenate([[0.0], self.unique_times_])
        values = predict(means, X, times)
        if return_array:
            return np.asarray(values[:, 1:])
        curves = np.empty(len(values), dtype=object)
        curves[:] = [Curve(times, row) for row in values]
        return curves

    def to_inference_data(self, X: Any, y: Any, *, entry: Any = None, weight: Any = None) -> Any:
        """Return draws, pointwise log-likelihoods and posterior predictive times for ArviZ.

        Parameters
        ----------
        X : DataFrame or array-like of shape (N, d)
            Covariates.
        y : as in `fit`
            Outcomes of the same rows.
        entry, weight : array-like of shape (N,), optional
            Entry times and row weights.

        Returns
        -------
        xarray.DataTree
            With groups posterior (phi, theta), log_likelihood, posterior_predictive and observed_data (time), and
            constant_data (event, entry, weight).
        """
        from neuralsurv.prediction.interchange import inference_data

        return inference_data(self._predictor(X), X, Outcome.from_any(y, entry=entry, weight=weight))
