"""Tables from and to files: CSV, TSV, Parquet and feather, each also compressed by gzip."""

from __future__ import annotations

import gzip
import io
import warnings
import zlib
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pandas as pd

from neuralsurv.cli.files import replacing
from neuralsurv.errors import InputError

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


def read_table(
    path: Path,
    *,
    text_columns: Collection[str] = (),
    missing: Collection[str] = (),
    separator: str | None = None,
    decimal: str | None = None,
    encoding: str | None = None,
) -> pd.DataFrame:
    """Read a table.

    Parameters
    ----------
    path : Path
        The file.
    text_columns : collection of str
        Columns of a text file that are kept as they are written, even if they look like numbers.
    missing : collection of str
        Texts that mean a missing value, besides the empty cell, NA, N/A, NaN and null.
    separator, decimal, encoding : str, optional
        How a text file is written: a comma (a tab in .tsv) between cells, a decimal point, UTF-8.

    Returns
    -------
    DataFrame
        With at least one row, and columns named by different texts.
    """
    kind, zipped = table_kind(path)
    data = _bytes(path, zipped)
    if kind in ("parquet", "feather"):
        frame = _read_arrow(data, kind, path.name)
    else:
        given = separator or ("\t" if kind == "tsv" else ",")
        text = _decoded(data, encoding or "utf-8-sig", path.name)
        frame = _read_text(text, path.name, given, decimal or ".", text_columns, [*MISSING, *missing])
        if len(frame.columns) == 1 and separator is None:
            _suspect_separator(str(frame.columns[0]), path.name)
    frame.columns = [str(name).strip() for name in frame.columns]
    repeated = sorted({name for name in frame.columns if list(frame.columns).count(name) > 1})
    if repeated:
        raise InputError(f"{path.name} has more than one column {repeated[0]!r}; give every column its own name.")
    if len(frame) == 0:
        raise InputError(f"{path.name} has a header but no rows.")
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
        raise InputError(
            f"{name} is not {shown} text (byte {error.start}); say how it is written, for example --encoding latin-1."
        ) from error
    if "\x00" in text:
        raise InputError(f"{name} is not a text file: it holds zero bytes. Check its name and kind.")
    return text


def _read_text(
    text: str, name: str, separator: str, decimal: str, text_columns: Collection[str], missing: list[str]
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
        repeated = sorted({cell for cell in header if header.count(cell) > 1})
        if repeated:
            raise InputError(f"{name} has more than one column {repeated[0]!r}; give every column its own name.")
        kept = {column: str for column in header if column in text_columns}
        with warnings.catch_warnings():
            # A row that is longer than the header would lose its last cells with a mere warning.
            warnings.simplefilter("error", pd.errors.ParserWarning)
            return pd.read_csv(
                io.StringIO(text), header=0, names=header, dtype=kept, na_values=missing, low_memory=False, **options
            )
    except pd.errors.EmptyDataError as error:
        raise InputError(f"{name} is empty.") from error
    except (pd.errors.ParserError, pd.errors.ParserWarning) as error:
        reason = str(error).removeprefix("Error tokenizing data. C error: ").strip().rstrip(".")
        if isinstance(error, pd.errors.ParserWarning):
            reason = "some rows have more cells than the header"
        raise InputError(f"{name} cannot be read as a table: {reason}.") from error
    except (TypeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{name} cannot be read as a table: {error}.") from error


def _suspect_separator(header: str, name: str) -> None:
    for separator, shown in ((";", "';'"), ("\t", "'\\t'"), ("|", "'|'"), (",", "','")):
        if separator in header:
            decimal = " (and --decimal ',' if numbers are written like 1,5)" if separator == ";" else ""
            raise InputError(
                f"{name} has one column, {header[:60]!r}; its cells seem to be separated by {shown}: "
                f"add --separator {shown}{decimal}."
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


def write_table(frame: pd.DataFrame, path: Path) -> None:
    """Write a table, whole or not at all, in the kind that the name of the file says."""
    kind, zipped = table_kind(path)
    buffer = io.BytesIO()
    if kind == "parquet":
        frame.to_parquet(buffer, index=False)
    elif kind == "feather":
        frame.reset_index(drop=True).to_feather(buffer)
    else:
        buffer.write(frame.to_csv(index=False, sep="\t" if kind == "tsv" else ",").encode("utf-8"))
    data = gzip.compress(buffer.getvalue(), mtime=0) if zipped else buffer.getvalue()
    with replacing(path) as temporary:
        temporary.write_bytes(data)
