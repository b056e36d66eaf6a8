"""Sums over many processes: each holds some of the rows, and everybody gets the total.

A team of one needs nothing. Processes that torchrun has started find each other through its environment variables and
add up through torch.distributed: gloo for tensors in main memory, NCCL for those of a GPU.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from neuralsurv.errors import InputError, NeuralSurvError, ProcessLostError

# A process that is gone is noticed at once, when its connection closes; this is for one that hangs. A process with few
# rows waits for those with many, so it is long.
_PATIENCE = timedelta(hours=2)

Result = TypeVar("Result")


class Team(Protocol):
    """Processes that work on one fit."""

    @property
    def rank(self) -> int:
        """Number of this process, from 0."""
        ...

    @property
    def size(self) -> int:
        """Number of processes."""
        ...

    def sum(self, values: Tensor) -> Tensor:
        """Return the sum over all processes."""
        ...

    def share(self, values: Tensor) -> Tensor:
        """Return the values of process 0."""
        ...

    def gather(self, item: Result) -> list[Result]:
        """Return the items of all processes, in order."""
        ...


@dataclass(frozen=True)
class Alone:
    """A team of one."""

    rank: int = 0
    size: int = 1

    def sum(self, values: Tensor) -> Tensor:
        """Return the values."""
        return values

    def share(self, values: Tensor) -> Tensor:
        """Return the values."""
        return values

    def gather(self, item: Result) -> list[Result]:
        """Return a list of the item."""
        return [item]


@dataclass(frozen=True)
class Processes:
    """The processes of torch.distributed.

    Attributes
    ----------
    rank, size : int
        Number of this process, and of all.
    """

    rank: int
    size: int

    def sum(self, values: Tensor) -> Tensor:
        """Return the sum over all processes; every process gets the same bits."""
        total = values.clone()
        with _noticing_losses(self):
            torch.distributed.all_reduce(total)
        return total

    def share(self, values: Tensor) -> Tensor:
        """Return the values of process 0, in a tensor of the same shape."""
        copy = values.clone()
        with _noticing_losses(self):
            torch.distributed.broadcast(copy, src=0)
        return copy

    def gather(self, item: Result) -> list[Result]:
        """Return the items of all processes, in order."""
        found: list[Any] = [None] * self.size
        with _noticing_losses(self):
            torch.distributed.all_gather_object(found, item)
        return found


@contextmanager
def _noticing_losses(team: Processes) -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        raise ProcessLostError(
            f"process {team.rank} of {team.size} has lost another one: it ended, or cannot be reached. Start the "
            "command again, with any number of processes; with a checkpoint the fit goes on from there."
        ) from error


def together(team: Team, work: Callable[[], Result]) -> Result:
    """Do `work` in every process; if it fails in one, all end with its message and none waits for ever."""
    result: Result | None = None
    problem = ""
    try:
        result = work()
    except NeuralSurvError as error:
        if team.size == 1:
            raise
        problem = str(error)
    found = [text for text in team.gather(problem) if text]
    if found:
        raise InputError(found[0])
    assert result is not None
    return result


@contextmanager
def join_team() -> Iterator[Team]:
    """Yield the team that this process belongs to: that of torch.distributed, that of torchrun, or itself alone."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        # Somebody else has set it up, and will take it down.
        yield Processes(torch.distributed.get_rank(), torch.distributed.get_world_size())
        return
    size = os.environ.get("WORLD_SIZE", "1")
    if "RANK" not in os.environ or size == "1":
        yield Alone()
        return
    if not torch.distributed.is_available():
        raise InputError("this build of torch has no torch.distributed; run one process, without torchrun.")
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    try:
        torch.distributed.init_process_group(backend, timeout=_PATIENCE)
    except (RuntimeError, ValueError) as error:
        raise ProcessLostError(
            f"the {size} processes could not find each other: {str(error).splitlines()[0]} Check the arguments of "
            "torchrun and that MASTER_ADDR and MASTER_PORT can be reached from every machine."
        ) from error
    try:
        yield Processes(torch.distributed.get_rank(), torch.distributed.get_world_size())
    finally:
        torch.distributed.destroy_process_group()
