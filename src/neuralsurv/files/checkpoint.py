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
from reprlib import repr as shortened
from typing import Any

import numpy as np
import torch

from neuralsurv.errors import InputError, StorageError
from neuralsurv.files.format import Fields, read, write
from neuralsurv.inference.stream.packed_rows import BLOCK_ROWS
from neuralsurv.inference.stream.processes import ProcessGroup
from neuralsurv.inference.stream.snapshots import Snapshot, SnapshotStore
from neuralsurv.names import listed

_KIND = "checkpoint"
_CONSTANT = "constant:"
# Longer arrays and lists of words are represented by a few numbers, or a digest.
_LONGEST = 1000
# Sums over another number of processes are rounded differently.
_ROUNDING = 1e-9
_METHODS = {True: "exact", False: "mini-batch"}
_BLOCKS = {"training_blocks": "training_batch_size", "blocks": "batch_size"}
_TOTALS = {
    "rows": "the number of rows",
    "events": "the number of events",
    "truncated": "the number of rows with late entry",
    "weightless": "the number of rows with a weight of 0",
    "weighted_events": "the sum of the weights of the events",
    "exposure": "the time at risk of all rows",
    "last_time": "the largest time",
}
_OF_COLUMN = {
    "kind": "the kind",
    "low": "the smallest value",
    "high": "the largest value",
    "present": "the number of values",
}
_OTHER_CONTENT = "its rows hold other values"
_OTHER_VERSION = "it was written by another version of neuralsurv"

Keys = tuple[str | int, ...]


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


def difference(theirs: Any, ours: Any, keys: Keys = ()) -> Keys | None:
    """Return the keys that lead to the first difference of two fingerprints, or None if they are the same."""
    pairs: list[tuple[str | int, Any, Any]]
    match theirs, ours:
        case dict(), dict():
            alone = [key for key in (*ours, *theirs) if not (key in ours and key in theirs)]
            if alone:
                return (*keys, alone[0])
            pairs = [(key, theirs[key], ours[key]) for key in ours]
        case list(), list() if len(theirs) == len(ours):
            pairs = [(place, a, b) for place, (a, b) in enumerate(zip(theirs, ours, strict=True))]
        case float(), float():
            return None if np.isclose(theirs, ours, rtol=_ROUNDING, atol=0.0) else keys
        case _:
            return None if type(theirs) is type(ours) and theirs == ours else keys
    return next((found for key, a, b in pairs if (found := difference(a, b, (*keys, key))) is not None), None)


def difference_in_words(theirs: Any, ours: Any) -> str | None:
    """Return a clause on the first difference between the fingerprints of a checkpoint and of this fit, or None."""
    keys = difference(theirs, ours)
    if keys is None:
        return None
    try:
        return _clause(keys, theirs, ours)
    except (LookupError, TypeError):
        # What the keys lead to is missing on one side, or of another kind.
        return _OTHER_VERSION


def _clause(keys: Keys, theirs: Any, ours: Any) -> str:
    values = _at(theirs, keys), _at(ours, keys)
    match keys:
        case ():
            return _OTHER_VERSION
        case ("cohort", "columns", *rest):
            return _covariates(_at(theirs, keys[:2]), _at(ours, keys[:2]), rest)
        case ("cohort", str(total), *_) if total not in _TOTALS:
            return _OTHER_CONTENT
        case ("rows", "order"):
            return "its rows come in another order"
        case ("rows", "rows" | "content"):
            return _OTHER_CONTENT
        case ("encoding", part, *_) if part != "standardise":
            return "its covariates are encoded differently"
        case ("seed",):
            return "random_state was another one"
        case ("settings", str(name), *_) if name != "ablation":
            # A parameter with several values is shown as a whole.
            keys = keys[:2]
            values = _at(theirs, keys), _at(ours, keys)
    return _there_and_here(*_typed(keys, *values))


def _at(tree: Any, keys: Keys) -> Any:
    for key in keys:
        tree = tree[key]
    return tree


def _there_and_here(name: str, theirs: Any, ours: Any) -> str:
    return f"{name} is {shortened(theirs)} there and {shortened(ours)} here"


def _typed(keys: Keys, theirs: Any, ours: Any) -> tuple[str, Any, Any]:
    """Return the name that a value has for users, and both values as they would type them."""
    match keys:
        case ("settings" | "encoding", str(name)):
            theirs, ours = (tuple(value) if isinstance(value, list) else value for value in (theirs, ours))
            return name, theirs, ours
        case ("columns", str(role)):
            return f"the {role} column", theirs, ours
        case ("cohort", str(total)):
            return _TOTALS[total], theirs, ours
        case ("plan", "exact"):
            return "method", _METHODS[theirs], _METHODS[ours]
        case ("plan", "training_blocks" | "blocks" as blocks):
            return _BLOCKS[blocks], theirs * BLOCK_ROWS, ours * BLOCK_ROWS
        case ("plan", "keep_all"):
            return "directions", theirs, ours
        case ("plan", str(name)):
            return name, theirs, ours
    return ".".join(map(str, keys)), theirs, ours


def _covariates(theirs: list[dict[str, Any]], ours: list[dict[str, Any]], rest: list[str | int]) -> str:
    """Return a clause on columns of which one, at the first of the keys, is not the same."""
    names = [[column["name"] for column in columns] for columns in (theirs, ours)]
    if names[0] != names[1]:
        return f"the covariates are {listed(names[0])} there and {listed(names[1])} here"
    place, field = int(rest[0]), str(rest[1])
    if field not in _OF_COLUMN:
        return f"column {names[0][place]!r} holds other values there"
    return _there_and_here(
        f"{_OF_COLUMN[field]} of column {names[0][place]!r}", theirs[place][field], ours[place][field]
    )
