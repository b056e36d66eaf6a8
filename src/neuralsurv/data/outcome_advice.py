"""Advice for outcomes that cannot be used as they are: R's event codes, words, times of 0."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

import numpy as np

# Words that are usual for an event and for its absence; they only choose the example in a message.
_EVENT = {"yes", "y", "dead", "died", "death", "deceased", "event", "true", "t", "relapse", "relapsed", "failure",
          "failed", "churned", "ja", "oui", "si", "sim", "tot", "gestorben", "decede", "muerto"}  # fmt: skip
_NO_EVENT = {"no", "n", "alive", "living", "censored", "censor", "cens", "none", "false", "f", "lost", "nein", "non",
             "nao", "lebend", "vivant", "vivo", "unknown", "?"}  # fmt: skip
# A code that means the event is one of a few values.
MOST_CODES = 10
# Times closer than this share of the largest are one time, written with different rounding.
_ROUNDING = 1e-9


def plain_form(value: str) -> str:
    """Return a text without case, spaces and accents, and a number without superfluous zeros.

    Two values of an event column with the same plain form are one value, of which one is misspelt.
    """
    # Compatibility forms first: a full-width letter or a no-break space is the usual one.
    decomposed = unicodedata.normalize("NFKD", unicodedata.normalize("NFKC", value).casefold())
    text = "".join(letter for letter in decomposed if not (unicodedata.combining(letter) or _is_unseen(letter)))
    try:
        return f"{float(text):g}"
    except ValueError:
        return text


def _is_unseen(letter: str) -> bool:
    """Return whether a letter is a space, or takes none: a zero-width space, a soft hyphen, a byte order mark."""
    return letter.isspace() or unicodedata.category(letter) == "Cf"


def is_word(value: str) -> bool:
    """Return whether a text is neither blank nor a number."""
    try:
        float(value)
    except ValueError:
        return bool(value.strip())
    return False


def likely_events(values: Sequence[str]) -> list[str]:
    """Return the value that most likely means the event, in all its spellings; only for messages."""
    known = [value for value in values if plain_form(value) in _EVENT]
    others = [value for value in values if plain_form(value) not in _NO_EVENT]
    found = (known or others or list(values))[-1]
    return [value for value in values if plain_form(value) == plain_form(found)]


def words_advice(name: str, words: Sequence[str]) -> str:
    """Return the Python code that repairs an event column of words."""
    found = likely_events(words)
    test = f" == {found[0]!r}" if len(found) == 1 else f".isin({found!r})"
    return f"say which of them mean the event, for example df[{name!r}] = df[{name!r}]{test}"


def codes_advice(name: str, numbers: np.ndarray) -> str:
    """Return the Python code that repairs an event column with numbers other than 0 and 1."""
    found = np.unique(numbers)
    if len(found) > MOST_CODES:
        return f"it has {len(found)} different values and does not look like an event column; check the name"
    r = "R codes censored as 1 and the event as 2: " if found.tolist() == [1, 2] else ""
    return f"{r}say which value means the event, for example df[{name!r}] = df[{name!r}] == {found[-1]:g}"


def half_step(times: np.ndarray) -> float:
    """Return half of the smallest step between different times, of which 0 is one."""
    steps = np.diff(np.unique(np.concatenate([[0.0], times[times > 0]])))
    real = steps[steps > _ROUNDING * times.max(initial=0.0)]
    return float(real.min() / 2) if len(real) else 0.5


def zero_advice(name: str, times: np.ndarray) -> str:
    """Return the Python code that repairs times that are 0 or negative."""
    drop = f"Drop these rows: df = df[df[{name!r}] > 0]"
    if (times < 0).any():
        return f"{drop}; or correct them."
    step = half_step(times)
    return f"{drop}; or, if time is recorded in steps, add half a step: df.loc[df[{name!r}] == 0, {name!r}] = {step:g}."
