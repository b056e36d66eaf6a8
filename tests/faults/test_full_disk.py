"""A disk that is full at any byte: the old file stays, nothing half-written stays, and the message says what to do.

The system itself refuses to write on: by a limit on the size of files, which needs no rights, and, where a file system
may be mounted, by one that is full.
"""

import contextlib
import os
import sqlite3
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import torch

from faults.children import in_child, needs_fork
from neuralsurv import load
from neuralsurv.cli.output_files import write_table
from neuralsurv.data.cohort import Cohort
from neuralsurv.errors import InputError, StorageError
from neuralsurv.files.checkpoint import Checkpoint
from neuralsurv.inference.stream.packed_rows import Packer
from neuralsurv.inference.stream.processes import ProcessGroup
from neuralsurv.inference.stream.snapshots import Snapshot
from small_cohort import quick_default, small_cohort

resource = pytest.importorskip("resource", reason="limits of processes are POSIX's")
pytestmark = needs_fork


@pytest.fixture(scope="module")
def models():
    cohorts = small_cohort(seed=3), small_cohort(seed=4)
    return [quick_default(draws=5).fit(cohort.x, cohort.y) for cohort in cohorts]


def under_limit(size, work):
    """Return the error of `work`, if any, in a process that can write no file beyond so many bytes."""

    def limited():
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
        try:
            work()
        except Exception as error:
            return type(error).__name__, str(error)
        return "", ""

    return in_child(limited)


def cuts(size):
    return [0, 1, 7, size // 3, size // 2, size - 1]


def test_models(models, tmp_path):
    path = tmp_path / "model"
    models[0].save(path)
    before = path.read_bytes()
    models[1].save(tmp_path / "other")
    size = (tmp_path / "other").stat().st_size
    (tmp_path / "other").unlink()
    for limit in cuts(size):
        name, message = under_limit(limit, lambda: models[1].save(path))
        assert name == "StorageError"
        assert "could not be written, and is as it was" in message
        assert path.read_bytes() == before
        assert os.listdir(tmp_path) == ["model"]
    assert under_limit(size, lambda: models[1].save(path)) == ("", "")
    assert load(path).time_scale_ == models[1].time_scale_


def test_checkpoints(tmp_path):
    path = tmp_path / "state"

    def save(number):
        tensors = {"sums": torch.full((500,), float(number), dtype=torch.float64)}
        Checkpoint(path, {"rows": 1}, ProcessGroup()).save(
            lambda: Snapshot("posterior", {"done": torch.tensor(number, dtype=torch.float64), **tensors}), now=True
        )

    save(1.0)
    size = path.stat().st_size
    for limit in cuts(size):
        name, message = under_limit(limit, lambda: save(2.0))
        assert name == "StorageError"
        assert "is as it was" in message
        found = Checkpoint(path, {"rows": 1}, ProcessGroup()).resume("posterior")
        assert found.tensors["done"] == 1
        assert float(found.tensors["sums"].sum()) == 500
        assert os.listdir(tmp_path) == ["state"]


@pytest.mark.parametrize("kind", ["csv", "csv.gz", "parquet", "feather"])
def test_tables_of_the_command_line(tmp_path, kind):
    path = tmp_path / f"curves.{kind}"
    table = pd.DataFrame({"time": np.arange(500.0), "mean": np.random.default_rng(0).random(500)})
    write_table(table, path, force=False)
    before = path.read_bytes()
    for limit in cuts(len(before)):
        name, message = under_limit(limit, lambda: write_table(-table, path, force=True))
        assert name == InputError.__name__
        assert "could not be written, and is as it was" in message
        assert path.read_bytes() == before
        assert os.listdir(tmp_path) == [path.name]


@pytest.mark.parametrize("rows", [3, 2000], ids=["smaller than a buffer", "larger than a buffer"])
def test_scratch_rows_of_a_streamed_fit(tmp_path, rows):
    def pack():
        packer = Packer(str(tmp_path), 2, seed=0)
        try:
            packer.add(0, Cohort.of(*np.ones((4, rows)), np.ones((rows, 2))))
            packer.finish(ProcessGroup())
        finally:
            packer.close()

    for limit in (0, 1, rows * 48 - 1):
        name, message = under_limit(limit, pack)
        assert name == "StorageError"
        assert "do not fit onto the disk" in message
        assert "name a folder with more room as scratch" in message
        assert os.listdir(tmp_path) == []
    assert under_limit(rows * 48, pack) == ("", "")


def test_the_store_of_the_benchmarks(tmp_path):
    store = pytest.importorskip("neuralsurv_bench.store")
    path = tmp_path / "results.sqlite"

    def save(first, last):
        with store.Store(path) as opened:
            for fold in range(first, last):
                key = store.Key("fake", "cohort", "", fold, "method", "fair", 0)
                opened.save(store.Record(key, details={"curve": [0.123456] * 300}))

    save(0, 5)
    size = path.stat().st_size
    for limit in (size + 1, size + 5000, size + 20_000):
        name, message = under_limit(limit, lambda: save(5, 60))
        assert name == "OperationalError"
        assert "disk" in message
        with store.Store(path) as opened:
            folds = sorted(record.key.fold for record in opened.records())
        assert folds == list(range(len(folds)))
        assert 5 <= len(folds) < 60
        with contextlib.closing(sqlite3.connect(path)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert os.listdir(tmp_path) == ["results.sqlite"]


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 256 KiB of its own, where one may be mounted."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("only root may mount a file system")
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", folder], capture_output=True)
    if mounted.returncode:
        pytest.skip("no file system can be mounted here")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_a_file_system_that_is_full(small_disk, models):
    models[0].save(small_disk / "model")
    before = (small_disk / "model").read_bytes()
    with open(small_disk / "ballast", "wb", buffering=0) as ballast, contextlib.suppress(OSError):
        while ballast.write(b"0" * 4096):
            pass
    with pytest.raises(StorageError, match=r"could not be written, and is as it was: .*No space left on device"):
        models[1].save(small_disk / "model")
    assert (small_disk / "model").read_bytes() == before
    assert sorted(os.listdir(small_disk)) == ["ballast", "model"]
    cohort = small_cohort()
    with pytest.raises(StorageError, match=r"do not fit onto the disk.*No space left on device"):
        quick_default().fit_stream([cohort.frame()], time="years", event="died", scratch=small_disk)
    assert sorted(os.listdir(small_disk)) == ["ballast", "model"]
    (small_disk / "ballast").unlink()
    models[1].save(small_disk / "model")
    assert load(small_disk / "model").time_scale_ == models[1].time_scale_
