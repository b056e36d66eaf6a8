"""Tables written to files, in the same formats as they are read from."""

from __future__ import annotations

import csv
import gzip
import io
from pathlib import Path
from typing import Any

import pandas as pd

from neuralsurv.cli.output_files import replacing
from neuralsurv.cli.tables.table_input import table_kind

# With those that East Asian keyboards type.
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


def csv_text(frame: pd.DataFrame, *, separator: str = ",", digits: str | None = None) -> str:
    """Return a table as CSV that a spreadsheet shows and does not compute.

    A text that begins like a formula (``=``, ``+``, ``-``, ``@``, a tab or a line break) gets a single quote before it,
    as OWASP advises, in cells and in the header. Numbers stay as they are. `digits` is a format such as ``"%.6g"``.
    """
    text = [
        pd.api.types.is_object_dtype(dtype) or isinstance(dtype, pd.CategoricalDtype | pd.StringDtype)
        for dtype in frame.dtypes
    ]
    safe = pd.DataFrame(
        {
            place: frame.iloc[:, place].astype(object).map(_inert) if is_text else frame.iloc[:, place]
            for place, is_text in enumerate(text)
        }
    )
    header = [_inert(name) for name in frame.columns]
    options: dict[str, Any] = {"index": False, "header": header, "sep": separator, "float_format": digits}
    written = str(safe.to_csv(**options))
    # Unquoted, a carriage return inside a text begins a new line for many programs, and with it a new cell.
    return str(safe.to_csv(**options, quoting=csv.QUOTE_NONNUMERIC)) if "\r" in written else written


def _inert(value: Any) -> Any:
    """Return a text that no spreadsheet takes for a formula."""
    if not isinstance(value, str) or not value.startswith(_FORMULA_STARTS):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value


def write_table(frame: pd.DataFrame, path: Path, *, force: bool) -> None:
    """Write a table, whole or not at all, in the kind that the name of the file says."""
    kind, zipped = table_kind(path)
    buffer = io.BytesIO()
    if kind == "parquet":
        frame.to_parquet(buffer, index=False)
    elif kind == "feather":
        frame.reset_index(drop=True).to_feather(buffer)
    else:
        buffer.write(csv_text(frame, separator="\t" if kind == "tsv" else ",").encode("utf-8"))
    data = gzip.compress(buffer.getvalue(), mtime=0) if zipped else buffer.getvalue()
    with replacing(path, force=force) as temporary:
        temporary.write_bytes(data)
