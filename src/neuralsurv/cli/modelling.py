"""The estimator as commands use it: its arguments checked by name, its warnings collected."""

from __future__ import annotations

import inspect
import warnings
from pathlib import Path
from typing import Any

from neuralsurv.cli.messages import Messages
from neuralsurv.cli.tables.survival_table import SurvivalTable
from neuralsurv.data.features import Encoding
from neuralsurv.errors import NeuralSurvWarning
from neuralsurv.estimator.fit_kinds import CHOICES
from neuralsurv.estimator.neuralsurv import NeuralSurv
from neuralsurv.inference.choices import resolve
from neuralsurv.inference.footprint import model_file_bytes
from neuralsurv.names import check_known

# Files above this size (in bytes) are worth a warning.
LARGE_FILE = 100e6
_MANY_OUTPUTS = 20
# What a command sets itself.
_OURS = ("self", "verbose", "warm_start")


def estimator_arguments(given: dict[str, Any]) -> dict[str, Any]:
    """Return arguments of the estimator, their names checked and the seed set."""
    known = [name for name in inspect.signature(NeuralSurv.__init__).parameters if name not in _OURS]
    for name in given:
        check_known(name, known, what="setting", where="--set or [model]")
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
    return {"random_state": 0, **values}


def warn_of_large_file(cohort: SurvivalTable, parameters: dict[str, Any], messages: Messages) -> None:
    """Say before a long fit that the file it ends in will be large, and what makes it so."""
    model = NeuralSurv(**parameters)
    chosen = {name: value for name, value in model.get_params().items() if name in CHOICES}
    outcome = cohort.outcome()
    columns = Encoding.fit(cohort.covariates, outcome.risk_weight()).columns
    width = sum(len(column.outputs) for column in columns)
    draws = int(model.draws) if model.inference in ("gibbs", "importance") else 0
    size = model_file_bytes(len(outcome), int(outcome.event.sum()), width, resolve(**chosen), draws)
    if size > LARGE_FILE:
        widest = max(columns, key=lambda column: len(column.outputs))
        most = f", {len(widest.outputs)} of them from {widest.name!r}" if len(widest.outputs) > _MANY_OUTPUTS else ""
        messages.warn(
            f"the model file will have up to about {size / 1e6:.0f} MB, since the {len(columns)} covariates become "
            f"{width} numbers{most}; leave columns out (--drop), or use a smaller network (--hidden 16)."
        )


def fitted(cohort: SurvivalTable, parameters: dict[str, Any], messages: Messages) -> NeuralSurv:
    """Fit the estimator to a table, and pass its warnings on."""
    model = NeuralSurv(**parameters, verbose=messages.progress)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", NeuralSurvWarning)
        model.fit(cohort.frame, **cohort.roles)
    for item in caught:
        if issubclass(item.category, NeuralSurvWarning):
            messages.warn(str(item.message))
    return model


def opened(path: Path, messages: Messages) -> NeuralSurv:
    """Open a model file."""
    from neuralsurv.estimator.model_file import load

    model = load(path)
    model.set_params(verbose=messages.progress)
    return model
