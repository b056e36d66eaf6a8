"""The result of a fit as one frozen object, which predictions, summaries, the service and model files take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

import numpy as np

from neuralsurv.data.features import Encoding
from neuralsurv.data.stream.survey import Survey
from neuralsurv.model.prior import Gamma, PointMass
from neuralsurv.posterior.diagnostics import Diagnostics
from neuralsurv.posterior.gaussian import Posterior
from neuralsurv.posterior.mean_curves import MeanCurves, mean_curves

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
        The distinct training times (their quantiles, if there are more than 1,000).
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
    causes : dict of int or str to int
        The causes of events with their numbers of training events, the most frequent first; empty with one cause.
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
    causes: dict[int | str, int] = field(default_factory=dict)

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields: what is computed from them is not pickled."""
        return {part.name: getattr(self, part.name) for part in fields(self)}

    @cached_property
    def mean_curves(self) -> MeanCurves | None:
        """Posterior means of curves without many draws; None for a model that has no such shortcut."""
        return mean_curves(self.posterior)

    @classmethod
    def of(
        cls,
        survey: Survey,
        encoding: Encoding,
        posterior: Posterior,
        phi_prior: Gamma | PointMass,
        trace: Sequence[float] | np.ndarray,
        diagnostics: Diagnostics,
        *,
        roles: dict[str, str],
        named: bool,
        draw_seed: int,
        causes: dict[int | str, int] | None = None,
    ) -> Fitted:
        """Return the result of a fit to the rows of a survey."""
        times = survey.times.time
        if len(times) > _MOST_TIMES:
            times = np.quantile(times, np.linspace(0, 1, _MOST_TIMES))
        quartiles = survey.event_times.quantiles((0.25, 0.5, 0.75))
        counts = {name: getattr(survey, name) for name in ("rows", "events", "truncated", "weighted_events")}
        rows = (encoding, survey.last_time, times, quartiles)
        own = causes or {}
        return cls(posterior, phi_prior, *rows, np.array(trace), diagnostics, counts, roles, named, draw_seed, own)
