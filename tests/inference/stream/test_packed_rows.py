"""Packed rows: every row once, the same blocks for any number of processes, a file without a name."""

import os

import numpy as np
import pytest
import torch

from neuralsurv.data.cohort import Cohort
from neuralsurv.errors import StorageError
from neuralsurv.inference.stream import packed_rows as packed
from neuralsurv.inference.stream.packed_rows import Packer, block_order, minibatches
from neuralsurv.inference.stream.processes import ProcessGroup

RANDOM = np.random.default_rng(0)
CHUNKS = {number: RANDOM.uniform(size=(count, 6)) for number, count in {0: 700, 1: 256, 3: 1, 4: 300}.items()}


class OneOfSeveral:
    """A process that knows what all processes gather."""

    def __init__(self, rank, items):
        self.rank, self.items, self.size = rank, items, len(items)

    def gather(self, item):
        return self.items


def packer_of(numbers):
    packer = Packer(None, 2, seed=3)
    for number in numbers:
        table = CHUNKS[number]
        packer.add(number, Cohort.of(table[:, 0], table[:, 1] > 0.5, table[:, 2], table[:, 3], table[:, 4:]))
    return packer


def tables(rows, numbers):
    return {
        number: torch.column_stack([batch.time, batch.event.double(), batch.entry, batch.weight, batch.x])
        for number, batch in rows.read(numbers)
    }


def test_every_row_is_there_once_and_shuffled_within_its_chunk():
    rows = packer_of(CHUNKS).finish(ProcessGroup())
    assert rows.rows.tolist() == [256, 256, 188, 256, 1, 256, 44]
    found = torch.cat(list(tables(rows, np.arange(rows.blocks)).values())).numpy()
    expected = np.concatenate(list(CHUNKS.values()))
    expected[:, 1] = expected[:, 1] > 0.5
    assert not np.array_equal(found, expected)
    np.testing.assert_array_equal(found[np.argsort(found[:, 0])], expected[np.argsort(expected[:, 0])])
    np.testing.assert_array_equal(np.sort(found[:700, 0]), np.sort(CHUNKS[0][:, 0]))
    rows.close()


def test_blocks_are_the_same_for_any_number_of_processes():
    whole = packer_of(CHUNKS).finish(ProcessGroup())
    expected = tables(whole, np.arange(whole.blocks))
    packers = [packer_of(numbers) for numbers in ([1, 4], [], [0, 3])]
    items = [
        (np.array(list(p._counts), dtype=np.int64), np.array(list(p._counts.values()), dtype=np.int64)) for p in packers
    ]
    parts = [packer.finish(OneOfSeveral(rank, items)) for rank, packer in enumerate(packers)]
    joined = {}
    for part in parts:
        assert part.blocks == whole.blocks
        assert part.rows.tolist() == whole.rows.tolist()
        joined |= tables(part, np.arange(part.blocks))
    assert joined.keys() == expected.keys()
    assert all(torch.equal(joined[k], expected[k]) for k in expected)
    numbers = np.array([4, 0, 2])
    sample = whole.gather(numbers, ProcessGroup())
    assert torch.equal(sample.time, torch.cat([expected[k][:, 0] for k in numbers]))
    for rows in (whole, *parts):
        rows.close()


def test_an_order_goes_through_all_blocks_and_differs_between_passes():
    orders = [block_order(50, 1, number) for number in (0, 0, 1)]
    assert sorted(orders[0]) == list(range(50))
    assert np.array_equal(orders[0], orders[1])
    assert not np.array_equal(orders[0], orders[2])
    cut = minibatches(orders[0], 8)
    assert np.array_equal(np.concatenate(cut), orders[0])
    assert {len(part) for part in cut} == {8, 9}
    assert len(minibatches(np.arange(3), 8)) == 1


def test_a_full_disk_and_a_missing_folder_are_named(tmp_path, monkeypatch):
    with pytest.raises(StorageError, match="no temporary file could be made"):
        Packer(str(tmp_path / "nowhere"), 2, seed=0)
    packer = Packer(str(tmp_path), 2, seed=0)

    class Full:
        def write(self, data):
            raise OSError(28, "No space left on device")

        def close(self):
            real.close()

    real, packer._file = packer._file, Full()
    with pytest.raises(StorageError, match=r"do not fit onto the disk.*Every row takes 48 bytes"):
        packer.add(0, Cohort.of(*np.ones((4, 1)), np.ones((1, 2))))
    assert real.closed
    # The file has no name, so nothing is left of it.
    assert os.listdir(tmp_path) == []


def test_a_file_that_was_cut_short_is_noticed(monkeypatch):
    rows = packer_of([1]).finish(ProcessGroup())
    monkeypatch.setattr(packed.os, "pread", lambda *_: b"")
    with pytest.raises(StorageError, match="was cut short"):
        list(rows.read(np.array([0])))
    rows.close()
