"""Checkpoints of streamed fits: one file, replaced as a whole, that says which fit it belongs to.

It is a safetensors file like that of a model, with the same digest against damage, and holds no code. A fit that goes
on from it ends where it would have ended, to the last bit if nothing else has changed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from neuralsurv.errors import InputError, StorageError
from neuralsurv.inference.distributed import Team
from neuralsurv.inference.keeping import Snapshot
from neuralsurv.storage import Fields, read, write

_KIND = "checkpoint"
_CONSTANT = "constant:"
# Sums over another number of processes are rounded differently.
_ROUNDING = 1e-9


class Checkpoint:
    """Saves snapshots of a fit to a file, and gives back the one that is there.

    Parameters
    ----------
    path : path
        The file. In a team only process 0 reads and writes it.
    fingerprint : dict of str to plain value
        What tells this fit from others: data and choices. A file of another fit is refused.
    team : Team
        The processes of the fit.
    every : float
        Seconds between two saves.
    """

    def __init__(
        self, path: str | os.PathLike[str], fingerprint: dict[str, Any], team: Team, *, every: float = 60.0
    ) -> None:
        self._path = Path(path)
        self._fingerprint = fingerprint
        self._team = team
        self._every = every
        self._saved = time.monotonic()
        self.constants: dict[str, Tensor] = {}
        self._found = self._read()

    def _read(self) -> Snapshot | None:
        problem, found = "", None
        if self._team.rank == 0:
            try:
                found = self._opened()
            except (InputError, StorageError) as error:
                problem = str(error)
        problem, found, constants = self._team.gather((problem, found, self.constants))[0]
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
        header = Fields(raw, "header")
        if raw.get("kind") != _KIND:
            raise InputError(f"{str(self._path)!r} is not a checkpoint of a fit; name another file.")
        theirs = header.table("fingerprint")
        for name, value in self._fingerprint.items():
            if not _same(theirs.raw(name), value):
                raise InputError(
                    f"the checkpoint {str(self._path)!r} belongs to another fit: {name} is {theirs.raw(name)!r} there "
                    f"and {value!r} here. Name another file, or delete it to start anew."
                )
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
        self.constants = {
            name.removeprefix(_CONSTANT): tensor for name, tensor in tensors.items() if name.startswith(_CONSTANT)
        }
        numbers = header.table("numbers")
        return Snapshot(
            header.text("stage"),
            {name: numbers.number(name) for name in numbers.names()},
            {name: tensor for name, tensor in tensors.items() if not name.startswith(_CONSTANT)},
        )

    def resumed(self, stage: str) -> Snapshot | None:
        """Return the snapshot that this fit starts from, if it is one of `stage`."""
        return self._found if self._found is not None and self._found.stage == stage else None

    def offer(self, snapshot: Callable[[], Snapshot], *, now: bool = False) -> None:
        """Save a snapshot if the last is old enough, or `now`."""
        if self._team.rank != 0 or (not now and time.monotonic() - self._saved < self._every):
            return
        state = snapshot()
        header = {
            "kind": _KIND,
            "stage": state.stage,
            "numbers": {name: value for name, value in state.numbers.items() if value == value},
            "fingerprint": self._fingerprint,
        }
        constants = {f"{_CONSTANT}{name}": tensor for name, tensor in self.constants.items()}
        arrays = {name: tensor.numpy() for name, tensor in {**state.tensors, **constants}.items()}
        write(self._path, header, arrays)
        self._saved = time.monotonic()


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return bool(np.isclose(one, other, rtol=_ROUNDING, atol=0.0))
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(_same(a, b) for a, b in zip(one, other, strict=True))
    return type(one) is type(other) and bool(one == other)
