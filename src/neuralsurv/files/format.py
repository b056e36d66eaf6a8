"""Model files: one safetensors file with a versioned JSON header. Data only: reading one never runs code.

A digest of everything in the file tells damage from a model: one flipped bit in a weight would otherwise only show as
a slightly different prediction.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from neuralsurv.errors import StorageError
from neuralsurv.files.atomic import destination, obstacle, partial_file, put_in_place
from neuralsurv.memory import require

FORMAT = 1
_KEY = "neuralsurv"
_DIGEST = "sha256"
_LONGEST_HEADER = 16 * 2**20

Arrays = dict[str, np.ndarray]


def write(
    path: str | os.PathLike[str], header: dict[str, Any], tensors: dict[str, np.ndarray], *, replace: bool = True
) -> None:
    """Write a file so that a crash at any moment leaves either the old file or the new one.

    Symbolic links are followed, and a file that is replaced keeps its mode.
    """
    from safetensors.numpy import save

    target, wanted = destination(path), os.fspath(path)
    found = obstacle(path)
    if found is not None:
        raise StorageError(f"{wanted!r} is {found} and cannot be replaced by a model; name a file.")
    arrays = {name: np.asarray(array, order="C") for name, array in tensors.items()}
    complete = {"format": FORMAT, **header}
    try:
        text = json.dumps({**complete, _DIGEST: _digest(complete, arrays)}, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise StorageError(f"the model holds a value that cannot be saved: {error}.") from error
    data = save(arrays, metadata={_KEY: text})
    if not target.parent.is_dir():
        raise StorageError(f"the folder {str(target.parent)!r} does not exist; make it first.")
    try:
        with partial_file(target.parent, private=target.exists()) as (temporary, file):
            file.write(data)
            put_in_place(temporary, file, target, replace=replace)
    except FileExistsError as error:
        raise StorageError(f"{wanted!r} was made by another program in the meantime, and was left alone.") from error
    except OSError as error:
        raise StorageError(f"{wanted!r} could not be written, and is as it was: {error}.") from error


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Read header and finite arrays back, checking sizes, types and finiteness before anything is used."""
    source = Path(path)
    with _opened(source) as file:
        header, size = _start(file, source.name)
        # The bytes, and the arrays made from them.
        require(2.0 * size, f"opening {source.name}", "Use a machine with more memory.")
        file.seek(0)
        data = file.read(size)
    claimed = header.pop(_DIGEST, None)
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        tensors = load(data)
        size = len(data)
        # The arrays are copies.
        del data
        digest = _digest(header, tensors)
    except (SafetensorError, KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise StorageError(f"{source.name} is damaged: {error}.") from error
    for name, array in tensors.items():
        if array.dtype != np.float64:
            raise StorageError(f"{source.name} is damaged: {name!r} is {array.dtype}, not float64.")
        # An array without numbers takes no space in the file, whatever length it claims.
        if max(array.shape, default=0) > size:
            raise StorageError(f"{source.name} is damaged: {name!r} has shape {array.shape} and no numbers.")
        if not np.isfinite(array).all():
            raise StorageError(f"{source.name} is damaged: {name!r} holds values that are NaN or infinite.")
    if claimed != digest:
        raise StorageError(f"{source.name} is damaged: its content has changed since it was written.")
    return header, {name: array.copy() for name, array in tensors.items()}


def read_header(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the header of a file without its arrays: enough to say that it is no model, or which columns it needs."""
    source = Path(path)
    with _opened(source) as file:
        return _start(file, source.name)[0]


@contextmanager
def _opened(source: Path) -> Iterator[BinaryIO]:
    """Open a file to be read, and say in a sentence why that is not possible."""
    if not source.is_file():
        found = obstacle(source)
        if found is not None:
            raise StorageError(f"{str(source)!r} is {found}, not a model file.")
        raise StorageError(f"there is no file {str(source)!r}.")
    try:
        with source.open("rb") as file:
            yield file
    except OSError as error:
        if isinstance(error, StorageError):
            raise
        raise StorageError(f"{str(source)!r} could not be read: {error}.") from error


def _start(file: BinaryIO, name: str) -> tuple[dict[str, Any], int]:
    """Return the header of a file and the number of its bytes, without reading the numbers."""
    size = os.fstat(file.fileno()).st_size
    start = file.read(8)
    if len(start) < 8:
        raise StorageError(f"{name} is too short to be a model file ({len(start)} bytes).")
    (length,) = struct.unpack("<Q", start)
    if length > min(size - 8, _LONGEST_HEADER):
        raise StorageError(f"{name} is not a model file, or is cut off: its header does not fit.")
    outer, header = _header(file.read(length), name)
    stated = _stated(outer, name)
    if stated != size - 8 - length:
        raise StorageError(
            f"{name} is damaged: its header announces {stated} bytes of numbers, but there are {size - 8 - length}."
        )
    return header, size


def _digest(header: dict[str, Any], tensors: dict[str, np.ndarray]) -> str:
    """Return a digest of everything in a file except the digest itself."""
    digest = hashlib.sha256(json.dumps(header).encode("ascii"))
    for name in sorted(tensors):
        digest.update(repr((name, tensors[name].shape)).encode("utf-8"))
        digest.update(tensors[name].reshape(-1).data)
    return digest.hexdigest()


def _header(text: bytes, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the header of the container, which describes its arrays, and ours inside of it."""
    try:
        outer = json.loads(text.decode("utf-8"))
        header = json.loads(outer["__metadata__"][_KEY])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise StorageError(
            f"{name} is not a neuralsurv model file, or is damaged: its header cannot be read."
        ) from error
    if not isinstance(header, dict) or type(header.get("format")) is not int:
        raise StorageError(f"{name} is damaged: its header has no format number.")
    if header["format"] > FORMAT:
        raise StorageError(
            f"{name} has format {header['format']}, but this version of neuralsurv reads up to {FORMAT}; "
            "update neuralsurv to open it."
        )
    if header["format"] < 1:
        raise StorageError(f"{name} is damaged: format {header['format']} does not exist.")
    return outer, header


def _stated(outer: dict[str, Any], name: str) -> int:
    """Return where the last array ends according to the header of the container."""
    try:
        return max((int(entry["data_offsets"][1]) for key, entry in outer.items() if key != "__metadata__"), default=0)
    except (TypeError, KeyError, IndexError, ValueError, OverflowError) as error:
        raise StorageError(f"{name} is damaged: its arrays are not described.") from error


class Fields:
    """Typed access to a header: a value that is missing or of the wrong type raises an error that names it."""

    def __init__(self, values: Any, name: str) -> None:
        if not isinstance(values, dict):
            raise StorageError(f"the model file is damaged: {name} is not a table.")
        self._values = values
        self._name = name

    def _get(self, key: str, kind: type | tuple[type, ...], word: str) -> Any:
        value = self._values.get(key)
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise StorageError(f"the model file is damaged: {self._name} {key!r} is not {word}.")
        return value

    def number(self, key: str) -> float:
        """Return a finite number."""
        value = self._get(key, (int, float), "a number")
        try:
            number = float(value)
        except OverflowError as error:
            raise StorageError(f"the model file is damaged: {self._name} {key!r} is too large.") from error
        if not math.isfinite(number):
            raise StorageError(f"the model file is damaged: {self._name} {key!r} is not finite.")
        return number

    def positive(self, key: str) -> float:
        """Return a finite number above 0."""
        value = self.number(key)
        if value <= 0:
            raise StorageError(f"the model file is damaged: {self._name} {key!r} is not positive.")
        return value

    def whole(self, key: str, most: int = 2**63, *, least: int = 0) -> int:
        """Return a whole number of at least `least` and at most `most`."""
        value = self._get(key, int, "a whole number")
        if not least <= value <= most:
            raise StorageError(f"the model file is damaged: {self._name} {key!r} is out of range.")
        return int(value)

    def text(self, key: str) -> str:
        """Return a string."""
        return str(self._get(key, str, "text"))

    def flag(self, key: str) -> bool:
        """Return a bool."""
        return bool(self._get(key, bool, "true or false"))

    def items(self, key: str) -> list[Any]:
        """Return a list."""
        return list(self._get(key, list, "a list"))

    def numbers(self, key: str) -> tuple[float, ...]:
        """Return a list of finite numbers."""
        return self._each(key, Fields.number)

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a list of strings."""
        return self._each(key, Fields.text)

    def _each(self, key: str, read: Callable[[Fields, str], Any]) -> tuple[Any, ...]:
        name = f"{self._name} {key!r}"
        # One at a time: a dict of all of them would be many times the size of the list.
        return tuple(read(Fields({str(at): value}, name), str(at)) for at, value in enumerate(self.items(key)))

    def table(self, key: str) -> Fields:
        """Return a nested table."""
        return Fields(self._get(key, dict, "a table"), f"{self._name} {key!r}")

    def names(self) -> list[str]:
        """Return the names in this table."""
        return list(self._values)

    def raw(self, key: str) -> Any:
        """Return a value that the caller checks itself."""
        return self._values.get(key)


def stored_array(tensors: Arrays, name: str, shape: tuple[int | None, ...]) -> np.ndarray:
    """Return an array of a file, checked for its shape, in which None stands for any length."""
    array = tensors.get(name)
    fits = array is not None and len(array.shape) == len(shape)
    if array is None or not fits or any(b not in (None, a) for a, b in zip(array.shape, shape, strict=True)):
        raise StorageError(f"the model file is damaged: {name!r} is missing or has the wrong shape.")
    return array
