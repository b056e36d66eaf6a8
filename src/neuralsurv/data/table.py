"""A table and its outcome, in any of the forms that `fit` accepts."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd

from neuralsurv.data.frames import as_frame
from neuralsurv.data.outcome import Outcome
from neuralsurv.data.row_values import as_vector
from neuralsurv.errors import InputError
from neuralsurv.names import check_known, counted

# What pandas calls a column without a name in the header.
_UNNAMED = re.compile(r"(Unnamed: \d+(\.\d+)*|)$")


def require_rows(rows: int, name: str, count: int) -> None:
    """Refuse an array that does not have one value for each row of X."""
    if rows != count:
        raise InputError(f"X has {counted(rows, 'row')} but {name} has {count}; both need one for each row.")


def numbers_rows(values: pd.Series) -> bool:
    """Return whether a column holds 0 to N - 1, or 1 to N, in order."""
    if len(values) < 2 or not pd.api.types.is_integer_dtype(values.dtype) or values.isna().any():
        return False
    return bool(values.iloc[0] in (0, 1) and (np.diff(values.to_numpy(dtype=np.int64)) == 1).all())


def _refuse_row_numbers(frame: pd.DataFrame) -> None:
    """Refuse the column that pandas makes of row numbers which were written to a file and not read back as such."""
    for name in frame.columns:
        if isinstance(name, str) and _UNNAMED.match(name) and numbers_rows(frame[name]):
            raise InputError(
                f"column {name!r} numbers the {len(frame)} rows and is not a covariate; leave it out: "
                f"df = df.drop(columns={name!r}), or read the file with pd.read_csv(…, index_col=0). If it is one, "
                "give it a name."
            )


def separate_outcome(
    X: Any, y: Any, given: dict[str, Any]
) -> tuple[pd.DataFrame, Outcome, np.ndarray | None, dict[str, str]]:
    """Return covariates, outcome, subjects, and by role the names of the columns that are not covariates.

    `given` are the arguments time, event, entry, weight and id of `fit`: the name of a column of X, an array, or None.
    """
    frame = as_frame(X)
    named = {role: name for role, name in given.items() if isinstance(name, str)}
    for name in named.values():
        check_known(name, list(frame.columns), what="column")
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
    subject = None if values["id"] is None else as_vector(values["id"], "id")
    if subject is not None:
        require_rows(len(frame), "id", len(subject))
    covariates = frame.drop(columns=list(named.values()))
    _refuse_row_numbers(covariates)
    if covariates.shape[1] == 0:
        raise InputError(f"X has 0 feature(s) (shape=({len(frame)}, 0)) while a minimum of 1 is required.")
    return covariates, outcome, subject, named
