"""Sources of rows in batches: Parquet files, or anything that can be iterated over repeatedly.

A source yields *chunks*, tables of at most 8,192 rows with a number each. The numbers depend on the data alone, so that
several processes can divide the chunks among them.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pandas as pd

from neuralsurv.data.frames import as_frame
from neuralsurv.errors import InputError, NeuralSurvError

CHUNK_ROWS = 8192
# The chunk numbers of processes that have rows of their own start this far apart.
_APART = 2**40
_MAGIC = b"PAR1"
# Tables in other formats, and what pandas reads them with.
_OTHER_FORMATS = {
    ".csv": "pandas.read_csv({!r})",
    ".tsv": "pandas.read_csv({!r}, sep='\\t')",
    ".txt": "pandas.read_csv({!r}, sep=None, engine='python')",
    ".feather": "pandas.read_feather({!r})",
    ".xlsx": "pandas.read_excel({!r})",
    ".xls": "pandas.read_excel({!r})",
}

Mine = Callable[[int], bool]
_ALL = 2**64


@dataclass(frozen=True)
class Chunk:
    """Some rows."""

    number: int  # which chunk of the source it is
    place: str  # where it comes from, for messages
    frame: pd.DataFrame  # at most 8,192 rows, in an index from 0


class Source(Protocol):
    """Rows that can be read repeatedly."""

    def chunks(self, mine: Mine, columns: list[str] | None = None) -> Iterator[Chunk]:
        """Yield the chunks whose number is `mine`, in order, with some of the columns or all."""


@dataclass(frozen=True)
class ParquetSource:
    """Parquet files, read one row group at a time through pyarrow."""

    files: tuple[str, ...]

    def column_names(self) -> list[str]:
        """Return the columns of the first file."""
        with _readable(self.files[0]):
            return [str(name) for name in _pyarrow_parquet().read_schema(self.files[0]).names]

    def chunks(self, mine: Mine, columns: list[str] | None = None) -> Iterator[Chunk]:
        """Yield the chunks; row groups without a chunk of ours are not read."""
        parquet = _pyarrow_parquet()
        first = 0
        for name in self.files:
            with _readable(name), parquet.ParquetFile(name) as file:
                known = file.schema_arrow.names
                _check_names([column for column in columns or [] if column not in known], known, name)
                for group in range(file.num_row_groups):
                    count = -(-file.metadata.row_group(group).num_rows // CHUNK_ROWS)
                    if any(mine(number) for number in range(first, first + count)):
                        batches = file.iter_batches(CHUNK_ROWS, row_groups=[group], columns=columns)
                        frames = (batch.to_pandas() for batch in batches)
                        yield from _numbered(frames, first, mine, Path(name).name)
                    first += count


@dataclass(frozen=True)
class BatchSource:
    """Batches of rows from a list, from any object that can be iterated over again, or from a function."""

    # The batches: data frames, matrices, dictionaries of columns, Arrow batches.
    batches: Iterable[Any] | Callable[[], Iterable[Any]]

    def chunks(self, mine: Mine, columns: list[str] | None = None) -> Iterator[Chunk]:
        """Yield the chunks; all batches are read, and the chunks of other processes skipped."""
        first = 0
        for place, batch in enumerate(self.batches() if callable(self.batches) else self.batches):
            frame = _as_batch(batch)
            if columns is not None:
                known = [str(name) for name in frame.columns]
                _check_names([column for column in columns if column not in known], known, f"batch {place}")
                frame = frame[columns]
            yield from _numbered([frame], first, mine, f"batch {place}")
            first += -(-len(frame) // CHUNK_ROWS)


def open_parquet(
    *paths: str | os.PathLike[str], asked: str = "fit_stream", instead: str = "read it and use fit"
) -> ParquetSource:
    """Return the source behind Parquet files, folders of them or patterns.

    For a message on another format: what was `asked` and reads only Parquet, and what to do `instead` with the file.
    """
    files = tuple(file for path in paths for file in _files(os.fspath(path)))
    for name in files:
        _refuse_other_formats(name, asked, instead)
    return ParquetSource(files)


def open_source(data: Any) -> Source:
    """Return the source of the rows in `data`.

    The data are a Parquet file, a folder of them, a pattern such as ``"folder/*.parquet"``, or a list of these; or
    batches of rows that can be read more than once; or a function without arguments that returns such batches.
    """
    if isinstance(data, str | os.PathLike):
        return open_parquet(data)
    if isinstance(data, list | tuple) and data and all(isinstance(item, str | os.PathLike) for item in data):
        return open_parquet(*data)
    if isinstance(data, pd.DataFrame) or hasattr(data, "__dataframe__"):
        return BatchSource([data])
    if callable(data):
        return BatchSource(data)
    try:
        again = iter(data) is not data
    except TypeError as error:
        raise InputError(
            f"data of type {type(data).__name__} is not understood; give Parquet files, or batches of rows."
        ) from error
    if not again:
        raise InputError(
            f"data is a {type(data).__name__}, which can be read only once, and the rows are needed several times; "
            "give a list, or a function that returns a fresh iterator."
        )
    return BatchSource(data)


def first_chunk_number(process: int) -> int:
    """Return the number of the first chunk of a process, if each process has rows of its own."""
    return process * _APART


def _pyarrow_parquet() -> Any:
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise InputError("reading Parquet needs pyarrow: pip install 'neuralsurv[stream]'.") from error
    return pyarrow.parquet


@contextmanager
def _readable(name: str) -> Iterator[None]:
    """Name the file in an error of reading it."""
    try:
        yield
    except (NeuralSurvError, MemoryError):
        raise
    except Exception as error:  # a damaged description of the columns can raise anything inside pandas
        reason = (str(error) or type(error).__name__).splitlines()[0].rstrip(".")
        raise InputError(f"{name!r} cannot be read as Parquet: {reason}.") from error


def _files(name: str) -> list[str]:
    """Return the Parquet files that a path, a folder or a pattern names, in order."""
    if os.path.isdir(name):
        found = sorted(str(path) for path in Path(name).rglob("*.parquet"))
    elif os.path.exists(name):
        found = [name]
    else:
        found = sorted(glob.glob(name, recursive=True))
    if not found:
        raise InputError(
            f"there is no Parquet file {name!r}; name a file, a folder or a pattern such as 'data/*.parquet'."
        )
    return found


def _refuse_other_formats(name: str, asked: str, instead: str) -> None:
    """Refuse a file whose name says that it is another kind of table, unless it is Parquet all the same."""
    plain = Path(name.removesuffix(".gz"))
    reader = _OTHER_FORMATS.get(plain.suffix.lower())
    if reader is None:
        return
    with _readable(name), open(name, "rb") as file:
        if file.read(len(_MAGIC)) == _MAGIC:
            return
    convert = f"{reader.format(name)}.to_parquet({str(plain.with_suffix('.parquet'))!r})"
    raise InputError(f"{name!r} is not Parquet, which {asked} reads; convert it once with {convert}, or {instead}.")


def _check_names(missing: list[str], known: list[str], place: str) -> None:
    if missing:
        raise InputError(f"{place}: there is no column {missing[0]!r}; the columns are {', '.join(known)}.")


def _as_batch(batch: Any) -> pd.DataFrame:
    if isinstance(batch, dict):
        return pd.DataFrame(batch)
    if not isinstance(batch, pd.DataFrame) and hasattr(batch, "to_pandas"):
        converted: pd.DataFrame = batch.to_pandas()
        return converted
    return as_frame(batch)


def _numbered(frames: Iterable[pd.DataFrame], first: int, mine: Mine, place: str) -> Iterator[Chunk]:
    """Cut consecutive frames into chunks; a reader's batches may be smaller than requested."""
    rest: pd.DataFrame | None = None
    number = first
    for frame in frames:
        rest = frame if rest is None or len(rest) == 0 else pd.concat([rest, frame])
        while len(rest) >= CHUNK_ROWS:
            if mine(number):
                yield Chunk(number, place, rest.iloc[:CHUNK_ROWS].reset_index(drop=True))
            rest, number = rest.iloc[CHUNK_ROWS:], number + 1
    if rest is not None and len(rest) and mine(number):
        yield Chunk(number, place, rest.reset_index(drop=True))


@dataclass(frozen=True)
class RowDigest:
    """A digest of rows that adds up over chunks and processes, to check that every pass sees the same ones."""

    rows: int = 0
    content: int = 0  # sum of a digest of every row, modulo 2⁶⁴: the same for the same rows in any order
    order: int = 0  # the same with weights by the place of a row: another one for another order

    @classmethod
    def of(cls, frame: pd.DataFrame, first: int) -> RowDigest:
        """Return the digest of some rows, of which the first has the place `first`."""
        try:
            digest = pd.util.hash_pandas_object(frame, index=False).to_numpy()
        except TypeError:
            # Cells that cannot be hashed, such as lists; they are refused by name when the column is read.
            digest = pd.util.hash_pandas_object(frame.astype(str), index=False).to_numpy()
        place = np.arange(len(frame), dtype=np.uint64) + np.uint64(first % _ALL)
        # Sums and products of whole numbers of 64 bits wrap around, as they should here.
        return cls(len(frame), int(digest.sum()), int((digest * (2 * place + np.uint64(1))).sum()))

    def __add__(self, other: RowDigest) -> RowDigest:
        """Return the digest of both parts."""
        content, order = (self.content + other.content) % _ALL, (self.order + other.order) % _ALL
        return RowDigest(self.rows + other.rows, content, order)

    def check_same(self, other: RowDigest, number: str) -> None:
        """Refuse a later pass, the `number` one, that has seen other rows than this one, the first."""
        if (self.rows, self.content) == (other.rows, other.content):
            return
        seen = f"{other.rows} in the {number}" if other.rows != self.rows else f"other values in the {number}"
        raise InputError(
            f"the rows are not the same in every pass: {self.rows} in the first pass, {seen}. Give "
            "files that do not change meanwhile, a list of batches, or a function that returns a fresh iterator over "
            "the same rows at every call."
        )
