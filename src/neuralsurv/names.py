"""Names that a user typed, refused with the one that was probably meant; names made safe to print; counts in words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Any

from neuralsurv.errors import InputError

# Control characters, by which a name in a file could move the cursor, set a title or hide text, and those that turn the
# direction of writing.
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def printable(text: str, *, keep: str = "") -> str:
    r"""Return a text from a file or a table with control characters escaped as ``\x1b``, except those in `keep`."""
    return _CONTROLS.sub(lambda found: found[0] if found[0] in keep else repr(found[0])[1:-1], text)


def counted(count: float, what: str, many: str = "", *, form: str = "") -> str:
    """Return a number, formatted as in an f-string, with what it counts; the plural is `many`, or has an s."""
    return f"{count:{form}} {what if count == 1 else many or what + 's'}"


def suggestion(name: str, known: Iterable[str], sentence: str) -> str:
    """Return what comes after a semicolon: ``did you mean …?`` if a known name is close, and then a sentence."""
    by_lower = {other.casefold(): other for other in known}
    close = get_close_matches(name.casefold(), by_lower, n=1, cutoff=0.6)
    return f"did you mean {by_lower[close[0]]!r}? {sentence}" if close else sentence[0].lower() + sentence[1:]


def listed(names: Sequence[str], most: int = 20) -> str:
    """Return names separated by commas, only the first `most` if there are more."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def check_known(name: str, known: Sequence[Any], *, what: str, where: str = "") -> None:
    """Refuse an unknown name of a `what`, in the singular; `where` it came from stands in brackets after it."""
    if name not in known:
        place = f" ({where})" if where else ""
        names = [str(other) for other in known]
        meant = suggestion(name, names, f"The {what}s are {listed(names)}.")
        raise InputError(f"there is no {what} {name!r}{place}; {meant}")
