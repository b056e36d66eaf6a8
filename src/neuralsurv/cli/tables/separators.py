"""The separator between the cells of a text file."""

from __future__ import annotations

import csv
import io

_CANDIDATES = (",", ";", "\t", "|")
_ROWS = 50
# Only this much of a large file is examined.
_HEAD = 2**18


def guess_separator(text: str, usual: str) -> str:
    r"""Return the separator that cuts the first rows into most cells, the same number in each; else the usual one.

    Examples
    --------
    >>> from neuralsurv.cli.tables.separators import guess_separator
    >>> guess_separator("age;dose\n61;1,5\n", ","), guess_separator("age\n61\n", ",")
    (';', ',')
    """
    found = {candidate: _cells(text, candidate) for candidate in _CANDIDATES}
    best = max(found.values())
    return usual if found.get(usual, 0) == best or best < 2 else next(c for c in _CANDIDATES if found[c] == best)


def typed_separator(text: str) -> str:
    r"""Return the separator that a user typed, for whom ``\t`` is a tab."""
    return text.replace("\\t", "\t")


def shown_separator(separator: str) -> str:
    """Return a separator as it is typed in a shell."""
    return "'" + separator.replace("\t", "\\t") + "'"


def _cells(text: str, separator: str) -> int:
    """Return how many cells all of the first rows have, 0 if they differ."""
    head = text[:_HEAD]
    try:
        rows = [row for row in csv.reader(io.StringIO(head, newline=""), delimiter=separator) if row]
    except csv.Error:
        return 0
    if len(head) < len(text) and len(rows) > 1:
        # The last one has been cut.
        rows.pop()
    rows = rows[:_ROWS]
    return len(rows[0]) if rows and all(len(row) == len(rows[0]) for row in rows) else 0
