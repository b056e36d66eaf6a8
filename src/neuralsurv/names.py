"""Names that a user typed: found, or refused with the one that was probably meant."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from neuralsurv.errors import InputError

_MOST_NAMES = 20


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return ``did you mean …? `` with a space after it, or nothing."""
    by_lower = {other.casefold(): other for other in known}
    close = get_close_matches(name.casefold(), by_lower, n=1, cutoff=0.6)
    return f"did you mean {by_lower[close[0]]!r}? " if close else ""


def listed(names: Sequence[str]) -> str:
    """Return names in one line, the first few if there are many."""
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def check_known(name: str, known: Sequence[str], *, what: str, where: str = "") -> None:
    """Refuse a name that is not known.

    Parameters
    ----------
    name : str
        What the user typed.
    known : sequence of str
        What there is.
    what : str
        What is named, in the singular: ``"column"``.
    where : str
        Where the name came from, in brackets after it, for example an option.
    """
    if name not in known:
        place = f" ({where})" if where else ""
        raise InputError(
            f"there is no {what} {name!r}{place}; {suggestion(name, known)}The {what}s are {listed(known)}."
        )
