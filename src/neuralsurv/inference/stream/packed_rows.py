"""Encoded rows in a file, in blocks that can be read in any order.

Every row takes 8·(4 + p) bytes of disk and none of memory. The file has no name, so that it disappears with the
process, however that ends. Blocks of 256 rows are numbered across all processes, by the chunks that their rows come
from: a fit goes through the same blocks in the same order, however many processes share them.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

import numpy as np
import torch
from torch import Tensor

from neuralsurv.data.cohort import Cohort
from neuralsurv.errors import StorageError
from neuralsurv.inference.stream.processes import ProcessGroup

BLOCK_ROWS = 256
# Columns before the covariates: time, event, entry, weight.
_OUTCOME = 4


def _cohort(table: Tensor) -> Cohort:
    """Return the rows of a table of shape (n, 4 + p)."""
    return Cohort(table[:, 0], table[:, 1] > 0, table[:, 2], table[:, 3], table[:, _OUTCOME:])


class Packer:
    """Writes chunks of rows to a temporary file in a folder, by default the system's.

    The rows of a chunk are put into a random order that depends on the seed and on the number of the chunk.
    """

    def __init__(self, folder: str | None, covariates: int, seed: int) -> None:
        self._width = _OUTCOME + covariates
        self._seed = seed
        self._counts: dict[int, int] = {}
        try:
            self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - it lives as long as the fit
        except OSError as error:
            raise StorageError(f"no temporary file could be made in {folder!r}: {error}.") from error

    def add(self, number: int, cohort: Cohort) -> None:
        """Write the rows of one chunk; they must have a weight."""
        table = np.column_stack([cohort.time, cohort.event, cohort.entry, cohort.weight, cohort.x])
        order = np.random.default_rng([self._seed, number]).permutation(len(table))
        try:
            self._file.write(np.ascontiguousarray(table[order], dtype=np.float64).data)
            # A few rows stay in a buffer otherwise, and are found not to fit only when it is read.
            self._file.flush()
        except OSError as error:
            # The file would try to write the rest of the buffer once more when it is closed.
            with contextlib.suppress(OSError):
                self._file.close()
            raise StorageError(
                f"the encoded rows do not fit onto the disk: {error}. Every row takes {8 * self._width} bytes; name a "
                "folder with more room as scratch."
            ) from error
        self._counts[number] = len(table)

    def close(self) -> None:
        """Free the disk space."""
        self._file.close()

    def finish(self, processes: ProcessGroup) -> PackedRows:
        """Return the rows for reading; every process must call this."""
        numbers = np.array(list(self._counts), dtype=np.int64)
        counts = np.array(list(self._counts.values()), dtype=np.int64)
        starts = np.cumsum(counts) - counts
        everyone = processes.gather((numbers, counts))
        order: list[tuple[int, int, int]] = sorted(
            (int(number), process, place)
            for process, (theirs, _) in enumerate(everyone)
            for place, number in enumerate(theirs)
        )
        first, rows = [], []
        for _, process, place in order:
            count = int(everyone[process][1][place])
            mine = process == processes.rank
            for begin in range(0, count, BLOCK_ROWS):
                first.append(int(starts[place]) + begin if mine else -1)
                rows.append(min(BLOCK_ROWS, count - begin))
        return PackedRows(self._width, np.array(first, dtype=np.int64), np.array(rows), self._file)


@dataclass(frozen=True)
class PackedRows:
    """Rows of all processes, of which this one can read its own."""

    width: int  # numbers per row
    first: np.ndarray  # shape (blocks,): where each block starts in the file, in rows; −1 if another process has it
    rows: np.ndarray  # rows of each block, shape (blocks,)
    file: IO[bytes]

    def close(self) -> None:
        """Free the disk space."""
        self.file.close()

    @property
    def blocks(self) -> int:
        """Number of blocks of all processes."""
        return len(self.first)

    def read(self, numbers: np.ndarray) -> Iterator[tuple[int, Cohort]]:
        """Yield those of the blocks that this process has: the number and the rows of each."""
        for number in numbers[self.first[numbers] >= 0].tolist():
            yield number, _cohort(self._table(number))

    def _table(self, number: int) -> Tensor:
        size = int(self.rows[number]) * self.width * 8
        data = os.pread(self.file.fileno(), size, int(self.first[number]) * self.width * 8)
        if len(data) != size:
            raise StorageError("the temporary file of encoded rows was cut short.")
        return torch.from_numpy(np.frombuffer(data, dtype=np.float64).reshape(-1, self.width).copy())

    def gather(self, numbers: np.ndarray, processes: ProcessGroup) -> Cohort:
        """Return all rows of some blocks to every process; for few blocks only."""
        mine = [(int(k), self._table(int(k)).numpy()) for k in numbers[self.first[numbers] >= 0]]
        found = dict(item for part in processes.gather(mine) for item in part)
        parts = [found[int(k)] for k in numbers]
        return _cohort(torch.from_numpy(np.concatenate(parts) if parts else np.zeros((0, self.width))))


def block_order(blocks: int, seed: int, number: int) -> np.ndarray:
    """Return the order in which pass `number` goes through the blocks."""
    return np.random.default_rng([seed, 1, number]).permutation(blocks)


def minibatches(order: np.ndarray, size: int) -> list[np.ndarray]:
    """Cut an order of blocks into mini-batches of about `size` blocks, as even as possible."""
    return np.array_split(order, max(1, round(len(order) / size)))
