"""The benchmark of a million weights runs small; the full size is a command, with its result stored beside it."""

import json
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "benchmarks" / "memory"


def test_a_small_run(tmp_path):
    out = tmp_path / "results.jsonl"
    size = ["--rows", "25", "--width", "8", "--people", "1", "--draws", "10", "--epochs", "1"]
    command = [sys.executable, str(FOLDER / "million_weights.py"), *size, "--out", str(out)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, encoding="utf-8")
    (record,) = (json.loads(line) for line in out.read_text(encoding="utf-8").splitlines())
    assert record["weights"] > 8 * 8 + 6 * 8
    assert 0 < record["before_mib"] <= record["fitted_mib"] <= record["predicted_mib"]
    assert "peak memory" in done.stdout


def test_the_stored_run_has_a_million_weights_and_stays_within_memory():
    runs = [json.loads(line) for line in (FOLDER / "million_weights.jsonl").read_text(encoding="utf-8").splitlines()]
    assert max(run["weights"] for run in runs) > 10**6
    assert all(run["predicted_mib"] < 8 * 1024 for run in runs)
