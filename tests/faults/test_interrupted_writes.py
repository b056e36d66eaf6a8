"""A write that fails at any of its calls, for any reason, leaves the old file or the new one, and nothing beside it."""

import errno
import os
import signal
import time
from collections import Counter

import numpy as np
import pytest

from faults.children import Child, in_child, needs_fork
from faults.injection import Fault, faulty_writes
from neuralsurv.errors import StorageError
from neuralsurv.files.atomic import partial_file, remove_abandoned
from neuralsurv.files.format import read, write

pytest.importorskip("fcntl", reason="locks of files are POSIX's")

OLD, NEW = {"value": np.arange(2000.0)}, {"value": np.arange(3000.0) / 7}
MOST_CALLS = 60


def content(path):
    """Which of the two is there; reading checks every byte of it."""
    if not path.exists():
        return "none"
    header, tensors = read(path)
    expected = OLD if header["which"] == "old" else NEW
    assert np.array_equal(tensors["value"], expected["value"])
    return header["which"]


def strike_with(failure):
    def strike():
        raise failure

    return strike


@pytest.mark.parametrize("existing", [True, False])
@pytest.mark.parametrize(
    "failure",
    [OSError(errno.ENOSPC, "No space left on device"), OSError(errno.EIO, "Input/output error"), KeyboardInterrupt()],
    ids=["full", "broken", "ctrl-c"],
)
def test_every_call_fails_once(tmp_path, failure, existing):
    path = tmp_path / "model"
    names, outcomes = [], set()
    for number in range(1, MOST_CALLS):
        for leftover in tmp_path.iterdir():
            leftover.unlink()
        if existing:
            write(path, {"which": "old"}, OLD)
        fault = Fault(number, strike_with(failure))
        raised = None
        with faulty_writes(fault):
            try:
                write(path, {"which": "new"}, NEW)
            except (StorageError, KeyboardInterrupt) as error:
                raised = error
        names.append(fault.names[number - 1] if fault.struck else "")
        found = content(path)
        outcomes.add((type(raised).__name__, found))
        before = "old" if existing else "none"
        # An error says that the file is as it was, and it is. Without one the new file is there. Ctrl-C says nothing.
        if isinstance(raised, StorageError):
            assert found == before, fault.names
            assert "could not be written, and is as it was" in str(raised)
            assert failure.strerror in str(raised)
        elif raised is None:
            assert found == "new", fault.names
        else:
            assert found in (before, "new"), fault.names
        assert os.listdir(tmp_path) == ([] if found == "none" else ["model"]), fault.names
        if not fault.struck:
            break
    else:
        pytest.fail("a write makes more calls than were tried")
    assert {"open", "flock", "write", "flush", "os.fsync", "os.replace", "os.listdir", "os.open"} <= set(names)
    assert len(outcomes) >= 2


@needs_fork
def test_killed_at_every_call(tmp_path):
    path = tmp_path / "model"
    write(path, {"which": "old"}, OLD)
    found, left = [], 0
    for number in range(1, MOST_CALLS):

        def work(number=number):
            with faulty_writes(Fault(number, lambda: os.kill(os.getpid(), signal.SIGKILL))):
                write(path, {"which": "new"}, NEW)

        status, _ = Child(work).wait()
        found.append(content(path))
        left += len(os.listdir(tmp_path)) > 1
        # Whatever the killed process has left goes when the next one writes.
        write(path, {"which": "old"}, OLD)
        assert os.listdir(tmp_path) == ["model"]
        if status == 0:
            break
        assert status == -signal.SIGKILL
    assert status == 0
    assert found == sorted(found, key=["old", "new"].index)
    assert {"old", "new"} == set(found)
    assert left > 0, "no process was killed while its file was only half there"


def test_a_file_that_is_being_written_is_left_alone(tmp_path):
    with partial_file(tmp_path) as (path, file):
        file.write(b"half")
        file.flush()
        remove_abandoned(tmp_path)
        assert path.exists()
        write(tmp_path / "other", {"which": "old"}, OLD)
        assert path.exists()
    assert os.listdir(tmp_path) == ["other"]


def test_only_files_of_ours_are_taken_away(tmp_path):
    kept = [
        ".part",
        "model.part",
        ".0123456789abcdef.part",
        ".neuralsurv-0123.part",
        "x.neuralsurv-0123456789abcdef.part",
    ]
    for name in [*kept, ".neuralsurv-0123456789abcdef.part"]:
        (tmp_path / name).write_bytes(b"")
    write(tmp_path / "model", {"which": "old"}, OLD)
    assert sorted(os.listdir(tmp_path)) == sorted([*kept, "model"])


@needs_fork
def test_a_file_taken_away_before_it_was_locked_is_made_anew(tmp_path, monkeypatch):
    from neuralsurv.files import atomic as partial_files

    taken, flock = [], partial_files.fcntl.flock

    def late(file, how):
        if not taken:
            taken.append(file.name)
            os.unlink(file.name)
        flock(file, how)

    monkeypatch.setattr(partial_files.fcntl, "flock", late)
    write(tmp_path / "model", {"which": "new"}, NEW)
    assert len(taken) == 1
    assert content(tmp_path / "model") == "new"


def test_without_locks_files_are_written_all_the_same(tmp_path, monkeypatch):
    from neuralsurv.files import atomic as partial_files

    def refuse(file, how):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(partial_files.fcntl, "flock", refuse)
    (tmp_path / ".neuralsurv-0123456789abcdef.part").write_bytes(b"")
    write(tmp_path / "model", {"which": "new"}, NEW)
    assert content(tmp_path / "model") == "new"
    # Nobody knows whether somebody writes it.
    assert (tmp_path / ".neuralsurv-0123456789abcdef.part").exists()


@needs_fork
def test_two_processes_write_one_file_and_a_reader_always_sees_a_whole_one(tmp_path):
    path = tmp_path / "model"
    write(path, {"which": "old"}, OLD)

    enough = tmp_path.with_name(tmp_path.name + "-enough")  # beside the folder, whose content is compared below

    def writer(which, tensors):
        def work():
            written = 0
            while not enough.exists():
                write(path, {"which": which}, tensors)
                written += 1
            return written

        return work

    def reader():
        # However the processes take turns, it reads until it has seen the work of both.
        seen = Counter()
        deadline = time.monotonic() + 120
        while (seen.total() < 150 or len(seen) < 2) and time.monotonic() < deadline:
            seen[content(path)] += 1
        return seen

    writers = [Child(writer("old", OLD)), Child(writer("new", NEW))]
    try:
        seen = in_child(reader)
    finally:
        enough.touch()
        finished = [child.wait() for child in writers]
    assert set(seen) == {"old", "new"}
    assert all(status == 0 and written > 0 for status, written in finished)
    assert os.listdir(tmp_path) == ["model"]
