"""Several workers at one port: all answer, metrics are those of all, one that ends is replaced, all end together."""

import os
import re
import signal
import time
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from cli.run_command import refused
from neuralsurv.service.prometheus_metrics import PrometheusMetrics, SharedMetrics
from service.own_process import call, outcome, running, stop
from service.small_service import PERSON, write

pytestmark = pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="needs the process table of Linux")
BODY = {"people": [PERSON], "times": [0.5, 1.0]}


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return write(tmp_path_factory.mktemp("workers"))


def metrics(address):
    with urllib.request.urlopen(f"{address}/metrics", timeout=60) as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    return {(sample.name, sample.labels["worker"]): sample.value for family in families for sample in family.samples}


def until(found, seconds=60.0):
    end = time.monotonic() + seconds
    while not (value := found()):
        assert time.monotonic() < end, "in vain"
        time.sleep(0.05)
    return value


def children(process):
    """Return the workers of a process, by the process table of Linux."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with (
                    open(f"/proc/{entry}/stat", encoding="ascii") as stat,
                    open(f"/proc/{entry}/cmdline", "rb") as line,
                ):
                    ours = stat.read().rpartition(")")[2].split()[1] == str(process.pid)
                    if ours and b"spawn_main" in line.read():
                        found.append(int(entry))
            except (FileNotFoundError, ProcessLookupError):
                continue
    return found


def test_workers_answer_are_replaced_and_end_together(path):
    with running("serve", path, "--port", 0, "--workers", 2) as (process, said):
        address = said["url"]
        answers = [call(f"{address}/predict", BODY) for _ in range(20)]
        assert all(answer == answers[0] for answer in answers)

        def counted():
            found = metrics(address)
            return sum(value for (name, _), value in found.items() if name == "neuralsurv_predicted_people_total") == 20

        # The figures of the other worker are at most a second old.
        until(counted)
        first = min(children(process))
        os.kill(first, signal.SIGKILL)
        until(lambda: len(children(process)) == 2 and first not in children(process))
        assert all(outcome(f"{address}/predict", BODY)[0] == 200 for _ in range(5))
        workers = children(process)
        _, log = stop(process)
        assert process.returncode == -signal.SIGTERM
        assert not [worker for worker in workers if os.path.exists(f"/proc/{worker}")]
        assert re.search(r"worker 0 has ended with code -9 and is restarted", log)
        assert "Traceback" not in log


def test_workers_end_with_who_started_them(path):
    with running("serve", path, "--port", 0, "--workers", 2) as (process, _):
        workers = children(process)
        assert len(workers) == 2
        process.kill()
        process.wait(60)
        until(lambda: not [worker for worker in workers if os.path.exists(f"/proc/{worker}")])


def test_an_interrupt_ends_all(path):
    with running("serve", path, "--port", 0, "--workers", 2) as (process, _):
        out, log = stop(process, signal.SIGINT)
        assert (process.returncode, out) == (0, "")
        assert "Traceback" not in log


def test_a_model_that_cannot_be_opened_is_said_once(path, tmp_path):
    damaged = tmp_path / "m.neuralsurv"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    damaged.write_bytes(data)
    said = refused("serve", damaged, "--port", 0, "--workers", 2)
    assert said == "m.neuralsurv is damaged: its content has changed since it was written."


def test_metrics_of_several_workers_are_labelled(tmp_path):
    both = [PrometheusMetrics(SharedMetrics(tmp_path, number)) for number in (0, 1)]
    for count, one in enumerate(both, 1):
        one.people.inc(count)
        one.answered("/predict", "POST", 200, 0.01)
        one.share()
    both[0].people.inc(10)
    for one, first in ((both[1], 1), (both[0], 11)):
        families = {family.name: family for family in text_string_to_metric_families(one.text().decode())}
        people = {sample.labels["worker"]: sample.value for sample in families["neuralsurv_predicted_people"].samples}
        # Those of the worker that is asked are fresh.
        assert people == {"0": first, "1": 2}
        assert len({sample.labels["worker"] for sample in families["neuralsurv_request_seconds"].samples}) == 2
