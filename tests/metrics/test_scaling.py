"""The scaling benchmark runs at a small size; its stored results, and what a call may take in memory."""

import importlib.util
import re
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from neuralsurv.metrics import antolini_concordance, harrell_concordance

FOLDER = Path(__file__).parents[2] / "benchmarks" / "metrics"


@pytest.fixture(scope="module")
def scaling():
    spec = importlib.util.spec_from_file_location("metrics_scaling", FOLDER / "scaling.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_a_small_run(scaling, monkeypatch, tmp_path, capsys):
    """In this process, for speed; the table compares each value with that of the other package as it goes."""
    monkeypatch.setattr(scaling, "in_a_fresh_process", scaling.measure)
    out = tmp_path / "results.md"
    scaling.main(["--rows", "200", "300", "--peer-limit", "200", "--out", str(out)])
    lines = [line for line in out.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    assert len(lines) == 2 + 4 * 2
    assert all(line in capsys.readouterr().out for line in lines[:1])
    assert [line.split(" | ")[0] for line in lines[2::2]] == ["| harrell", "| uno", "| antolini", "| brier"]
    assert lines[3].endswith("|  |  |  |")


def test_a_value_that_differs_from_the_other_package_stops_the_run(scaling, monkeypatch):
    found = {"ours": 0.7, "peer": 0.6}
    monkeypatch.setattr(
        scaling, "in_a_fresh_process", lambda whose, *_: {"value": found[whose], "seconds": 1.0, "mib": 0.0}
    )
    with pytest.raises(AssertionError, match=r"harrell at 10 rows: ours 0\.7, theirs 0\.6"):
        scaling.table([10], 10)


def test_stored_results_are_seconds_and_bounded_memory_at_100_000_rows():
    text = (FOLDER / "results.md").read_text(encoding="utf-8")
    assert re.search(r"on \d{4}-\d\d-\d\d: Python", text)
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if " | 100,000 | " in line]
    assert [row[0] for row in rows] == ["harrell", "uno", "antolini", "brier"]
    # The table of curves alone takes 76 MiB.
    assert all(float(row[2]) < 20 and float(row[3]) < 200 for row in rows)


def test_no_table_of_pairs_is_held(scaling):
    rows = 20_000
    c = scaling.cohort(rows)
    tracemalloc.start()
    antolini_concordance(c["time"], c["event"], c["survival"], c["times"], tau=c["tau"])
    harrell_concordance(c["time"], c["event"], c["risk"])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    pairs = rows * np.count_nonzero(c["event"])
    assert peak < 40 * 2**20 < pairs / 4
