"""An event column with several causes: which value means which, and which one is censoring."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from neuralsurv.data.outcome_advice import MOST_CODES, is_word, plain_form
from neuralsurv.data.row_values import as_numbers, as_vector, check_finite
from neuralsurv.errors import InputError
from neuralsurv.names import counted, listed, suggestion

# Words that are read as censoring, in their plain form.
_CENSORING = {"censored", "censoring", "censor", "cens", "right-censored", "none", "noevent", "event-free", "alive",
              "0"}  # fmt: skip
# Words of a flag, which are no names of causes.
_FLAGS = {"true", "false", "yes", "no"}
_MOST_SHOWN = 6


@dataclass(frozen=True)
class CauseColumn:
    """How an event column with several causes was read."""

    event: np.ndarray  # bool, whether the row ends with an event, shape (N,)
    cause: np.ndarray  # the number of its cause, 0 where there is none, shape (N,)
    names: tuple[int | str, ...]  # the causes, K of them
    censoring: str  # the value that means censoring


def read_causes(values: Any, name: str) -> CauseColumn | None:
    """Read a column of causes: whole numbers with 0 for censoring, or names with a recognised word for it.

    None where the column has one cause, or is none of these: it is then read, or refused, as one of event flags.
    """
    label = f"column {name!r}"
    declared = list(values.dtype.categories) if isinstance(getattr(values, "dtype", None), pd.CategoricalDtype) else []
    array = as_vector(values, label)
    if array.dtype == np.bool_ or np.asarray(pd.isna(array)).any():
        return None
    if array.dtype.kind in "OU" and any(isinstance(value, str) and is_word(value) for value in array):
        return _read_words(array.astype(str), [str(value) for value in declared], name)
    return _read_codes(as_numbers(array, label), name)


def _read_codes(numbers: np.ndarray, name: str) -> CauseColumn | None:
    found = np.unique(numbers)
    if not np.isfinite(found).all() or not 2 < len(found) <= MOST_CODES + 1:
        return None
    bad = [value for value in found if value < 0 or value % 1]
    if bad:
        raise InputError(
            f"column {name!r} holds {bad[0]:g} among {len(found)} different values; causes are whole numbers from 1, "
            "and 0 is censoring. Correct these rows, or name the causes and write 'censored'."
        )
    if found[0] != 0:
        listed = ", ".join(f"{value:g}" for value in found)
        raise InputError(
            f"column {name!r} holds {listed} and no 0, so that nothing says which of them is censoring. Name them, for "
            f"example df[{name!r}] = df[{name!r}].map({{{found[0]:g}: 'censored', {found[1]:g}: 'relapse', …}}); "
            + _if_none(name)
        )
    codes = found[1:]
    event = numbers != 0
    cause = np.where(event, np.searchsorted(codes, numbers), 0)
    return CauseColumn(event, cause, tuple(int(code) for code in codes), "0")


def _read_words(words: np.ndarray, declared: Sequence[str], name: str) -> CauseColumn | None:
    found = sorted(set(words.tolist()))
    every = sorted({*found, *declared})
    if not 2 < len(every) <= MOST_CODES + 1:
        return None
    plain: dict[str, str] = {}
    for value in found:
        other = plain.setdefault(plain_form(value), value)
        if other != value:
            raise InputError(
                f"column {name!r} holds {other!r} and {value!r}, written differently only in case, spaces, accents or "
                f"zeros; write them alike: df[{name!r}] = df[{name!r}].replace({value!r}, {other!r})."
            )
    censoring = [value for value in every if plain_form(value) in _CENSORING]
    if not censoring:
        raise InputError(
            f"column {name!r} holds {_shown(found)}, and none of these is known to mean censoring. Write 'censored' "
            f"for it, for example df[{name!r}] = df[{name!r}].replace({found[0]!r}, 'censored'); " + _if_none(name)
        )
    if len(censoring) > 1:
        raise InputError(
            f"column {name!r} holds {_shown(censoring)}, which may all mean censoring; write 'censored' for those that "
            "do, and another name for a cause."
        )
    names = tuple(value for value in found if value != censoring[0])
    flags = [value for value in names if not is_word(value) or plain_form(value) in _FLAGS]
    if flags:
        raise InputError(
            f"column {name!r} holds {_shown(flags)} beside names of causes ({_shown([*names, censoring[0]])}), so "
            "that it is not clear what they mean; give every cause a name."
        )
    event = words != censoring[0]
    return CauseColumn(event, np.where(event, np.searchsorted(names, words), 0), names, censoring[0])


def _shown(values: Sequence[str]) -> str:
    more = len(values) - _MOST_SHOWN
    return ", ".join(map(repr, values[:_MOST_SHOWN])) + (f" and {more} more" if more > 0 else "")


def _if_none(name: str) -> str:
    return (
        f"if no row is censored, say so: pd.Categorical(df[{name!r}], categories=['censored', …]), with all names of "
        "causes in place of the dots."
    )


def causes_note(name: str, causes: dict[Any, int], censoring: str, censored: int) -> str:
    """Return a sentence on how the values of an event column were read, with the rows that hold each."""
    shown = ", ".join(f"{cause} ({counted(count, 'row')})" for cause, count in causes.items())
    rows = counted(censored, "row")
    return f"column {name!r} was read as {len(causes)} causes: {shown}; {censoring} ({rows}) is censoring."


def cause_number(cause: Any, causes: Sequence[int | str]) -> int:
    """Return the number of a cause; refuse one that is not known."""
    if not causes:
        raise InputError(
            f"cause={cause!r} does nothing: the model was fitted to one cause of events. Leave it out; the cumulative "
            "incidence is 1 - predict_survival(…)."
        )
    known = [str(name) for name in causes]
    # 1, 1.0 and '1' are the same cause: a command line has texts only.
    text = f"{cause:g}" if isinstance(cause, float | np.floating) else str(cause)
    if text not in known:
        meant = suggestion(text, known, f"The causes are {listed(known)}.")
        raise InputError(f"there is no cause {cause!r}; {meant}")
    return known.index(text)


def require_one_cause(causes: Collection[int | str], what: str) -> None:
    """Refuse a model of several causes where only one is known; `what` is the subject of the message."""
    if causes:
        names = ", ".join(map(str, causes))
        raise InputError(
            f"{what} knows models of one cause of events, and this one has {len(causes)} ({names}). Fit one of them, "
            f"with all others censored: event=df[event] == {next(iter(causes))!r}, or --event-value on the command "
            "line. `predict` knows all causes."
        )


@dataclass(frozen=True)
class CauseFlags:
    """The events of one cause among others."""

    event: np.ndarray  # bool, whether the row ends with an event of any cause, shape (N,)
    own: np.ndarray  # bool, whether it ends with one of this cause, shape (N,)


def any_event(values: Any, name: str) -> np.ndarray:
    """Return whether each row of a column of causes, or of flags, has an event; bool, shape (N,)."""
    return ~np.isin(_plain_forms(values, name), list(_CENSORING))


def flags_of_any(y: Any, causes: Collection[int | str]) -> Any:
    """Return an outcome whose events may be of known causes, or flags, with flags of any event; not all need to occur.

    Of the forms of y, a pair or triple that ends with the event, and a frame with a column event, can hold causes.
    """
    if isinstance(y, tuple) and y:
        return (*y[:-1], _any_known(y[-1], causes))
    if isinstance(y, pd.DataFrame) and "event" in y:
        return y.assign(event=_any_known(y["event"], causes))
    return y


def _any_known(values: Any, causes: Collection[int | str]) -> np.ndarray:
    found = any_event(values, "event")
    words = _plain_forms(values, "event")
    unknown = sorted(set(words[found].tolist()) - {plain_form(str(cause)) for cause in causes} - {"1"})
    if unknown:
        raise InputError(
            f"column 'event' holds {_shown(unknown)}; the causes of the model are {', '.join(map(str, causes))}, and 0 "
            "or 'censored' is censoring."
        )
    return found


def cause_flags(values: Any, cause: Any, name: str) -> CauseFlags:
    """Read the events of one cause from a column of causes, for scores of rows in which not every cause needs to occur.

    0, False and the words that :func:`read_causes` knows are censoring; every other value is a cause.
    """
    event, words = any_event(values, name), _plain_forms(values, name)
    own = event & (words == plain_form(str(cause)))
    if not own.any():
        found = ", ".join(sorted(set(words[event].tolist()))[:_MOST_SHOWN]) or "none"
        raise InputError(f"no row of column {name!r} has an event of cause {cause!r}; the causes in it are: {found}.")
    return CauseFlags(event, own)


def _plain_forms(values: Any, name: str) -> np.ndarray:
    array = as_vector(values, f"column {name!r}")
    check_finite(np.where(pd.isna(array), np.nan, 0.0), name)
    flags = array.dtype == np.bool_
    return np.array([plain_form(str(value)) for value in (array.astype(int) if flags else array)])
