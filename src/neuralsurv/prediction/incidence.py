"""Several causes of events: cumulative incidences, hazards by cause, and the mean time that is lost to each."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from torch import Tensor

from neuralsurv.data.cause_values import cause_number
from neuralsurv.errors import InputError
from neuralsurv.posterior.competing import CompetingPosterior, incidences, time_lost
from neuralsurv.posterior.fitted import Fitted
from neuralsurv.posterior.gaussian import Draws
from neuralsurv.prediction.missing_values import over_imputations
from neuralsurv.prediction.prediction import Prediction
from neuralsurv.prediction.predictor import Predictor, check_horizon, check_pairs, check_times

CAUSE = "cause"


@dataclass(frozen=True)
class IncidencePredictor:
    """Predicts by cause, from the joint draws of all causes."""

    predictor: Predictor
    posterior: CompetingPosterior
    causes: tuple[int | str, ...]

    @classmethod
    def of(cls, predictor: Predictor, fitted: Fitted) -> IncidencePredictor:
        """Return the predictor by cause of a fitted model; refuse a model of one cause."""
        posterior = fitted.posterior
        if not isinstance(posterior, CompetingPosterior):
            raise InputError(
                "the model was fitted to one cause of events; the cumulative incidence is 1 - predict_survival(…). "
                "For several causes, give fit an event column with a number or a name for each."
            )
        return cls(predictor, posterior, tuple(fitted.causes))

    def of_cause(self, cause: Any) -> Predictor:
        """Return the predictor of the hazard of one cause."""
        return replace(self.predictor, posterior=self.posterior.of_cause(cause_number(cause, self.causes)))

    def cumulative_incidence(self, X: Any, times: Any, cause: Any = None) -> Prediction:
        """Probability of an event of a cause by times; of all causes, in columns (cause, time), without one."""
        values, chosen = check_times(times), self._chosen(cause)
        scaled = self.predictor.scaled(values)
        edges, which = self._edges(scaled)

        def compute(draws: Draws, x: Tensor, part: slice) -> Tensor:
            found = incidences(self._hazards(draws, edges, x))[chosen][..., which]
            return found.permute(1, 2, 0, 3).flatten(2)

        name = "cumulative incidence" + ("" if cause is None else f" of {self.causes[chosen[0]]}")
        columns: pd.Index = pd.Index(values, name="time")
        if cause is None:
            columns = pd.MultiIndex.from_product([list(self.causes), values], names=[CAUSE, "time"])
        beyond = np.tile(values > self.predictor.time_scale, len(chosen))
        points = self._points(edges)
        return self.predictor.predict(name, X, compute, points=points, columns=columns, extrapolated=beyond)

    def rmtl(self, X: Any, horizon: float, cause: Any = None) -> Prediction:
        """Mean time lost to a cause up to `horizon`; to each of them, in columns, without one."""
        limit, chosen = check_horizon(horizon), self._chosen(cause)
        edges = self.predictor.steps(limit)

        def compute(draws: Draws, x: Tensor, part: slice) -> Tensor:
            lost = time_lost(edges, self._hazards(draws, edges, x))[chosen]
            return lost.permute(1, 2, 0) * self.predictor.time_scale

        what = "restricted mean time lost" + ("" if cause is None else f" to {self.causes[chosen[0]]}")
        return self.predictor.predict(
            f"{what} to {limit:g}" if cause is None else f"{what} up to {limit:g}",
            X,
            compute,
            points=self._points(edges),
            columns=pd.Index(list(self.causes), name=CAUSE) if cause is None else None,
            extrapolated=limit > self.predictor.time_scale,
        )

    def difference(self, X_a: Any, X_b: Any, times: Any, horizon: float | None, cause: Any) -> Prediction:
        """Difference a − b of the cumulative incidence of a cause at times, or of the time lost to it, joint draws."""
        if (times is None) == (horizon is None):
            raise InputError(
                "give either times (difference of cumulative incidences) or horizon (difference of times lost)."
            )
        check_pairs(X_a, X_b)
        number, x_b = cause_number(cause, self.causes), self.predictor.encode(X_b)
        columns: pd.Index | None = None
        beyond: np.ndarray | bool
        if horizon is None:
            values = check_times(times)
            edges, which = self._edges(self.predictor.scaled(values))
            columns, beyond = pd.Index(values, name="time"), values > self.predictor.time_scale
        else:
            limit = check_horizon(horizon)
            edges, beyond = self.predictor.steps(limit), limit > self.predictor.time_scale

        def quantity(draws: Draws, x: Tensor) -> Tensor:
            if horizon is None:
                return incidences(self._hazards(draws, edges, x))[number][..., which]
            return time_lost(edges, self._hazards(draws, edges, x))[number][..., None] * self.predictor.time_scale

        def compute(draws: Draws, x: Tensor, part: slice) -> Tensor:
            return quantity(draws, x) - quantity(draws, x_b if len(x_b) == 1 else x_b[part])

        what = "cumulative incidence of" if horizon is None else "time lost to"
        name = f"difference of {what} {self.causes[number]}"
        points = 2 * self._points(edges)
        return self.predictor.predict(
            name, X_a, compute, points=points, columns=columns, extrapolated=beyond, other=x_b
        )

    def _chosen(self, cause: Any) -> list[int]:
        return list(range(len(self.causes))) if cause is None else [cause_number(cause, self.causes)]

    def _edges(self, scaled: Tensor) -> tuple[Tensor, Tensor]:
        """Return the edges of panels up to the last time, from 0, and the place of each time among them."""
        return self.posterior.network.panels(scaled)

    def _points(self, edges: Tensor) -> int:
        return 2 * len(self.causes) * self.posterior.points_per_person(edges)

    def _hazards(self, draws: Draws, edges: Tensor, x: Tensor) -> Tensor:
        """Return cumulative hazards of a block by cause at increasing edges from 0, shape (K, S, n, E)."""
        shared = self.posterior.on_times(draws, edges)
        parts = over_imputations(
            self.predictor.encoding, draws, x, lambda own, rows, _: shared.of_people(own.theta, rows)
        )
        return shared.by_cause(parts)
