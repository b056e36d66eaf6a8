"""Checkpoints of streamed fits: one file, replaced atomically, that identifies the fit it belongs to.

It is a safetensors file like that of a model, with the same digest against damage, and holds no code. A fit that is
resumed from it ends where it would have ended, to the last bit if nothing else has changed.
"""

from __future__ import annotations

import hashlib
import math
import os
import time
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from neuralsurv.errors import InputError, StorageError
from neuralsurv.files.fit_differences import difference_in_words
from neuralsurv.files.format import Fields, read, write
from neuralsurv.inference.stream.processes import ProcessGroup
from neuralsurv.inference.stream.snapshots import Snapshot, SnapshotStore

_KIND = "checkpoint"
_CONSTANT = "constant:"
# Longer arrays and lists of words are represented by a few numbers, or a digest.
_LONGEST = 1000


class Checkpoint(SnapshotStore):
    """Saves snapshots of a fit to a file, and resumes from the one that is there.

    Only process 0 reads and writes the file, `every` so many seconds. The fingerprint identifies the fit by its data
    and settings: a file of another fit is refused.
    """

    def __init__(
        self, path: str | os.PathLike[str], fingerprint: dict[str, Any], processes: ProcessGroup, *, every: float = 60.0
    ) -> None:
        super().__init__()
        self._path = Path(path)
        self._fingerprint = fingerprint
        self._processes = processes
        self._every = every
        self._saved = time.monotonic()
        self._found = self._read()

    def _read(self) -> Snapshot | None:
        problem, found = "", None
        if self._processes.rank == 0:
            try:
                found = self._opened()
            except (InputError, StorageError) as error:
                problem = str(error)
        problem, found, constants = self._processes.gather((problem, found, self.constants))[0]
        if problem:
            raise InputError(problem)
        self.constants = constants
        return found

    def _opened(self) -> Snapshot | None:
        if not self._path.parent.is_dir():
            raise InputError(f"the folder {str(self._path.parent)!r} of the checkpoint does not exist; make it first.")
        if not self._path.exists():
            return None
        raw, arrays = read(self._path)
        if raw.get("kind") != _KIND:
            raise InputError(f"{str(self._path)!r} is not a checkpoint of a fit; name another file.")
        differs = difference_in_words(raw.get("fingerprint"), self._fingerprint)
        if differs is not None:
            raise InputError(
                f"the checkpoint {str(self._path)!r} belongs to another fit: {differs}. Name another file, or delete "
                "it to start again."
            )
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
        self.constants = {
            name.removeprefix(_CONSTANT): tensor for name, tensor in tensors.items() if name.startswith(_CONSTANT)
        }
        state = {name: tensor for name, tensor in tensors.items() if not name.startswith(_CONSTANT)}
        return Snapshot(Fields(raw, "header").text("stage"), state)

    def resume(self, stage: str) -> Snapshot | None:
        """Return the snapshot that was in the file, if it is one of `stage`."""
        return self._found if self._found is not None and self._found.stage == stage else None

    def save(self, snapshot: Callable[[], Snapshot], *, now: bool = False) -> None:
        """Save a snapshot if the last is old enough, or `now`."""
        if self._processes.rank != 0 or (not now and time.monotonic() - self._saved < self._every):
            return
        state = snapshot()
        header = {"kind": _KIND, "stage": state.stage, "fingerprint": self._fingerprint}
        constants = {f"{_CONSTANT}{name}": tensor for name, tensor in self.constants.items()}
        arrays = {name: tensor.numpy() for name, tensor in {**state.tensors, **constants}.items()}
        write(self._path, header, arrays)
        self._saved = time.monotonic()


def fingerprint(**parts: Any) -> dict[str, Any]:
    """Return what identifies a fit, dataclasses, arrays and plain values by name, in plain values.

    Every field of every dataclass is included, so that one that is added later cannot be forgotten.
    """
    return {name: _plain(value) for name, value in parts.items()}


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    match value:
        case np.ndarray():
            return _plain(value.tolist()) if value.size <= _LONGEST else _summary(value)
        case np.generic():
            return _plain(value.item())
        case [str(), *_] if len(value) > _LONGEST:
            return hashlib.sha256(repr(tuple(value)).encode("utf-8")).hexdigest()
        case tuple() | list():
            return [_plain(item) for item in value]
        case float() if not math.isfinite(value):
            # A file holds finite numbers only.
            return str(value)
        case None | bool() | int() | float() | str():
            return value
    raise TypeError(f"a value of type {type(value).__name__} cannot be part of a fingerprint.")


def _summary(values: np.ndarray) -> list[float]:
    """Return a few numbers that differ between long arrays of other values, or of the same in other places."""
    weights = np.random.default_rng(len(values)).uniform(1, 2, size=(2, len(values)))
    return [float(len(values)), float(values.sum()), *(weights @ values).tolist()]
