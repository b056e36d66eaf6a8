"""The three Cox-type methods of pycox: partial likelihood to stop by, and Breslow's curves.

The baseline is computed here and not by pycox, in double precision and with logarithms: the exponential of a log risk
above 88, which nothing keeps 1,000 epochs from reaching, is infinite in single precision. Below, the curves are those
of `predict_surv_df`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from scipy.special import logsumexp

from neuralsurv_bench.methods.interface import Floats, Rows, Settings, Split, Variant
from neuralsurv_bench.methods.pycox_training import (
    DROPOUT,
    EPOCHS,
    FAIR_RATE_BOUNDS,
    PATIENCE,
    PycoxModel,
    adam,
    as_input,
    mlp,
    pycox_models,
    pycox_session,
    rows_to_stop_by,
    train,
)

VARIANTS: dict[Variant, str] = {
    "as-published": "1,000 epochs without stopping; the curve is NaN before the first training time",
    "fair": (
        f"learning rate at most {FAIR_RATE_BOUNDS[1]:g}, stopped by the partial likelihood of the validation rows "
        f"(patience {PATIENCE} epochs, best weights restored); S = 1 before the first event, constant after the last"
    ),
}

LARGEST_EXPONENT = 700.0
"""The exponential of this is still a number."""
LARGEST_BLOCK = 2**19
"""Points at which the network is evaluated at once."""


@dataclass(frozen=True)
class LogRisk:
    """The network of a Cox-type model as g(t, x).

    Attributes
    ----------
    network : torch.nn.Module
        Takes covariates, and the scaled time too if `labels` is given.
    labels : object or None
        pycox's transform of time (CoxTime), or None where the log risk does not depend on time.
    """

    network: torch.nn.Module
    labels: Any

    def __call__(self, x: Floats, times: Floats) -> Floats:
        """Return the log risks, shape (len(x), len(times)), in evaluation mode."""
        covariates = torch.from_numpy(as_input(x))
        training = self.network.training
        self.network.eval()
        with torch.no_grad():
            if self.labels is None:
                values = self.network(covariates).expand(-1, len(times))
            else:
                scaled, _ = self.labels.transform(times, np.ones(len(times)))
                clock = torch.from_numpy(as_input(scaled)).reshape(-1, 1)
                # In blocks: a large cohort at all its event times would not fit into memory.
                step = max(1, LARGEST_BLOCK // max(1, len(times)))
                blocks = [
                    self.network(block.repeat_interleave(len(times), dim=0), clock.repeat(len(block), 1))
                    for block in torch.split(covariates, step)
                ]
                values = torch.cat(blocks).reshape(len(x), -1)
        self.network.train(training)
        log_risks: Floats = values.double().numpy()
        return log_risks


def log_baseline(rows: Rows, log_risk: LogRisk) -> tuple[Floats, Floats]:
    """Return the distinct event times and the logarithms of Breslow's hazard at them."""
    times, events = np.unique(rows.time[rows.event], return_counts=True)
    at_risk = rows.time[:, None] >= times
    total = logsumexp(np.where(at_risk, log_risk(rows.x, times), -np.inf), axis=0)
    return times, np.log(events) - total


def partial_likelihood_loss(rows: Rows, log_risk: LogRisk) -> float:
    """Return minus the mean over events of the log partial likelihood (Breslow's for ties)."""
    times, which = np.unique(rows.time[rows.event], return_inverse=True)
    values = log_risk(rows.x, times)
    at_risk = rows.time[:, None] >= times
    total = logsumexp(np.where(at_risk, values, -np.inf), axis=0)
    own = values[rows.event, which]
    return float(np.mean(total[which] - own))


@dataclass(frozen=True)
class CoxCurves:
    """A fitted Cox-type method.

    Attributes
    ----------
    log_risk : LogRisk
        The trained network.
    first : float
        The first training time, event or not.
    event_times : ndarray of shape (k,)
        Distinct event times of the training rows.
    log_hazard : ndarray of shape (k,)
        Logarithms of the baseline hazard at them.
    variant : {"as-published", "fair"}
        What the curve is before `first`.
    """

    log_risk: LogRisk
    first: float
    event_times: Floats
    log_hazard: Floats
    variant: Variant

    def survival(self, x: Floats, times: Floats) -> Floats:
        """Return S(t | x), shape (len(x), len(times))."""
        with pycox_session():
            exponents = self.log_risk(x, self.event_times) + self.log_hazard
        hazards = np.exp(np.minimum(exponents, LARGEST_EXPONENT))
        cumulative = np.cumsum(np.pad(hazards, ((0, 0), (1, 0))), axis=1)
        survival: Floats = np.exp(-cumulative)[:, np.searchsorted(self.event_times, times, side="right")]
        if self.variant == "as-published":
            survival[:, times < self.first] = np.nan
        return survival

    def risk(self, x: Floats) -> None:
        """Return None: the method has curves."""
        return None


@dataclass(frozen=True)
class CoxType:
    """Fits one Cox-type method of pycox.

    Attributes
    ----------
    model : str
        Name of the class in `pycox.models`.
    time_in_network : bool
        Whether the network takes the time too (CoxTime).
    """

    model: str
    time_in_network: bool = False

    def __call__(
        self, split: Split, settings: Settings, *, epochs: int = EPOCHS, patience: int = PATIENCE
    ) -> CoxCurves:
        """Fit on a split; the baseline hazard is that of the rows trained on."""
        with pycox_session():
            return self._fit(split, settings, epochs, patience)

    def _fit(self, split: Split, settings: Settings, epochs: int, patience: int) -> CoxCurves:
        models = pycox_models()
        published = settings.variant == "as-published"
        rows, stop_rows = (split.train, None) if published else rows_to_stop_by(split, settings.seed)
        labels = models.CoxTime.label_transform() if self.time_in_network else None
        target = (rows.time.astype(np.float32), rows.event.astype(np.float32))
        if labels is not None:
            target = labels.fit_transform(rows.time, rows.event)

        def make_model(rate: float) -> PycoxModel:
            if self.time_in_network:
                network = models.cox_time.MLPVanillaCoxTime(rows.x.shape[1], list(settings.hidden), dropout=DROPOUT)
            else:
                network = mlp(rows.x.shape[1], 1, settings.hidden, bias=False)
            return getattr(models, self.model)(network, adam(rate), "cpu")

        def validation_loss(model: PycoxModel, rows: Rows) -> float:
            return partial_likelihood_loss(rows, LogRisk(model.net, labels))

        model = train(
            make_model,
            as_input(rows.x),
            target,
            settings,
            validation_loss=None if stop_rows is None else partial(validation_loss, rows=stop_rows),
            epochs=epochs,
            patience=patience,
        )
        log_risk = LogRisk(model.net, labels)
        event_times, log_hazard = log_baseline(rows, log_risk)
        return CoxCurves(log_risk, float(rows.time.min()), event_times, log_hazard, settings.variant)
