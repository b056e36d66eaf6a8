"""A table and its outcome, in any of the forms in which a fit takes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from neuralsurv.data.episodes import as_subjects
from neuralsurv.data.frames import as_frame
from neuralsurv.data.outcome import Outcome
from neuralsurv.errors import InputError


def require_rows(rows: int, name: str, count: int) -> None:
    """Refuse an array that has not one value for each row of X."""
    if rows != count:
        raise InputError(f"X has {rows} rows but {name} has {count}; both need one for each row.")


def read_table(
    X: Any, y: Any, given: dict[str, Any]
) -> tuple[pd.DataFrame, Outcome, np.ndarray | None, dict[str, str]]:
    """Return covariates, outcome, subjects and the names of the columns that are no covariates.

    Parameters
    ----------
    X, y
        As in `NeuralSurv.fit`.
    given : dict
        What `fit` was given as time, event, entry, weight and id: a name of a column of X, an array, or None.
    """
    frame = as_frame(X)
    named = {role: name for role, name in given.items() if isinstance(name, str)}
    for name in named.values():
        if name not in frame.columns:
            raise InputError(f"there is no column {name!r}; the columns are {', '.join(map(str, frame.columns))}.")
    values = {role: frame[named[role]] if role in named else value for role, value in given.items()}
    if y is not None:
        if given["time"] is not None or given["event"] is not None:
            raise InputError("the outcome is given twice: as y, and as time and event; give one of them.")
        outcome = Outcome.from_any(y, entry=values["entry"], weight=values["weight"])
    elif given["time"] is None or given["event"] is None:
        raise InputError(
            "NeuralSurv requires y to be passed, but the target y is None; or name the columns of X that hold "
            "the outcome: fit(df, time='days', event='died')."
        )
    else:
        roles = ("time", "event", "entry", "weight")
        columns = [values[role] for role in roles]
        outcome = Outcome.from_arrays(*columns, names=[named.get(role, role) for role in roles])
    require_rows(len(frame), "y", len(outcome))
    subject = None if values["id"] is None else as_subjects(values["id"])
    if subject is not None:
        require_rows(len(frame), "id", len(subject))
    covariates = frame.drop(columns=list(named.values()))
    if covariates.shape[1] == 0:
        raise InputError(f"X has 0 feature(s) (shape=({len(frame)}, 0)) while a minimum of 1 is required.")
    return covariates, outcome, subject, named
