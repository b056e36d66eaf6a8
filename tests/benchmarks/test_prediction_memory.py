"""The memory benchmark runs and writes its record; the full size is a command, with its results stored beside it."""

import json
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "benchmarks" / "memory"


def test_a_small_run(tmp_path):
    out = tmp_path / "results.jsonl"
    out.write_text('{"date": "earlier"}\n', encoding="utf-8")
    size = ["--people", "30", "--times", "5", "--draws", "20"]
    command = [sys.executable, str(FOLDER / "prediction_memory.py"), *size, "--out", str(out)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, encoding="utf-8")
    earlier, record = (json.loads(line) for line in out.read_text(encoding="utf-8").splitlines())
    assert earlier == {"date": "earlier"}
    assert (record["people"], record["times"], record["draws"], record["weights"]) == (30, 5, 20, 113)
    assert 0 < record["before_mib"] <= record["after_mib"]
    assert set(record["machine"]) == {"system", "processor", "cores"}
    assert {"python", "torch", "numpy", "pandas", "neuralsurv"} == set(record["versions"])
    assert "peak memory after it" in done.stdout


def test_stored_results_stay_within_a_gibibyte_and_do_not_grow_with_the_people():
    runs = [json.loads(line) for line in (FOLDER / "results.jsonl").read_text(encoding="utf-8").splitlines()]
    assert len(runs) >= 2
    # The tables are held twice: once inside the prediction and once in the user's hands.
    beyond = [run["after_mib"] - run["before_mib"] - 2 * run["tables_mib"] for run in runs]
    assert all(run["after_mib"] < 1024 for run in runs)
    # Blocks of 64 MiB, and as much again for what is worked out from them.
    assert all(rest < 128 for rest in beyond)
