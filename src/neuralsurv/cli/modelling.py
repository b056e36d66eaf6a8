"""The estimator as commands use it: its arguments checked by name, its warnings collected."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from neuralsurv.cli.config import check_settings
from neuralsurv.cli.messages import Messages
from neuralsurv.cli.tables.survival_table import SurvivalTable
from neuralsurv.data.features import Encoding
from neuralsurv.errors import CausesWarning, MissingCodeWarning, NeuralSurvWarning
from neuralsurv.estimator.base import SurvivalEstimator
from neuralsurv.estimator.model_file import load
from neuralsurv.estimator.neuralsurv import NeuralSurv
from neuralsurv.estimator.paper import PaperNeuralSurv
from neuralsurv.names import counted

PRESETS: dict[str, type[NeuralSurv] | type[PaperNeuralSurv]] = {"default": NeuralSurv, "paper": PaperNeuralSurv}
# Files above this size (in bytes) are worth a warning.
LARGE_FILE = 100e6
_MANY_OUTPUTS = 20
# What a command sets itself, or cannot give.
_OURS = ("verbose", "warm_start", "network")


def make_estimator(given: dict[str, Any], **more: Any) -> SurvivalEstimator:
    """Return the estimator of the arguments of a command line: the preset and its parameters, names checked.

    The seed is 0 if not given; `more` are parameters that the command sets itself.
    """
    check_settings(given)
    values: dict[str, Any] = {"random_state": 0, **more}
    values |= {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
    return PRESETS[values.pop("preset", "default")](**values)


def shown_parameters(model: SurvivalEstimator) -> dict[str, Any]:
    """Return the parameters of an estimator that a user of a command can set."""
    return {name: value for name, value in model.get_params(deep=False).items() if name not in _OURS}


def warn_of_large_file(cohort: SurvivalTable, model: SurvivalEstimator, messages: Messages) -> None:
    """Say before a long fit that the file it ends in will be large, and what makes it so."""
    outcome = cohort.outcome()
    columns = Encoding.fit(cohort.covariates, outcome.risk_weight()).columns
    width = sum(len(column.outputs) for column in columns)
    size = model._file_bytes(len(outcome), int(outcome.event.sum()), width)
    if size > LARGE_FILE:
        widest = max(columns, key=lambda column: len(column.outputs))
        most = f", {len(widest.outputs)} of them from {widest.name!r}" if len(widest.outputs) > _MANY_OUTPUTS else ""
        # The default model has a network only if it was asked for; elsewhere --hidden would add one, and a larger file.
        network = ", or use a smaller network (--hidden)" if model.get_params(deep=False)["hidden"] else ""
        messages.warn(
            f"the model file will have up to about {size / 1e6:.0f} MB, since {counted(len(columns), 'covariate')} "
            f"{'becomes' if len(columns) == 1 else 'become'} {width} numbers{most}; leave columns out "
            f"(--drop){network}."
        )


def fit_estimator(cohort: SurvivalTable, model: SurvivalEstimator, messages: Messages) -> SurvivalEstimator:
    """Fit the estimator to a table, and pass its warnings on."""
    model.set_params(verbose=messages.progress)
    roles = dict(cohort.roles)
    weight = roles.pop("weight", None)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", NeuralSurvWarning)
        # Said already, with the option to add.
        warnings.simplefilter("ignore", MissingCodeWarning)
        warnings.simplefilter("ignore", CausesWarning)
        model.fit(cohort.frame, **roles, sample_weight=weight)
    for item in caught:
        if issubclass(item.category, NeuralSurvWarning):
            messages.warn(str(item.message))
    return model


def open_model(path: Path, messages: Messages) -> SurvivalEstimator:
    """Open a model file."""
    model = load(path)
    model.set_params(verbose=messages.progress)
    return model
