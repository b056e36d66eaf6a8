import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import joblib
import pytest

from neuralsurv_bench.runner import run
from neuralsurv_bench.store import Key, Record, Store

TARGET = Path(__file__).with_name("kill_target.py")
KILLS = 20


@dataclass(frozen=True)
class FakeJob:
    key: Key


def fake_jobs(count):
    return [FakeJob(Key("fake", "cohort", "", i, "method", "fair", 0)) for i in range(count)]


class Worker:
    """Does fake jobs, remembers which, and fails where it is told to."""

    def __init__(self, failing=()):
        self.failing = set(failing)
        self.done = []

    def __call__(self, job):
        self.done.append(job.key.fold)
        if job.key.fold in self.failing:
            return Record(job.key, "failed", error="told to")
        return Record(job.key, scores={"ours": {"ibs": job.key.fold / 10}})


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "results.sqlite") as opened:
        yield opened


def test_every_job_is_done_once_in_order_and_stored(store):
    worker = Worker()
    summary = run(fake_jobs(5), worker, store)
    assert worker.done == [0, 1, 2, 3, 4]
    assert (summary.finished, summary.failed, summary.before, summary.left) == (5, 0, 0, 0)
    assert [record.scores["ours"]["ibs"] for record in store.records()] == [0, 0.1, 0.2, 0.3, 0.4]


def test_a_second_run_repeats_nothing_not_even_failures(store):
    run(fake_jobs(4), Worker(failing=[1, 2]), store)
    again = Worker()
    summary = run(fake_jobs(6), again, store)
    assert again.done == [4, 5]
    assert (summary.finished, summary.before) == (2, 4)
    assert {key.fold for key in store.stored("failed")} == {1, 2}


def test_failures_are_repeated_when_asked_for(store):
    run(fake_jobs(4), Worker(failing=[1, 2]), store)
    again = Worker(failing=[2])
    summary = run(fake_jobs(4), again, store, retry_failed=True)
    assert again.done == [1, 2]
    assert (summary.finished, summary.failed, summary.before) == (1, 1, 2)
    assert {key.fold for key in store.stored("failed")} == {2}


@pytest.mark.parametrize("alone", [True, False])
def test_what_is_finished_is_stored_before_the_next_job_starts(store, alone):
    seen = []

    def execute(job):
        seen.append(len(store.stored()))
        return Record(job.key)

    run(fake_jobs(4), execute, store, alone=alone)
    assert seen == [0, 1, 2, 3]


def test_no_job_starts_after_the_time_limit(store, monkeypatch):
    now = 0.0
    monkeypatch.setattr("neuralsurv_bench.runner.time.monotonic", lambda: now)

    def execute(job):
        nonlocal now
        now += 0.06
        return Record(job.key)

    summary = run(fake_jobs(50), execute, store, limit_seconds=0.1)
    assert summary.finished == len(store.stored()) == 2
    assert summary.left == 48


def test_a_callback_hears_of_a_record_once_it_is_stored(store):
    heard = []
    run(
        fake_jobs(3),
        Worker(),
        store,
        saved=lambda record: heard.append((record.key.fold, record.key in store.stored())),
    )
    assert heard == [(0, True), (1, True), (2, True)]


def test_a_job_that_breaks_the_runner_loses_nothing_before_it(store):
    def execute(job):
        if job.key.fold == 2:
            raise MemoryError("no room")
        return Record(job.key)

    with pytest.raises(MemoryError, match="no room"):
        run(fake_jobs(4), execute, store)
    assert {key.fold for key in store.stored()} == {0, 1}


class Meeting:
    """Jobs that end only when two of them run at once."""

    def __init__(self):
        self.barrier = threading.Barrier(2, timeout=20)

    def __call__(self, job):
        self.barrier.wait()
        return Record(job.key)


def test_jobs_run_at_once_where_joblib_is_told_to(store):
    with joblib.parallel_config("threading", n_jobs=2):
        assert run(fake_jobs(6), Meeting(), store).finished == 6


def test_jobs_that_must_be_alone_are_alone_whatever_joblib_is_told(store):
    threads = set()

    def execute(job):
        threads.add(threading.get_ident())
        return Record(job.key)

    with joblib.parallel_config("threading", n_jobs=2):
        run(fake_jobs(6), execute, store, alone=True)
    assert threads == {threading.get_ident()}


class AllAtOnce(joblib._parallel_backends.ThreadingBackend):
    """A backend that, like ray's, cannot return results as they come."""

    supports_return_generator = False
    calls = 0

    def configure(self, *args, **kwargs):
        AllAtOnce.calls += 1
        return super().configure(*args, **kwargs)


def test_a_backend_without_generators_works_in_small_portions(store):
    joblib.register_parallel_backend("all at once", AllAtOnce)
    seen = []

    def execute(job):
        seen.append(job.key.fold)
        return Record(job.key)

    counts = []
    AllAtOnce.calls = 0
    with joblib.parallel_config("all at once", n_jobs=2):
        run(fake_jobs(6), execute, store, saved=lambda record: counts.append(len(seen)))
    assert AllAtOnce.calls == 3
    # The first two are stored before the third is started, and so on.
    assert counts == [2, 2, 4, 4, 6, 6]
    assert len(store.stored()) == 6


def test_progress_says_how_much_is_done_and_left(store, capsys):
    run(fake_jobs(2), Worker(), store)
    capsys.readouterr()
    run(fake_jobs(4), Worker(failing=[3]), store, title="central")
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("central: 3 of 4, about 0 min left")
    assert lines[-1] == "central: 4 of 4, about 0 min left, 1 failed"


def read_log(path):
    lines = [line.split() for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []
    return [(word, int(fold), int(ticket)) for word, fold, ticket in lines]


def start(store, log, count, workers):
    return subprocess.Popen(
        [sys.executable, str(TARGET), str(store), str(log), str(count), workers],
        start_new_session=True,
        stderr=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def kill(process):
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    process.stderr.close()


def wait_for_first_start(process, log, known):
    while len(read_log(log)) == known:
        assert process.poll() is None, process.stderr.read().decode()
        time.sleep(0.002)


@pytest.mark.slow
def test_killed_twenty_times_it_loses_nothing_and_repeats_nothing(tmp_path):
    store_path, log = tmp_path / "results.sqlite", tmp_path / "log"
    # Far more jobs than twenty interrupted runs can do.
    count, chance = 3000, random.Random(4)
    stored = {}
    for round_number in range(KILLS):
        known = len(read_log(log))
        process = start(store_path, log, count, "2" if round_number % 4 == 0 else "alone")
        wait_for_first_start(process, log, known)
        time.sleep(chance.uniform(0, 0.3))
        assert process.poll() is None, "the run ended before it was killed, so the kill shows nothing"
        kill(process)
        after = tickets(store_path)
        new = read_log(log)[known:]
        assert not {fold for word, fold, _ in new if word == "start"} & stored.keys(), "a finished job was done again"
        assert stored.items() <= after.items(), "a result was lost or changed"
        for fold, ticket in [(fold, ticket) for word, fold, ticket in new if word == "saved"]:
            assert after.get(fold) == ticket, "a result that was reported as stored is not there"
        stored = after
    assert KILLS < len(stored) < count

    # A last run, not interrupted, does the rest: a shorter list of jobs, so that the test ends soon.
    target = max(stored) + 20
    known = len(read_log(log))
    process = start(store_path, log, target, "2")
    assert process.wait(timeout=120) == 0, process.stderr.read().decode()
    process.stderr.close()
    final = tickets(store_path)
    new = read_log(log)[known:]
    assert sorted(final) == list(range(target))
    assert stored.items() <= final.items()
    assert Counter(fold for word, fold, _ in new if word == "start") == Counter(set(range(target)) - stored.keys())
    # Over all runs: a result was reported as stored once at most, and every stored one came from a job that ran.
    everything = read_log(log)
    assert max(Counter(fold for word, fold, _ in everything if word == "saved").values()) == 1
    assert set(final.items()) <= {(fold, ticket) for word, fold, ticket in everything if word == "start"}
    assert not list(tmp_path.glob("results.sqlite-*"))


def tickets(path):
    """Return the ticket of every stored job, read as a new run would find them, and check the file."""
    with Store(path) as store:
        records = store.records()
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.close()
    assert len({record.key for record in records}) == len(records)
    return {record.key.fold: int(record.scores["ours"]["ticket"]) for record in records}
