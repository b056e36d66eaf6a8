"""Text files and tables of the command line: any bytes become a table, or one of our errors."""

from __future__ import annotations

import gzip
import io
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
from fuzz_choices import ByteChoices
from fuzz_cohort import BrokenPromiseError, attempt

from neuralsurv.cli.options import DataSettings
from neuralsurv.cli.tables.covariate_checks import drop_unusable, remarks
from neuralsurv.cli.tables.survival_table import read_survival_table
from neuralsurv.cli.tables.table_input import read_table

_CELLS = (
    *("1", "2.5", "0", "3", "7", "", "NA", "nan", "a", "b", "-1", "1e300", "1e999", "inf", "-inf", " 4 ", '"q,x"', '"'),
    *(
        "1,5",
        "2020-02-29",
        "True",
        "false",
        "0x1F",
        "1_000",
        "９",
        "é",
        "\u202e",
        "😀",
        "1e-320",
        "99999999999999999999999",
    ),
    *(
        "NULL",
        "#N/A",
        "=1+1",
        "'",
        "\t",
        "a\x00b",
        '"a\nb"',
        "1.5.2",
        "١",
        "--",
        "None",
        "dead",
        "01",
        "+1",
        ".5",
        "5.",
    ),
)
_HEADS = (
    "time",
    "event",
    "x",
    "y",
    "größe",
    "",
    " z ",
    "time",
    "x.1",
    '"a,b"',
    "1",
    "event ",
    "\ufeffid",
    "entry",
    "weight",
)
_KINDS = (".csv", ".tsv", ".csv.gz", ".txt", ".parquet", ".feather", ".tab", ".xlsx", "")


@cache
def _arrow(kind: str) -> bytes:
    frame = pd.DataFrame({"time": [1.0, 2.0, 3.0], "event": [1, 0, 1], "x": ["a", "b", "a"]})
    buffer = io.BytesIO()
    frame.to_parquet(buffer) if kind == ".parquet" else frame.to_feather(buffer)
    return buffer.getvalue()


def _text(pick: ByteChoices) -> tuple[str, bytes]:
    separator = pick.one((*",,,,,,,,", "\t", "\t", ";", "|", " "))
    width = 2 + pick.below(4)
    tame = pick.below(2)
    heads = [("time", "event", "x", "y", "z", "w")[k] if tame else pick.one(_HEADS) for k in range(width)]
    lines = [separator.join(heads)]
    for _ in range(pick.below(8)):
        pool = _CELLS[:4] if pick.below(4) else _CELLS
        lines.append(separator.join(pick.one(pool) for _ in range(width + (pick.rarely(12)) - (pick.rarely(24)))))
    text = pick.one(("\n", "\r\n", "\n", "\r")).join(lines) + pick.one(("\n", "", "\n\n"))
    encoding = pick.one(("utf-8", "utf-8", "utf-8-sig", "utf-16", "latin-1", "cp1252"))
    return "table as text", text.encode(encoding, errors="replace")


def table(data: bytes) -> tuple[str, str, bytes, dict[str, Any]]:
    """Return what a file is, its ending, its content, and how it is read."""
    pick = ByteChoices(data)
    ending = pick.one((*[".csv"] * 8, *_KINDS))
    said, content = _text(pick)
    if pick.rarely(6):
        said, content = "any bytes", bytes(pick.below(256) for _ in range(pick.below(80)))
    if ending in (".parquet", ".feather"):
        said, content = "Arrow file, damaged", _arrow(ending)
    elif ending.endswith(".gz"):
        said, content = f"{said}, compressed", gzip.compress(content, mtime=0)
    if content and (ending in (".parquet", ".feather") or pick.rarely(6)):
        said = said if "damaged" in said else f"{said}, damaged"
        spot = (pick.below(256) * 256 + pick.below(256)) % len(content)
        junk = bytes(pick.below(256) for _ in range(pick.below(4)))
        content = content[:spot] if pick.rarely(4) else content[:spot] + junk + content[spot + len(junk) :]
    reading: dict[str, Any] = {}
    if pick.rarely(6):
        reading = pick.one(
            (
                *(
                    {"separator": ";"},
                    {"decimal": ","},
                    {"encoding": "latin-1"},
                    {"encoding": "none such"},
                    {"separator": "ab"},
                ),
                *(
                    {"missing": ("dead", "1")},
                    {"categorical": ("x",)},
                    {"separator": ""},
                    {"decimal": ",,"},
                    {"encoding": "utf-16"},
                ),
            )
        )
    return said, ending, content, reading


def read_file(ending: str, content: bytes, reading: dict[str, Any]) -> dict[str, int]:
    """Read a file as the command line does, with columns time and event."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        path = Path(folder) / f"cohort{ending}"
        path.write_bytes(content)
        plain = {
            name: value for name, value in reading.items() if name in ("separator", "decimal", "encoding", "missing")
        }
        frame, error = attempt(lambda: read_table(path, **plain))
        if error is not None:
            return {"refused": 1}
        names = list(frame.columns)
        if len(frame) == 0 or len(set(names)) < len(names) or not all(isinstance(name, str) for name in names):
            raise BrokenPromiseError("a table without rows, or with names that are no text or not different")
        settings = DataSettings(file=path, time="time", event="event", **reading)
        cohort, error = attempt(lambda: read_survival_table(settings))
        if error is not None:
            return {"table, no cohort": 1}
        _, error = attempt(cohort.outcome)
        attempt(lambda: (drop_unusable(cohort.covariates), remarks(cohort.covariates)))
        return {"cohort": 1} if error is None else {"cohort, outcome refused": 1}
