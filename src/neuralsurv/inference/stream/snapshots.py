"""What a long fit asks of a checkpoint: to be told when to save, and to be given back what was saved."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor


@dataclass(frozen=True)
class Snapshot:
    """Where a stage of a fit stands.

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


class Keeper(Protocol):
    """Keeps snapshots.

    Attributes
    ----------
    constants : dict of str to Tensor
        What has been decided for the rest of the fit; saved with every snapshot, and given back when it goes on.
    """

    constants: dict[str, Tensor]

    def resumed(self, stage: str) -> Snapshot | None:
        """Return the snapshot that this fit starts from, if it is one of `stage`."""
        ...

    def offer(self, snapshot: Callable[[], Snapshot], *, now: bool = False) -> None:
        """Save a snapshot if it is time to, or `now`."""
        ...


class NoKeeper:
    """Keeps nothing."""

    def __init__(self) -> None:
        self.constants: dict[str, Tensor] = {}

    def resumed(self, stage: str) -> Snapshot | None:
        """Return None."""
        return None

    def offer(self, snapshot: Callable[[], Snapshot], *, now: bool = False) -> None:
        """Do nothing."""
