"""A table and its outcome, in any of the forms that `fit` accepts; episodes of subjects whose covariates change."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd

from neuralsurv.data.frames import as_frame
from neuralsurv.data.outcome import Outcome
from neuralsurv.data.row_values import as_vector, rows_phrase
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
        outcome = Outcome.from_any(y, entry=values["entry"], weight=values["weight"], several=True)
    elif given["time"] is None or given["event"] is None:
        raise InputError(
            "NeuralSurv requires y to be passed, but the target y is None; or name the columns of X that hold "
            "the outcome: fit(df, time='days', event='died')."
        )
    else:
        roles = ("time", "event", "entry", "weight")
        columns = [values[role] for role in roles]
        outcome = Outcome.from_arrays(*columns, names=[named.get(role, role) for role in roles], several=True)
    require_rows(len(frame), "y", len(outcome))
    subject = None if values["id"] is None else as_vector(values["id"], "id")
    if subject is not None:
        require_rows(len(frame), "id", len(subject))
    covariates = frame.drop(columns=list(named.values()))
    _refuse_row_numbers(covariates)
    if covariates.shape[1] == 0:
        raise InputError(f"X has 0 feature(s) (shape=({len(frame)}, 0)) while a minimum of 1 is required.")
    return covariates, outcome, subject, named


def check_episodes(subject: Any, entry: np.ndarray, time: np.ndarray, event: np.ndarray | None) -> np.ndarray:
    """Return the subjects as an array; none may be in two episodes at once, nor observed after its event."""
    who = as_vector(subject, "id")
    if len(who) != len(time):
        raise InputError(f"id has {counted(len(who), 'value')} for {counted(len(time), 'row')}; give one id per row.")
    gone = np.asarray(pd.isna(who))
    if gone.any():
        raise InputError(f"id is missing in {rows_phrase(gone)}; every episode needs the subject it belongs to.")
    try:
        codes = pd.factorize(who)[0]
    except TypeError as error:
        raise InputError(f"id cannot be compared: {error}; give a number or a text for each row.") from error
    order = np.lexsort((entry, codes))
    same = codes[order][1:] == codes[order][:-1]
    overlap = same & (entry[order][1:] < time[order][:-1])
    if overlap.any():
        row = order[1:][overlap][0]
        raise InputError(
            f"subject {_name(who[row])} has overlapping episodes: one starts at {entry[row]:g} (row {row}, counting "
            f"from 0) before the one before it ends; {counted(int(overlap.sum()), 'such pair')}. Correct the entry "
            "times."
        )
    if event is not None:
        after = same & event[order][:-1]
        if after.any():
            row = order[1:][after][0]
            raise InputError(
                f"subject {_name(who[row])} is observed after its event (row {row}, counting from 0); "
                f"{counted(int(after.sum()), 'such row')}. Only the last episode of a subject may end with the event."
            )
    return who


def _name(subject: Any) -> str:
    # The plain value: NumPy's own repr would say np.int64(7).
    return repr(subject.item() if isinstance(subject, np.number | np.str_) else subject)
