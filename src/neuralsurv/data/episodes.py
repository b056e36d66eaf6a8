"""Episodes: the intervals (entry, time] of a subject whose covariates change, joined by a subject id."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from neuralsurv.data.row_values import as_vector, rows_phrase
from neuralsurv.errors import InputError
from neuralsurv.names import counted


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
