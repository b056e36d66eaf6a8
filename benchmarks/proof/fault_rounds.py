"""Rounds of faults at random moments. Every scenario returns how often it was tried and what went wrong, in words."""

from __future__ import annotations

import os
import random
import resource
import signal
import sqlite3
import tempfile
import time
import warnings
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from neuralsurv import NeuralSurv, PaperNeuralSurv, load
from neuralsurv.data.simulate import lognormal_cohort
from neuralsurv.errors import NeuralSurvError, NeuralSurvWarning, NotEnoughMemoryError, StorageError

Outcome = dict[str, Any]


def forked(work: Callable[[], None]) -> int:
    """Start work in a child process and return its number; its exit code is 0 if nothing was raised."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return child


def ended(child: int) -> int:
    """Wait for a child and return its exit code, minus the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def killed_after(seconds: float, work: Callable[[], None]) -> int:
    """Start work in a child process, kill it after a while, and return its exit code."""
    child = forked(work)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    return ended(child)


def quiet(**settings: Any) -> NeuralSurv:
    """Return a small estimator."""
    return NeuralSurv(**{"hidden": (4,), "draws": 20, "verbose": False, "random_state": 0} | settings)


def two_models() -> list[NeuralSurv]:
    """Return two models that can be told apart by their largest time."""
    cohorts = [lognormal_cohort(40, seed=seed) for seed in (1, 2)]
    return [quiet().fit(cohort.x, cohort.y) for cohort in cohorts]


def kills_during_save(rounds: int, chance: random.Random, folder: Path) -> Outcome:
    """Kill a process that saves two models in turn to one file; open the file after each kill."""
    models, path = two_models(), folder / "model"
    scales = [model.time_scale_ for model in models]
    models[0].save(path)
    problems, seen, left = [], [0, 0], 0

    def work() -> None:
        while True:
            for model in models:
                model.save(path)

    for number in range(rounds):
        killed_after(chance.uniform(0.0, 0.05), work)
        left += len(os.listdir(folder)) > 1
        try:
            seen[scales.index(load(path).time_scale_)] += 1
        except (NeuralSurvError, ValueError) as error:
            problems.append(f"round {number}: {error}")
    models[0].save(path)
    if os.listdir(folder) != ["model"]:
        problems.append("a partial file stayed")
    found = f"one model {seen[0]} times, the other {seen[1]} times; {left} kills left a partial file, all gone after"
    return {"rounds": rounds, "problems": problems, "found": found}


def kills_during_fit(rounds: int, chance: random.Random, folder: Path) -> Outcome:
    """Kill a process that fits; nothing may be left in the folder for temporary files."""
    cohort, before, problems = lognormal_cohort(60, seed=1), tempfile.tempdir, []
    tempfile.tempdir = str(folder)

    def work() -> None:
        while True:
            for estimator in (NeuralSurv, PaperNeuralSurv):
                estimator(verbose=False, random_state=0).fit(cohort.x, cohort.y)

    try:
        for number in range(rounds):
            killed_after(chance.uniform(0.0, 0.5), work)
            if os.listdir(folder):
                problems.append(f"round {number}: {os.listdir(folder)} stayed")
    finally:
        tempfile.tempdir = before
    return {"rounds": rounds, "problems": problems, "found": "nothing left behind"}


def kills_during_stream(rounds: int, chance: random.Random, folder: Path) -> Outcome:
    """Kill a streamed fit again and again, each time it goes on from its checkpoint; compare its end bit for bit."""
    cohort = lognormal_cohort(1500, seed=3)
    table = cohort.x.assign(years=cohort.time, died=cohort.event)
    settings: dict[str, Any] = {"time": "years", "event": "died", "training_passes": 10, "method": "mini-batch"}

    def fit(state: Path | None) -> NeuralSurv:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NeuralSurvWarning)
            every = {} if state is None else {"checkpoint_seconds": 0}
            return quiet().fit_stream([table], **settings, checkpoint=state, **every)

    began = time.perf_counter()
    whole = fit(None)
    seconds = time.perf_counter() - began
    state, problems, codes = folder / "state", [], []
    for _ in range(rounds):
        codes.append(killed_after(chance.uniform(0.1, 0.6) * seconds, lambda: fit(state) and None))
    again = fit(state)
    if not np.array_equal(again.predict(cohort.x.head(50)), whole.predict(cohort.x.head(50))):
        problems.append("the resumed fit ended elsewhere")
    if os.listdir(folder) != ["state"]:
        problems.append(f"{os.listdir(folder)} stayed")
    killed = codes.count(-signal.SIGKILL)
    return {"rounds": rounds, "problems": problems, "found": f"killed {killed} times; the end is the same to the bit"}


def kills_during_store(rounds: int, chance: random.Random, folder: Path) -> Outcome:
    """Kill a process that writes results of benchmarks; what it reported as stored must be there."""
    from neuralsurv_bench.store import Key, Record, Store

    path, said, problems = folder / "results.sqlite", folder / "said", []

    def work() -> None:
        with Store(path) as store, said.open("a", encoding="ascii") as out:
            first = len(store.stored())
            for fold in range(first, first + 10**6):
                store.save(Record(Key("fake", "cohort", "", fold, "method", "fair", 0), details={"curve": [0.5] * 200}))
                out.write(f"{fold}\n")
                out.flush()

    for number in range(rounds):
        killed_after(chance.uniform(0.0, 0.1), work)
        with Store(path) as store:
            folds = {key.fold for key in store.stored()}
        reported = {int(line) for line in said.read_text(encoding="utf-8").splitlines()} if said.exists() else set()
        with closing(sqlite3.connect(path)) as connection:
            whole = connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        if not reported <= folds or not whole or folds != set(range(len(folds))):
            problems.append(f"round {number}: a result was lost, or the file is damaged")
    return {"rounds": rounds, "problems": problems, "found": f"{len(folds)} results stored, none lost"}


def two_writers(rounds: int, chance: random.Random, folder: Path) -> Outcome:
    """Let two processes write one model file while a third reads it."""
    models, path, problems = two_models(), folder / "model", []
    scales = {model.time_scale_ for model in models}
    models[0].save(path)

    def writing(model: NeuralSurv) -> Callable[[], None]:
        def work() -> None:
            for _ in range(rounds):
                model.save(path)

        return work

    children = [forked(writing(model)) for model in models]
    reads, seen = 0, set()
    while any(os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None for child in children):
        try:
            seen.add(load(path).time_scale_)
        except NeuralSurvError as error:
            problems.append(f"read {reads}: {error}")
        reads += 1
    if [ended(child) for child in children] != [0, 0]:
        problems.append("a writer failed")
    if not seen <= scales or os.listdir(folder) != ["model"]:
        problems.append("something else was there")
    return {"rounds": 2 * rounds, "problems": problems, "found": f"{reads} reads, each of one whole model"}


def full_disks(rounds: int, chance: random.Random, folder: Path) -> Outcome:
    """Save to a disk that is full after a random number of bytes."""
    models, path, problems = two_models(), folder / "model", []
    models[1].save(path)
    size = path.stat().st_size
    models[0].save(path)
    before = path.read_bytes()

    def limited(limit: int) -> Callable[[], None]:
        def work() -> None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
            try:
                models[1].save(path)
            except StorageError as error:
                if "could not be written, and is as it was" in str(error):
                    os._exit(7)

        return work

    for number in range(rounds):
        code = ended(forked(limited(chance.randrange(size))))
        if code != 7 or path.read_bytes() != before or os.listdir(folder) != ["model"]:
            problems.append(f"round {number}: exit code {code}, {os.listdir(folder)}")
    return {"rounds": rounds, "problems": problems, "found": "refused with a sentence, the old model as it was"}


def refusals(rounds: int, chance: random.Random, folder: Path) -> Outcome:
    """Ask for fits that are too large for a limit on the process's memory, and see that they take none."""
    problems, grown = [], []
    for number in range(rounds):
        rows, rng = chance.randrange(20_000, 60_000), np.random.default_rng(number)
        X, time_, event = rng.normal(size=(rows, 3)), rng.uniform(0.1, 1, rows), rng.random(rows) < 0.5
        report = folder / "report"

        def work(X: Any = X, y: Any = (time_, event), report: Path = report) -> None:
            pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[0])
            room = pages * resource.getpagesize() + 2**28
            resource.setrlimit(resource.RLIMIT_AS, (room, resource.RLIM_INFINITY))
            before = peak()
            try:
                quiet().fit(X, y)
            except NotEnoughMemoryError:
                report.write_text(str(peak() - before), encoding="ascii")

        report.unlink(missing_ok=True)
        ended(forked(work))
        if not report.exists():
            problems.append(f"round {number}: a fit of {rows} rows was not refused")
        else:
            grown.append(float(report.read_text(encoding="utf-8")))
    found = f"refused; the process had grown by at most {max(grown, default=0):.0f} MiB, the table's own copies"
    return {"rounds": rounds, "problems": problems, "found": found}


def peak() -> float:
    """Return the largest memory that this process had, in MiB."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


SCENARIOS: dict[str, tuple[int, Callable[[int, random.Random, Path], Outcome]]] = {
    "killed while it saves a model": (200, kills_during_save),
    "killed while it fits": (40, kills_during_fit),
    "killed while it streams, and resumed": (12, kills_during_stream),
    "killed while it stores benchmark results": (150, kills_during_store),
    "two processes write one model file": (150, two_writers),
    "disk full after a random byte": (200, full_disks),
    "fit too large for the memory": (10, refusals),
}
