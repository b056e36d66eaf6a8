"""Draws in the form that ArviZ reads."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from neuralsurv.data.outcome import Outcome
from neuralsurv.data.table import require_rows
from neuralsurv.errors import InputError
from neuralsurv.posterior.gaussian import Draws
from neuralsurv.prediction.missing_values import over_imputations
from neuralsurv.prediction.predictor import Predictor


def inference_data(predictor: Predictor, X: Any, outcome: Outcome) -> Any:
    """Return an ``xarray.DataTree`` with one chain of independent draws.

    The log-likelihood is that of the rows in the user's unit of time, times the row weight. The posterior
    predictive time of a row is drawn given its entry and cut at the last training time, as an end of study would.
    """
    try:
        import arviz_base
    except ImportError as error:
        raise InputError("to_inference_data needs arviz-base: pip install 'neuralsurv[arviz]'.") from error
    x = predictor.encode(X)
    require_rows(len(x), "y", len(outcome))
    draws = predictor.draws()
    entry, time = predictor.scaled(outcome.entry), predictor.scaled(outcome.time)
    event = torch.from_numpy(outcome.event)
    blocks = []
    for part in torch.split(torch.arange(len(x)), 256):

        def compute(own: Draws, rows: Tensor, place: Tensor, part: Tensor = part) -> Tensor:
            which = part[place]
            return predictor.posterior.log_likelihood_draws(own, entry[which], time[which], event[which], rows)

        blocks.append(over_imputations(predictor.encoding, draws, x[part], compute))
    likelihood = torch.cat(blocks, dim=1).numpy()
    # The density of an event is per unit of time: convert it from scaled time to the user's unit.
    likelihood = (likelihood - outcome.event * np.log(predictor.time_scale)) * outcome.weight
    predicted = predictor.event_time_after(X, outcome.entry).draws
    predicted = np.minimum(predicted, np.maximum(predictor.time_scale, outcome.entry))
    return arviz_base.from_dict(
        {
            "posterior": {"phi": draws.phi.numpy()[None], "theta": draws.theta.numpy()[None]},
            "log_likelihood": {"time": likelihood[None]},
            "posterior_predictive": {"time": predicted[None]},
            # Only what is predicted is observed data: predictive checks look for a prediction of every variable there.
            "observed_data": {"time": outcome.time},
            "constant_data": {"event": outcome.event, "entry": outcome.entry, "weight": outcome.weight},
        },
        dims={"theta": ["parameter"], **{name: ["row"] for name in ("time", "event", "entry", "weight")}},
    )
