"""Snapshots of a long fit, and the interface of the place that they are saved to and resumed from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor


@dataclass(frozen=True)
class Snapshot:
    """The state of one stage of a fit.

    Attributes
    ----------
    stage : str
        The stage.
    numbers : dict of str to int or float
        Counters and the like.
    tensors : dict of str to Tensor
        Everything else.
    """

    stage: str
    numbers: dict[str, float]
    tensors: dict[str, Tensor]


class SnapshotStore(Protocol):
    """Saves snapshots and returns the last one to a fit that resumes.

    Attributes
    ----------
    constants : dict of str to Tensor
        Results of finished stages, saved with every snapshot.
    """

    constants: dict[str, Tensor]

    def resume(self, stage: str) -> Snapshot | None:
        """Return the snapshot that this fit resumes from, if it is one of `stage`."""
        ...

    def save(self, snapshot: Callable[[], Snapshot], *, now: bool = False) -> None:
        """Save a snapshot if one is due, or `now`."""
        ...


class NoCheckpoint:
    """Saves nothing."""

    def __init__(self) -> None:
        self.constants: dict[str, Tensor] = {}

    def resume(self, stage: str) -> Snapshot | None:
        """Return None."""
        return None

    def save(self, snapshot: Callable[[], Snapshot], *, now: bool = False) -> None:
        """Do nothing."""
