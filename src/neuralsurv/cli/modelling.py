"""The estimator as commands use it: its arguments checked by name, its warnings collected."""

from __future__ import annotations

import inspect
import warnings
from pathlib import Path
from typing import Any

from neuralsurv.cli.cohort import CohortTable
from neuralsurv.cli.messages import Messages
from neuralsurv.errors import NeuralSurvWarning
from neuralsurv.estimator import NeuralSurv
from neuralsurv.names import check_known

# What a command sets itself.
_OURS = ("self", "verbose", "warm_start")


def estimator_arguments(given: dict[str, Any]) -> dict[str, Any]:
    """Return arguments of the estimator, their names checked and the seed set."""
    known = [name for name in inspect.signature(NeuralSurv.__init__).parameters if name not in _OURS]
    for name in given:
        check_known(name, known, what="setting", where="--set or [model]")
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
    return {"random_state": 0, **values}


def fitted(cohort: CohortTable, parameters: dict[str, Any], messages: Messages) -> NeuralSurv:
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
    from neuralsurv.model_file import load

    model = load(path)
    model.set_params(verbose=messages.progress)
    return model
