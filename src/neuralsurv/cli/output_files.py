"""Output files of a command, tables among them: never written over another by accident, and never half-written."""

from __future__ import annotations

import csv
import gzip
import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd

from neuralsurv.cli.tables.table_input import table_kind
from neuralsurv.errors import InputError
from neuralsurv.files.atomic import destination, held_name, obstacle, partial_file, put_in_place

# With those that East Asian keyboards type.
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


def check_new(path: Path, *, force: bool, inputs: tuple[Path | None, ...] = ()) -> Path:
    """Refuse, before any work is done, a place where a file cannot or must not be written.

    A file that is there may be replaced with `force`; one of `inputs`, which are read, never.
    """
    if path.is_dir():
        raise InputError(f"{str(path)!r} is a folder; name a file in it.")
    found = obstacle(path)
    if found is not None:
        raise InputError(f"{str(path)!r} is {found}, which is never replaced by a file; name a file.")
    for folder in (path.parent, destination(path).parent):
        if not folder.is_dir():
            raise InputError(f"the folder {str(folder)!r} does not exist; make it first.")
    for source in inputs:
        if source is not None and path.exists() and source.exists() and path.samefile(source):
            raise InputError(f"{str(path)!r} is also read by this command; write to another file.")
    if path.exists() and not force:
        raise InputError(f"{str(path)!r} exists already; choose another name, or add --force to replace it.")
    if not os.access(destination(path).parent, os.W_OK):
        raise InputError(f"the folder {str(destination(path).parent)!r} cannot be written to; choose another one.")
    return path


@contextmanager
def reserved(path: Path | None, *, force: bool, inputs: tuple[Path | None, ...] = ()) -> Iterator[None]:
    """Reserve the name of an output while the block runs; another command that wants the same one is refused.

    The system gives the name back when the process ends, however it does.
    """
    if path is None:
        yield
        return
    check_new(path, force=force, inputs=inputs)
    with held_name(destination(path)) as ours:
        if not ours:
            raise InputError(f"{str(path)!r} is being written by another command, or named twice; choose another name.")
        # It may have been made between the check and the hold.
        check_new(path, force=force, inputs=inputs)
        yield


@contextmanager
def replacing(path: Path, *, force: bool) -> Iterator[Path]:
    """Give a temporary file beside `path` to write to, and move it there at the end if nothing went wrong.

    Symbolic links are followed, and a file that is replaced (with `force`) keeps its mode.
    """
    target = destination(path)
    try:
        with partial_file(target.parent, private=target.exists()) as (temporary, file):
            yield temporary
            put_in_place(temporary, file, target, replace=force)
    except FileExistsError as error:
        raise InputError(f"{str(path)!r} was made by another program in the meantime, and was left alone.") from error
    except OSError as error:
        raise InputError(f"{str(path)!r} could not be written, and is as it was: {error}.") from error


def write_text(path: Path, text: str, *, force: bool) -> None:
    """Write a text file in UTF-8, whole or not at all."""
    with replacing(path, force=force) as temporary:
        temporary.write_text(text, encoding="utf-8")


def file_size(path: Path) -> str:
    """Return the size of a file in words."""
    size = path.stat().st_size
    return f"{size} bytes" if size < 1000 else f"{size / 1e3:.0f} kB" if size < 1e6 else f"{size / 1e6:.1f} MB"


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
