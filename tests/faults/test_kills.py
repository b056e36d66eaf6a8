"""Processes that are killed: what was stored before is whole, nothing else is left, and a fit goes on where it was."""

import json
import os
import random
import signal
import tempfile
import time
import warnings

import numpy as np

from faults.children import Child, needs_fork
from faults.injection import Fault, faulty_writes
from faults.proof_commands import command
from inference.streamed_worker import result
from neuralsurv import load
from neuralsurv.errors import NeuralSurvWarning
from small_cohort import quick_default, quick_model, small_cohort

pytestmark = needs_fork


def test_during_a_fit_nothing_is_left_behind(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    cohort, chance = small_cohort(), random.Random(0)

    def work():
        while True:
            quick_default().fit(cohort.x, cohort.y)
            quick_model().fit(cohort.x, cohort.y)

    for _ in range(5):
        child = Child(work)
        time.sleep(chance.uniform(0.0, 0.3))
        child.kill()
        assert child.wait()[0] == -signal.SIGKILL
        assert os.listdir(tmp_path) == []


def test_during_saves_at_any_moment(tmp_path):
    path, chance = tmp_path / "model", random.Random(1)
    models = [quick_default(draws=5).fit(one.x, one.y) for one in (small_cohort(seed=3), small_cohort(seed=4))]
    scales = {model.time_scale_ for model in models}
    began = time.perf_counter()
    models[0].save(path)
    one_save = time.perf_counter() - began
    seen = set()
    for number in range(12):

        def work(order=models if number % 2 else models[::-1]):
            while True:
                for model in order:
                    model.save(path)

        before = os.stat(path).st_ino
        child = Child(work)
        # On a busy machine it takes a while until it saves at all.
        while os.stat(path).st_ino == before:
            time.sleep(0.0005)
        time.sleep(chance.uniform(0.0, 2 * one_save))
        child.kill()
        assert child.wait()[0] == -signal.SIGKILL
        seen.add(load(path).time_scale_)
    assert seen == scales
    models[0].save(path)
    assert os.listdir(tmp_path) == ["model"]


STREAM = {"time": "years", "event": "died", "method": "mini-batch", "training_passes": 2, "batch_size": 256}


def streamed(state=None):
    cohort = small_cohort(500)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NeuralSurvWarning)
        table = cohort.frame()
        kept = {} if state is None else {"checkpoint": state, "checkpoint_seconds": 0}
        return quick_default().fit_stream([table[:300], table[300:]], **STREAM, **kept)


def test_while_a_checkpoint_is_written_the_fit_goes_on_to_the_same_bits(tmp_path):
    whole = result(streamed())
    killed = went_on = 0
    # Calls of the first write, and of later ones.
    for number in (2, 4, 5, 7, 8, 9, 20, 60, 100):
        state = tmp_path / f"state{number}"

        def work(number=number, state=state):
            with faulty_writes(Fault(number, lambda: os.kill(os.getpid(), signal.SIGKILL))):
                streamed(state)

        status, _ = Child(work).wait()
        killed += status == -signal.SIGKILL
        went_on += state.exists()
        assert status in (0, -signal.SIGKILL)
    # The last of them, and the first, go on; that is what takes time.
    for state in sorted(tmp_path.glob("state*"))[:1] + sorted(tmp_path.glob("state*"))[-1:]:
        again = result(streamed(state))
        assert all(np.array_equal(again[name], whole[name]) for name in whole)
    assert killed > 6
    assert went_on > 2
    assert not list(tmp_path.glob(".*"))


def test_a_study_cut_off_at_any_byte_of_its_store_loses_the_last_line_only(tmp_path):
    job_store = command("job_store")
    whole = tmp_path / "whole.jsonl"
    records = [{"job": number, "value": number / 3} for number in range(4)]
    for record in records:
        job_store.append(whole, record)
    data = whole.read_bytes()
    assert [json.loads(line) for line in data.splitlines()] == records
    for size in range(len(data) + 1):
        cut = tmp_path / "cut.jsonl"
        cut.write_bytes(data[:size])
        done = job_store.read_store(cut)
        assert done == records[: data[:size].count(b"\n")]
        job_store.append(cut, {"job": 9})
        assert job_store.read_store(cut) == [*done, {"job": 9}]
