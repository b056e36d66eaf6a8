"""A run of the runner that can be killed: many short jobs that write down what they do. Used by `test_runner.py`.

Arguments: store, log, number of jobs, "alone" or number of workers. The log gets a line "start KEY TICKET" when a job
starts, with a ticket that is new each time, and a line "saved KEY TICKET" once the runner says that the result is on
the disk. A line is one write to a file opened for appending, so it is there whole even if the process is killed then.
"""

import os
import random
import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import joblib

from neuralsurv_bench.runner import run
from neuralsurv_bench.store import Key, Record, Store


@dataclass(frozen=True)
class FakeJob:
    key: Key


def fake_jobs(count):
    return [FakeJob(Key("fake", f"cohort {i % 4}", "", i, "method", "fair", 0)) for i in range(count)]


def write_line(log, *words):
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(handle, (" ".join(map(str, words)) + "\n").encode())
    os.close(handle)


def execute(job, log):
    ticket = random.SystemRandom().getrandbits(60)
    write_line(log, "start", job.key.fold, ticket)
    time.sleep(0.002 + 0.004 * random.SystemRandom().random())
    return Record(job.key, scores={"ours": {"ticket": ticket}}, details={"ballast": list(range(200))})


def main(store_path, log, count, workers):
    def saved(record):
        write_line(log, "saved", record.key.fold, record.scores["ours"]["ticket"])

    with Store(store_path) as store, joblib.parallel_config("loky", n_jobs=1 if workers == "alone" else int(workers)):
        run(fake_jobs(int(count)), partial(execute, log=log), store, alone=workers == "alone", saved=saved)


if __name__ == "__main__":
    # The workers import this file by its name.
    sys.path.insert(0, str(Path(__file__).parent))
    import kill_target

    kill_target.main(*sys.argv[1:])
