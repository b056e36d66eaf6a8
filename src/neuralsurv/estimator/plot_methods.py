"""The plot methods of the estimator: each predicts, then calls a function of :mod:`neuralsurv.prediction.plots`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from neuralsurv.data.frames import as_frame
from neuralsurv.data.outcome import Outcome
from neuralsurv.data.row_values import is_number
from neuralsurv.data.table import require_rows
from neuralsurv.errors import InputError
from neuralsurv.estimator.predict_methods import PredictMethods
from neuralsurv.names import check_known
from neuralsurv.prediction import plots
from neuralsurv.prediction.prediction import Prediction


class PlotMethods(PredictMethods):
    """Plots of a fitted model. Every method takes ``ax`` and returns the axes it drew on."""

    def _grid(self, times: Any, first: float = 0.0) -> np.ndarray:
        self._predictor()
        return np.linspace(first, self.time_scale_, 101) if times is None else np.asarray(times, dtype=float)

    def plot_survival(self, X: Any, times: Any = None, *, level: float = 0.9, ax: Any = None, **options: Any) -> Any:
        """Draw survival curves with their bands, over the training range unless `times` are given."""
        return self.predict_survival(X, self._grid(times)).plot(level, ax, **options)

    def plot_hazard(self, X: Any, times: Any = None, *, level: float = 0.9, ax: Any = None, **options: Any) -> Any:
        """Draw hazards with their bands."""
        grid = self._grid(times, first=self._predictor().time_scale / 200)
        return self.predict_hazard(X, grid).plot(level, ax, **options)

    def plot_cumulative_incidence(self, X: Any, times: Any = None, *, level: float = 0.9, ax: Any = None) -> Any:
        """Draw the cumulative incidences of all causes of one person, stacked: what is left above them is survival.

        The dotted lines are the interval of each sum. For the band of one cause alone, plot
        ``predict_cumulative_incidence(X, times, cause)``.
        """
        return plots.plot_stacked(self.predict_cumulative_incidence(X, self._grid(times)), level=level, ax=ax)

    def plot_elbo(self, *, ax: Any = None) -> Any:
        """Draw the evidence lower bound after each sweep."""
        self._predictor()
        return plots.plot_elbo(self.elbo_, ax=ax)

    def plot_calibration(self, X: Any, y: Any, time: float, *, groups: int = 5, ax: Any = None) -> Any:
        """Draw predicted against observed survival at one time, by groups of predicted survival.

        Parameters
        ----------
        X, y
            Rows to check, preferably not the training rows.
        time : float
            When survival is compared.
        groups : int
            Number of groups of equal size; the observed value of each is its Kaplan–Meier estimate, with a 90 %
            interval (log-minus-log, Greenwood).
        ax : Axes, optional
            Where to draw.
        """
        outcome = Outcome.from_any(y)
        predicted = self.predict_mean_survival(X, [time]).to_numpy()[:, 0]
        require_rows(len(predicted), "y", len(outcome))
        return plots.plot_calibration(predicted, outcome, time, groups, ax=ax)

    def plot_partial_dependence(
        self, X: Any, feature: str, *, horizon: float | None = None, grid: int = 21, level: float = 0.9, ax: Any = None
    ) -> Any:
        """Draw how the restricted mean survival time, averaged over the rows of X, depends on one covariate.

        Parameters
        ----------
        X : DataFrame
            The people to average over.
        feature : str
            A column of X.
        horizon : float, optional
            Horizon of the restricted mean; the last training time if not given.
        grid : int
            Number of values at which a numeric covariate is set (between its 2 % and 98 % quantiles).
        level : float
            Level of the band, which comes from joint draws.
        ax : Axes, optional
            Where to draw.
        """
        prediction = self.partial_dependence(X, feature, horizon=horizon, grid=grid)
        return plots.plot_partial_dependence(prediction, level=level, ax=ax)

    def partial_dependence(self, X: Any, feature: str, *, horizon: float | None = None, grid: int = 21) -> Prediction:
        """Predict the restricted mean survival time averaged over the rows of X, with one covariate set to values.

        Parameters as in :meth:`plot_partial_dependence`; the columns of the prediction are the values.
        """
        self._predictor()
        frame = as_frame(X)
        check_known(feature, list(frame.columns), what="column")
        column = frame[feature].dropna()
        if len(column) == 0:
            raise InputError(
                f"column {feature!r} has no value in the {len(frame)} rows of X; there is nothing to vary."
            )
        if is_number(column) and column.nunique() > 2:
            values: Any = np.linspace(column.quantile(0.02), column.quantile(0.98), grid)
            kind: Any = np.float64
        else:
            values, kind = sorted(column.unique()), frame[feature].dtype
        limit = self.time_scale_ if horizon is None else float(horizon)
        averages = []
        for value in values:
            changed = frame.copy()
            changed[feature] = pd.Series([value] * len(frame), frame.index).astype(kind)
            averages.append(self.predict_rmst(changed, limit).average())
        cube = np.stack(averages, axis=-1)
        name = f"restricted mean survival time to {limit:g}"
        index, columns = pd.Index(["average"]), pd.Index(values, name=feature)
        extrapolated = np.full(len(values), limit > self.time_scale_)
        return Prediction(name, index, columns, extrapolated, len(cube), lambda: iter([cube]))
