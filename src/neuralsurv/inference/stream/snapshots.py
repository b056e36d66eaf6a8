"""Snapshots of a long fit, and the place that they are saved to and resumed from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Snapshot:
    """The state of one stage of a fit."""

    stage: str
    tensors: dict[str, Tensor]  # the state; numbers are tensors of no dimension

    @classmethod
    def of(cls, stage: str, state: object, names: Sequence[str]) -> Snapshot:
        """Copy the named attributes of `state`: tensors, numbers and lists of numbers."""
        values = {name: torch.as_tensor(getattr(state, name), dtype=torch.float64) for name in names}
        return cls(stage, {name: tensor.clone() for name, tensor in values.items()})

    def restore(self, state: object) -> None:
        """Set the attributes of `state` to what they were, each in the type that it has there."""
        for name, tensor in self.tensors.items():
            kind = type(getattr(state, name))
            setattr(state, name, tensor.clone() if kind is Tensor else kind(tensor.tolist()))


class SnapshotStore:
    """Saves nothing, for a fit without a checkpoint; `files.checkpoint.Checkpoint` saves to a file."""

    def __init__(self) -> None:
        self.constants: dict[str, Tensor] = {}  # results of finished stages, saved with every snapshot

    def resume(self, stage: str) -> Snapshot | None:
        """Return the snapshot that this fit resumes from, if it is one of `stage`."""
        return None

    def save(self, snapshot: Callable[[], Snapshot], *, now: bool = False) -> None:
        """Save a snapshot if one is due, or `now`."""
