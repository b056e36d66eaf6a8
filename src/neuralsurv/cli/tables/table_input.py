"""Tables read from files: CSV, TSV, Parquet and feather, each also compressed by gzip."""

from __future__ import annotations

import csv
import gzip
import io
import warnings
import zlib
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pandas as pd

from neuralsurv.data.row_values import is_number
from neuralsurv.errors import InputError
from neuralsurv.names import check_known

# Not "None", "none" and the like: they are often a level, for example of a treatment.
MISSING = ("", "NA", "N/A", "n/a", "#N/A", "NaN", "nan", "null", "NULL")
_KINDS = {
    ".csv": "csv",
    ".txt": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".feather": "feather",
    ".arrow": "feather",
}
# What other programs write, and the function of pandas that reads it.
_FOREIGN = {
    ".xlsx": ("an Excel file", "read_excel"),
    ".xls": ("an Excel file", "read_excel"),
    ".xlsm": ("an Excel file", "read_excel"),
    ".ods": ("a spreadsheet", "read_excel"),
    ".dta": ("a Stata file", "read_stata"),
    ".sav": ("an SPSS file", "read_spss"),
    ".sas7bdat": ("a SAS file", "read_sas"),
}
# How a zipped and an old Excel file begin, whatever they are called.
_EXCEL = (b"PK\x03\x04", b"\xd0\xcf\x11\xe0")
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_SEPARATORS = (",", ";", "\t", "|")
# The separator is guessed from this many rows, and from this much of a large file.
_ROWS, _HEAD = 50, 2**18


def table_kind(path: Path) -> tuple[str, bool]:
    """Return csv, tsv, parquet or feather by the name of a file, and whether it is compressed."""
    zipped = path.suffix.lower() == ".gz"
    suffix = (path.with_suffix("") if zipped else path).suffix.lower()
    if suffix not in _KINDS:
        raise InputError(
            f"the kind of {path.name!r} is not known by its name; use .csv, .tsv, .parquet or .feather, with .gz after "
            "it if compressed."
        )
    return _KINDS[suffix], zipped


def is_text_file(path: Path) -> bool:
    """Return whether a table is text, in which decimal signs and separators can be named."""
    return table_kind(path)[0] in ("csv", "tsv")


def read_table(
    path: Path,
    *,
    text_columns: Collection[str] = (),
    missing: Collection[str] = (),
    separator: str | None = None,
    decimal: str | None = None,
    encoding: str | None = None,
    notes: list[str] | None = None,
) -> pd.DataFrame:
    """Read a table with at least one row, and columns named by different texts.

    Of a text file, `text_columns` are kept as they are written; `missing` are texts that mean a missing value, besides
    the empty cell, NA, N/A, NaN and null (``column=text`` for one column). The separator is guessed from the first
    lines if it is not given, and `notes` gets a sentence on that; otherwise the defaults are a decimal point and UTF-8.
    """
    if path.suffix.lower() in _FOREIGN:
        raise _foreign(path, *_FOREIGN[path.suffix.lower()])
    kind, zipped = table_kind(path)
    data = _bytes(path, zipped)
    if kind in ("parquet", "feather"):
        frame = _without_missing(_read_arrow(data, kind, path.name), missing)
    else:
        if data.startswith(_EXCEL):
            raise _foreign(path, *_FOREIGN[".xlsx"])
        text = _decoded(data, encoding or "utf-8-sig", path.name)
        usual = "\t" if kind == "tsv" else ","
        # For a user who types it, \t is a tab.
        used = guess_separator(text, usual) if separator is None else separator.replace("\\t", "\t")
        if used != usual and separator is None and notes is not None:
            shown = shown_separator(used)
            notes.append(f"read {path.name} with {shown} between cells, by its first lines; --separator overrides it.")
        frame = _read_text(text, path.name, used, decimal or ".", text_columns, missing)
        if len(frame.columns) == 1 and separator is None:
            _suspect_separator(text, str(frame.columns[0]), path.name)
    frame.columns = [str(name).strip() for name in frame.columns]
    _refuse_repeated(list(frame.columns), path.name)
    if len(frame) == 0:
        raise InputError(f"{path.name} has a header but no rows.")
    return frame


def _foreign(path: Path, what: str, reader: str) -> InputError:
    extra = " (pip install openpyxl)" if reader == "read_excel" else ""
    csv = path.with_suffix(".csv") if path.suffix.lower() != ".csv" else path.with_name(f"{path.stem}-converted.csv")
    return InputError(
        f"{path.name} is {what}, which is not read; save it as CSV, or convert it with pandas{extra}: "
        f"python -c \"import pandas; pandas.{reader}('{path}').to_csv('{csv}', index=False)\"."
    )


def _texts_of(column: str, missing: Collection[str], columns: list[str]) -> list[str]:
    """Return the texts that stand for a missing value in a column."""
    found = list(MISSING)
    for text in missing:
        name, equals, value = text.partition("=")
        if not equals:
            found.append(text)
        else:
            check_known(name, columns, what="column", where=f"--missing {text}")
            found += [value] if name == column else []
    return found


def _without_missing(frame: pd.DataFrame, missing: Collection[str]) -> pd.DataFrame:
    """Replace the values that stand for a missing one, in a table whose columns are typed."""
    names = [str(name) for name in frame.columns]
    for name in frame.columns if missing else ():
        texts = _texts_of(str(name), missing, names)[len(MISSING) :]
        values = frame[name]
        if is_number(values):
            gone = values.isin(pd.to_numeric(pd.Series(texts, dtype=object), errors="coerce").dropna())
        else:
            gone = values.astype(str).isin(texts)
        frame[name] = values.mask(gone)
    return frame


def _bytes(path: Path, zipped: bool) -> bytes:
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise InputError(f"there is no file {str(path)!r}.") from error
    except OSError as error:
        raise InputError(f"{str(path)!r} cannot be read: {error.strerror}.") from error
    if zipped:
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error) as error:
            raise InputError(f"{path.name} is not a complete gzip file: {error}.") from error
    if not data.strip():
        raise InputError(f"{path.name} is empty.")
    return data


def _decoded(data: bytes, encoding: str, name: str) -> str:
    try:
        text = data.decode(encoding)
    except LookupError as error:
        raise InputError(f"--encoding {encoding!r} is not known; use for example utf-8, latin-1 or cp1252.") from error
    except UnicodeDecodeError as error:
        shown = "UTF-8" if encoding == "utf-8-sig" else encoding
        likely = "utf-16" if data.startswith(_UTF_16) else "latin-1"
        raise InputError(
            f"{name} is not {shown} text (byte {error.start}); say how it is written, for example --encoding {likely}."
        ) from error
    if "\x00" in text:
        raise InputError(f"{name} is not a text file: it holds zero bytes. Check its name and kind.")
    return text


def _read_text(
    text: str, name: str, separator: str, decimal: str, text_columns: Collection[str], missing: Collection[str]
) -> pd.DataFrame:
    options: dict[str, Any] = {
        "sep": separator,
        "decimal": decimal,
        "keep_default_na": False,
        "index_col": False,
        "skipinitialspace": True,
    }
    try:
        # Read as a row of text: in a header pandas would rename a repeated name.
        first = pd.read_csv(io.StringIO(text), header=None, nrows=1, dtype=str, **options)
        header = [str(cell).strip() for cell in first.iloc[0]]
        header = [cell or f"column {place}" for place, cell in enumerate(header, 1)]
        _refuse_repeated(header, name)
        kept = {column: str for column in header if column in text_columns}
        gaps = {column: _texts_of(column, missing, header) for column in header}
        with warnings.catch_warnings():
            # A row that is longer than the header would lose its last cells with a mere warning.
            warnings.simplefilter("error", pd.errors.ParserWarning)
            return pd.read_csv(
                io.StringIO(text), header=0, names=header, dtype=kept, na_values=gaps, low_memory=False, **options
            )
    except InputError:
        raise
    except pd.errors.EmptyDataError as error:
        raise InputError(f"{name} is empty.") from error
    except pd.errors.ParserWarning as error:
        raise InputError(
            f"{name} cannot be read as a table: some rows have more cells than the header; if R wrote it, use "
            "write.csv(…, row.names=FALSE), and if a text holds the separator, put it in quotes."
        ) from error
    except (TypeError, ValueError) as error:
        reason = str(error).removeprefix("Error tokenizing data. C error: ").strip().rstrip(".")
        raise InputError(f"{name} cannot be read as a table: {reason}.") from error


def _refuse_repeated(names: list[str], file: str) -> None:
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise InputError(f"{file} has more than one column {repeated[0]!r}; give every column its own name.")


def _suspect_separator(text: str, header: str, name: str) -> None:
    for separator in (";", "\t", "|", ","):
        if separator in header:
            shown = shown_separator(separator)
            raise InputError(
                f"{name} has one column, {header[:60]!r}; its cells seem to be separated by {shown}, but rows differ "
                f"in their number of cells: repair them, or add --separator {shown}."
            )
    words = [len(line.split()) for line in text[:_HEAD].splitlines()[:2]]
    # R's write.table numbers the rows, and has no name for these numbers in the header.
    if len(words) == 2 and words[0] > 1 and words[1] - words[0] in (0, 1):
        raise InputError(
            f"{name} has one column, {header[:60]!r}; if its cells are separated by spaces, add --separator ' ', and "
            "if it is one column, --separator ','."
        )


def _read_arrow(data: bytes, kind: str, name: str) -> pd.DataFrame:
    try:
        from pyarrow import feather, parquet
    except ImportError as error:
        raise InputError(f"reading {name} needs pyarrow: pip install 'neuralsurv[cli]'.") from error
    reader = parquet if kind == "parquet" else feather
    try:
        table = reader.read_table(io.BytesIO(data))
        # A damaged feather file can hold lengths that lead beyond its memory, and end the process.
        table.validate(full=True)
        frame = table.to_pandas()
    except Exception as error:  # what a damaged description of the columns raises inside pandas can be anything
        reason = (str(error) or type(error).__name__).splitlines()[0].rstrip(".")
        raise InputError(f"{name} cannot be read as {kind}: {reason}.") from error
    named = [part for part in frame.index.names if part is not None]
    return frame.reset_index() if named else frame.reset_index(drop=True)


def guess_separator(text: str, usual: str) -> str:
    """Return the separator that cuts the first rows into most cells, the same number in each; else the usual one."""
    found = {candidate: _cells(text, candidate) for candidate in _SEPARATORS}
    best = max(found.values())
    return usual if found.get(usual, 0) == best or best < 2 else next(c for c in _SEPARATORS if found[c] == best)


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
