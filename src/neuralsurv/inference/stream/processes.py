"""Collective operations over the processes of a fit: each has some of the rows, and all get the total.

A single process needs nothing. Processes that torchrun has started find each other through its environment variables
and communicate through torch.distributed: gloo for tensors in main memory, NCCL for those of a GPU.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
from torch import Tensor

from neuralsurv.errors import InputError, NeuralSurvError, ProcessLostError

# A process that has ended is noticed at once, when its connection closes; the timeout is for one that hangs. It is long
# because a process with few rows waits for those with many.
_TIMEOUT = timedelta(hours=2)

Result = TypeVar("Result")


@dataclass(frozen=True)
class ProcessGroup:
    """The processes that work on one fit; by default a single one, which has nothing to communicate."""

    # Number of this process, from 0, and of all processes.
    rank: int = 0
    size: int = 1

    def sum(self, values: Tensor) -> Tensor:
        """Return the sum over all processes."""
        return values

    def broadcast(self, values: Tensor) -> Tensor:
        """Return the values of process 0."""
        return values

    def gather(self, item: Result) -> list[Result]:
        """Return the items of all processes, in order."""
        return [item]


class TorchProcesses(ProcessGroup):
    """The processes of torch.distributed."""

    def sum(self, values: Tensor) -> Tensor:
        """Return the sum over all processes; every process gets the same bits."""
        total = values.clone()
        with self._reporting_losses():
            torch.distributed.all_reduce(total)
        return total

    def broadcast(self, values: Tensor) -> Tensor:
        """Return the values of process 0, in a tensor of the same shape."""
        copy = values.clone()
        with self._reporting_losses():
            torch.distributed.broadcast(copy, src=0)
        return copy

    def gather(self, item: Result) -> list[Result]:
        """Return the items of all processes, in order."""
        found: list[Any] = [None] * self.size
        with self._reporting_losses():
            torch.distributed.all_gather_object(found, item)
        return found

    @contextmanager
    def _reporting_losses(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            raise ProcessLostError(
                f"process {self.rank} of {self.size} has lost another one: it ended, or cannot be reached. Start the "
                "command again, with any number of processes; with a checkpoint the fit resumes from there."
            ) from error


def run_in_all(processes: ProcessGroup, work: Callable[[], Result]) -> Result:
    """Run `work` in every process; an error in one of them is raised in all, so that none waits for it."""
    if processes.size == 1:
        return work()
    results, message = [], ""
    try:
        results.append(work())
    except NeuralSurvError as error:
        message = str(error)
    messages = [text for text in processes.gather(message) if text]
    if messages:
        raise InputError(messages[0])
    return results[0]


@contextmanager
def join_processes() -> Iterator[ProcessGroup]:
    """Yield the group that this process belongs to: that of torch.distributed, that of torchrun, or itself alone."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        # The caller has set it up, and will take it down.
        yield TorchProcesses(torch.distributed.get_rank(), torch.distributed.get_world_size())
        return
    size = os.environ.get("WORLD_SIZE", "1")
    if "RANK" not in os.environ or size == "1":
        yield ProcessGroup()
        return
    if not torch.distributed.is_available():
        raise InputError("this build of torch has no torch.distributed; run one process, without torchrun.")
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    try:
        torch.distributed.init_process_group(backend, timeout=_TIMEOUT)
    except (RuntimeError, ValueError) as error:
        raise ProcessLostError(
            f"the {size} processes could not find each other: {str(error).splitlines()[0]} Check the arguments of "
            "torchrun and that MASTER_ADDR and MASTER_PORT can be reached from every machine."
        ) from error
    try:
        yield TorchProcesses(torch.distributed.get_rank(), torch.distributed.get_world_size())
    finally:
        torch.distributed.destroy_process_group()
