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
from pathlib import Path
from typing import Any

import numpy as np

from neuralsurv.errors import StorageError
from neuralsurv.partial_files import partial_file, put_in_place

FORMAT = 1
_KEY = "neuralsurv"
_DIGEST = "sha256"
_LONGEST_HEADER = 16 * 2**20


def write(path: str | os.PathLike[str], header: dict[str, Any], tensors: dict[str, np.ndarray]) -> None:
    """Write a file so that a crash at any moment leaves either the old file or the new one.

    Parameters
    ----------
    path : path
        Where to write.
    header : dict
        Plain JSON data.
    tensors : dict of float64 ndarray
        The arrays.
    """
    from safetensors.numpy import save

    target = Path(path)
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
        with partial_file(target.parent) as (temporary, file):
            file.write(data)
            put_in_place(temporary, file, target)
    except OSError as error:
        raise StorageError(f"{str(target)!r} could not be written, and is as it was: {error}.") from error


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Read a file back, checking sizes, types and finiteness before anything is believed.

    Parameters
    ----------
    path : path
        The file.

    Returns
    -------
    header : dict
        The JSON header.
    tensors : dict of float64 ndarray
        The arrays, all finite.
    """
    source = Path(path)
    if not source.is_file():
        raise StorageError(f"there is no file {str(source)!r}.")
    try:
        data = source.read_bytes()
    except OSError as error:
        raise StorageError(f"{str(source)!r} could not be read: {error}.") from error
    header = _header(data, source.name)
    claimed = header.pop(_DIGEST, None)
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        tensors = load(data)
        digest = _digest(header, tensors)
    except (SafetensorError, KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise StorageError(f"{source.name} is damaged: {error}.") from error
    for name, array in tensors.items():
        if array.dtype != np.float64:
            raise StorageError(f"{source.name} is damaged: {name!r} is {array.dtype}, not float64.")
        if not np.isfinite(array).all():
            raise StorageError(f"{source.name} is damaged: {name!r} holds values that are NaN or infinite.")
    if claimed != digest:
        raise StorageError(f"{source.name} is damaged: its content has changed since it was written.")
    return header, {name: array.copy() for name, array in tensors.items()}


def _digest(header: dict[str, Any], tensors: dict[str, np.ndarray]) -> str:
    """Return a digest of everything that a file holds but the digest itself."""
    digest = hashlib.sha256(json.dumps(header).encode("ascii"))
    for name in sorted(tensors):
        digest.update(repr((name, tensors[name].shape)).encode("utf-8"))
        digest.update(tensors[name].tobytes())
    return digest.hexdigest()


def _header(data: bytes, name: str) -> dict[str, Any]:
    if len(data) < 8:
        raise StorageError(f"{name} is too short to be a model file ({len(data)} bytes).")
    (length,) = struct.unpack("<Q", data[:8])
    if length > min(len(data) - 8, _LONGEST_HEADER):
        raise StorageError(f"{name} is not a model file, or is cut off: its header does not fit.")
    try:
        outer = json.loads(data[8 : 8 + length].decode("utf-8"))
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
    return header


class Fields:
    """Typed access to a header: whatever is not there, or not of its type, is an error that names it."""

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
        items = self._numbered(key)
        return tuple(items.number(place) for place in items.names())

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a list of strings."""
        items = self._numbered(key)
        return tuple(items.text(place) for place in items.names())

    def _numbered(self, key: str) -> Fields:
        items = {str(place): value for place, value in enumerate(self.items(key))}
        return Fields(items, f"{self._name} {key!r}")

    def table(self, key: str) -> Fields:
        """Return a nested table."""
        return Fields(self._get(key, dict, "a table"), f"{self._name} {key!r}")

    def names(self) -> list[str]:
        """Return the names in this table."""
        return list(self._values)

    def raw(self, key: str) -> Any:
        """Return a value that the caller checks itself."""
        return self._values.get(key)
