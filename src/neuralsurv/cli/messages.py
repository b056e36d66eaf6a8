"""Output of a command: results to standard output, everything else to standard error; or one JSON object.

Names and texts of files and tables are shown with their control characters escaped.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from neuralsurv.cli.options import Json, Quiet
from neuralsurv.names import printable

# JSON lets them stand as they are, and some terminals act on them.
_LATE_CONTROLS = re.compile("[\x7f-\x9f]")


class Messages:
    """Prints for a person, or one JSON object at the end for a program.

    `quiet` leaves out progress, and notes except those that are always shown, as warnings are.
    """

    def __init__(self, *, quiet: Quiet = False, json: Json = False) -> None:
        self.machine = json
        self.quiet = quiet or json
        self.notes: list[str] = []
        self.warnings: list[str] = []
        self._out = Console(highlight=False)
        self._error = Console(stderr=True, highlight=False)

    @property
    def progress(self) -> bool | str:
        """What to give as ``verbose`` to work that shows progress."""
        return False if self.quiet else "auto"

    def note(self, *texts: str, always: bool = False) -> None:
        """Report what was done without being asked; `always` also if quiet."""
        self.notes += texts
        if not self.quiet or (always and not self.machine):
            self._remark("note", "cyan", texts)

    def warn(self, *texts: str) -> None:
        """Report what may be wrong, each only once."""
        new = [text for text in dict.fromkeys(texts) if text not in self.warnings]
        self.warnings += new
        if not self.machine:
            self._remark("warning", "yellow", new)

    def _remark(self, kind: str, colour: str, texts: Iterable[str]) -> None:
        for text in texts:
            self._error.print(Text.assemble((f"{kind}: ", colour), printable(text, keep="\n")), soft_wrap=True)

    def say(self, text: str) -> None:
        """Print a result, for a person."""
        if not self.machine:
            self._out.print(Text(printable(text, keep="\n")), soft_wrap=True)

    def table(self, title: str, head: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: bool = False) -> None:
        """Print a table for a person; `numbers` sets all columns but the first to the right."""
        if self.machine:
            return
        shown = Table(title=Text(title, style="bold"), title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
        for place, name in enumerate(head):
            shown.add_column(Text(name), justify="right" if numbers and place else "left", overflow="fold")
        for row in rows:
            shown.add_row(*(Text(printable(cell)) for cell in row))
        self._out.print(shown)

    def result(self, **values: Any) -> None:
        """Print the JSON object, for a program."""
        if self.machine:
            content = {**values, "notes": self.notes, "warnings": self.warnings}
            self._out.file.write(as_json(content) + "\n")


def as_json(values: Any) -> str:
    """Return plain values as JSON; NaN and infinity, which JSON does not have, become null."""
    text = json.dumps(_finite(values), ensure_ascii=False, allow_nan=False)
    return _LATE_CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
