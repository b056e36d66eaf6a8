"""The store of a study: one line of JSON for each job that is done, so that a run that was stopped goes on."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def read_store(store: Path) -> list[dict[str, Any]]:
    """Return the stored records; a last line that was cut off while it was written counts as not done."""
    if not store.exists():
        return []
    records = []
    for line in store.read_text(encoding="utf-8").splitlines(keepends=True):
        if line.endswith("\n"):
            records.append(json.loads(line))
    return records


def append(store: Path, record: dict[str, Any]) -> None:
    """Add a line to the store and see it onto the disk; what a killed run left of a line is cut off first."""
    store.parent.mkdir(parents=True, exist_ok=True)
    with store.open("a+b") as lines:
        if lines.tell():
            lines.seek(0)
            whole = lines.read().rfind(b"\n") + 1
            lines.truncate(whole)
        lines.write(json.dumps(record).encode() + b"\n")
        lines.flush()
        os.fsync(lines.fileno())
