"""A clock that jumps, by hand, by a time server, by a suspended machine: nothing crashes, nothing waits for ever."""

import os
import random
import re
import time
from pathlib import Path

import numpy as np
import pytest

import neuralsurv
from neuralsurv.service.deadline import Deadline
from neuralsurv.service.model_watch import ModelWatch
from service.small_service import ask, client, write
from small_cohort import quick_default, small_cohort

SOURCES = sorted(Path(neuralsurv.__file__).parent.rglob("*.py"))
YEAR = 366 * 86400


@pytest.fixture
def jumps(monkeypatch):
    """Let the time of day jump by up to thirty years, back and forth, at every look at it."""
    chance, true, seen = random.Random(0), time.time, []

    def jumping():
        seen.append(true() + chance.uniform(-30, 30) * YEAR)
        return seen[-1]

    monkeypatch.setattr(time, "time", jumping)
    monkeypatch.setattr(time, "time_ns", lambda: int(jumping() * 1e9))
    return seen


def test_a_fit_is_the_same_and_its_bars_are_drawn(jumps, capsys):
    cohort = small_cohort()
    jumping = quick_default(verbose=True).fit(cohort.x, cohort.y)
    shown = capsys.readouterr().err
    assert "scales of the prior" in shown
    # Rich writes an elapsed time of less than nothing with a sign.
    assert "-" not in "".join(line.rsplit(" ", 1)[-1] for line in shown.splitlines() if ":" in line.rsplit(" ", 1)[-1])
    assert abs(time.time() - time.time()) > 60, "the clock does not jump"
    plain = quick_default().fit(cohort.x, cohort.y)
    assert np.array_equal(jumping.predict(cohort.x), plain.predict(cohort.x))


def test_a_streamed_fit_saves_in_time_and_goes_on(jumps, tmp_path):
    cohort = small_cohort(300)
    settings = {"time": "years", "event": "died", "training_passes": 1, "checkpoint": tmp_path / "state"}
    first = quick_default().fit_stream([cohort.frame()], **settings, checkpoint_seconds=0)
    assert (tmp_path / "state").exists()
    os.utime(tmp_path / "state", (4e9, 4e9))
    again = quick_default().fit_stream([cohort.frame()], **settings, checkpoint_seconds=1e9)
    assert np.array_equal(first.predict(cohort.x), again.predict(cohort.x))


def test_deadlines_hold(jumps):
    deadline = Deadline.after(60)
    for _ in range(50):
        time.time()
        assert 59 < deadline.left <= 60
        deadline.check()


def test_a_service_answers_and_takes_up_a_file_of_another_century(jumps, tmp_path):
    path = write(tmp_path)
    with client(path) as service:
        answers = [ask(service) for _ in range(5)]
        assert [answer.status_code for answer in answers] == [200] * 5
        figures = service.get("/metrics").text
    durations = [line for line in figures.splitlines() if "seconds_sum" in line]
    assert durations
    assert all(0 <= float(line.rsplit(" ", 1)[1]) < 1000 for line in durations)
    watch = ModelWatch(path)
    for number, moment in enumerate((1.0, 4e9, 1e9)):
        (tmp_path / "other").mkdir(exist_ok=True)
        other = write(tmp_path / "other", seed=4 - number % 2)
        os.utime(other, (moment, moment))
        os.replace(other, path)
        assert watch.refresh()


def test_nothing_is_measured_by_the_time_of_day():
    look = re.compile(r"\btime\.time(?:_ns)?\b|\bdatetime\.(?:now|utcnow)\b|\bdate\.today\b")
    found = {path.name: look.findall(path.read_text(encoding="utf-8")) for path in SOURCES}
    # When a model was loaded and a report was made is shown to people; nothing is worked out from it.
    assert {name: of for name, of in found.items() if of} == {
        "model_watch.py": ["datetime.now"],
        "report.py": ["date.today"],
    }
