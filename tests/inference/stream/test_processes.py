"""Several processes on loopback: the fit of one, whatever the shards; a lost process, a message, and a new start."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from inference import streamed_worker
from neuralsurv.data.simulate import lognormal_cohort
from neuralsurv.data.stream import batches as stream
from neuralsurv.errors import InputError, NotFiniteError, ProcessLostError
from neuralsurv.inference.stream import processes as distributed
from neuralsurv.inference.stream.processes import ProcessGroup, TorchProcesses, join_processes, run_in_all

WORKER = Path(__file__).parents[1] / "streamed_worker.py"
CLOSE = 1e-8


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """1,300 rows: five chunks, so that the shares of two and three processes are uneven, and noise while learning."""
    made = tmp_path_factory.mktemp("rows")
    cohort = lognormal_cohort(1300, noise=1, seed=2)
    cohort.x.assign(time=cohort.time, event=cohort.event).to_parquet(made / "rows.parquet")
    return made


@pytest.fixture(scope="module")
def alone(folder):
    """The fits of one process, by method and shards; the chunks of own rows are those of their owners."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream, "CHUNK_ROWS", streamed_worker.CHUNK_ROWS)
        return {
            method: streamed_worker.result(streamed_worker.fit(str(folder), method, None))
            for method in ("exact", "mini-batch")
        }


def start(count, folder, *arguments):
    """Start `count` processes that find each other on a free port of this machine."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(count)}
    return [
        subprocess.Popen(
            [sys.executable, str(WORKER), str(folder), *map(str, arguments)],
            env={**os.environ, **place, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )
        for rank in range(count)
    ]


def finish(processes):
    words = [process.communicate(timeout=300)[1] for process in processes]
    return [process.returncode for process in processes], words


@pytest.mark.parametrize("count", [2, 3])
def test_fits_of_several_processes_are_those_of_one(count, folder, alone, tmp_path):
    out = tmp_path / "found.npz"
    codes, words = finish(start(count, folder, "-", "-", out, "all"))
    assert codes == [0] * count, words
    found = np.load(out)
    for method in ("exact", "mini-batch"):
        for name, expected in alone[method].items():
            np.testing.assert_allclose(found[f"{method} shared {name}"], expected, rtol=CLOSE, atol=CLOSE)
    # Rows of their own: 600 and 700, and with three processes one without a single row. Blocks differ from those of
    # one process that has all rows, so features are trained in another order; sums that do not depend on it agree.
    for name in ("center", "scale"):
        np.testing.assert_allclose(found[f"exact own {name}"], alone["exact"][name], rtol=CLOSE)
    assert found["exact own elbo"][-1] == pytest.approx(alone["exact"]["elbo"][-1], abs=2.0)


def test_a_lost_process_ends_the_run_and_one_goes_on_from_the_checkpoint(folder, alone, tmp_path, monkeypatch):
    state, out = tmp_path / "state", tmp_path / "found.npz"
    codes, _ = finish(start(2, folder, "exact", state, out, "die"))
    assert codes == [3, 9]
    assert not out.exists()
    message = Path(f"{out}.0.error").read_text(encoding="utf-8")
    assert message.startswith("process 0 of 2 has lost another one: it ended, or cannot be reached.")
    monkeypatch.setattr(stream, "CHUNK_ROWS", streamed_worker.CHUNK_ROWS)
    found = streamed_worker.result(streamed_worker.fit(str(folder), "exact", str(state)))
    for name, expected in alone["exact"].items():
        np.testing.assert_allclose(found[name], expected, rtol=CLOSE, atol=CLOSE)


def test_a_single_process_needs_nothing(monkeypatch):
    values = torch.ones(2)
    group = ProcessGroup()
    assert group.sum(values) is group.broadcast(values) is values
    assert group.gather("x") == ["x"]
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    with join_processes() as found:
        assert type(found) is ProcessGroup


class Two:
    """Process 0 of 2, with what the other one says."""

    rank, size = 0, 2

    def __init__(self, other=""):
        self.other = other

    def gather(self, item):
        return [item, self.other]


def test_an_error_in_one_process_is_the_error_of_all():
    with pytest.raises(InputError, match="row 3 is broken"):
        run_in_all(Two("row 3 is broken"), lambda: 1)

    def fails():
        raise NotFiniteError("this one is")

    with pytest.raises(InputError, match="this one is"):
        run_in_all(Two(), fails)
    with pytest.raises(NotFiniteError, match="this one is"):
        run_in_all(ProcessGroup(), fails)
    assert run_in_all(Two(), lambda: 5) == 5


def test_collective_calls_that_fail_are_lost_processes(monkeypatch):
    def gone(*_, **__):
        raise RuntimeError("Connection closed by peer")

    group = TorchProcesses(1, 3)
    for name, call in (
        ("all_reduce", lambda: group.sum(torch.ones(1))),
        ("broadcast", lambda: group.broadcast(torch.ones(1))),
        ("all_gather_object", lambda: group.gather(1)),
    ):
        monkeypatch.setattr(torch.distributed, name, gone)
        with pytest.raises(ProcessLostError, match="process 1 of 3 has lost another one"):
            call()


def test_processes_that_cannot_find_each_other(monkeypatch):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")

    def gone(*_, **__):
        raise ValueError("environment variable MASTER_ADDR expected, but not set\nmore")

    monkeypatch.setattr(torch.distributed, "init_process_group", gone)
    with (
        pytest.raises(ProcessLostError, match="the 2 processes could not find each other: environment variable"),
        join_processes(),
    ):
        pass
    monkeypatch.setattr(distributed.torch.distributed, "is_available", lambda: False)
    with pytest.raises(InputError, match=r"has no torch\.distributed"), join_processes():
        pass
