"""The commands behind the page on large cohorts run on small sizes; their stored results keep what the page says."""

import json
import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks" / "large"
SAC3 = SimpleNamespace(**runpy.run_path(str(FOLDER / "sac3.py")))


def test_a_small_cohort_goes_to_disk_and_through_a_streamed_fit(tmp_path):
    import pandas as pd

    command = [sys.executable, str(FOLDER / "scaling.py")]
    subprocess.run([*command, "write", str(tmp_path), "3000"], check=True)
    table = pd.read_parquet(tmp_path)
    assert len(table) == 3000
    assert 0.3 < table["event"].mean() < 0.9
    done = subprocess.run(
        [*command, "fit", str(tmp_path)], check=True, capture_output=True, text=True, encoding="utf-8"
    )
    record = json.loads(done.stdout.splitlines()[-1])
    assert record["rows"] == 3000
    assert record["error"] < 0.1
    assert record["before_mib"] <= record["peak_mib"]


def test_what_a_size_would_take_follows_the_formula():
    given = runpy.run_path(str(FOLDER / "costs.py"))
    small, large = (given["Size"](rows, 10, 64, 12, 0.5, 300, 900) for rows in (10**6, 10**9))
    assert large.sweep_products() == pytest.approx(1000 * small.sweep_products())
    assert large.memory() == small.memory()
    assert large.disk(100) == 8 * 14 * 10**9 / 100
    assert small.traffic(1, 5) == 0
    assert small.traffic(2, 5) == 5 * 8 * (4 + 300 + 300 * 301 // 2)


def test_stored_runs_grow_linearly_and_their_memory_does_not():
    runs = {
        record["rows"]: record
        for record in map(json.loads, (FOLDER / "scaling.jsonl").read_text(encoding="utf-8").splitlines())
    }
    assert {10**5, 10**6, 10**7} <= runs.keys()
    most, least = max(runs), min(runs)
    assert runs[most]["cpu_seconds"] / runs[least]["cpu_seconds"] < 1.3 * most / least
    assert all(record["peak_mib"] < 1024 for record in runs.values())


def test_stored_scores_are_of_the_same_rows():
    records = [json.loads(line) for line in (FOLDER / "sac3.jsonl").read_text(encoding="utf-8").splitlines()]
    runs = {(record["method"], record["split"]): record for record in records if record["method"] in SAC3.METHODS}
    splits = {number for _, number in runs}
    assert len(splits) > 1
    assert {(name, number) for name in SAC3.METHODS for number in splits} == runs.keys()
    assert {(record["train_rows"], record["test_rows"]) for record in records} == {(95_000, 5_000)}
    for number in splits:
        assert runs["ours", number]["ibs"] < runs["Kaplan-Meier", number]["ibs"]


def test_calibration_error_is_that_of_groups_and_without_the_noise_of_mixed_groups():
    generator = np.random.default_rng(0)
    true = generator.uniform(size=(4000, 3))
    nothing_known = np.full_like(true, 0.5)
    assert SAC3.against_truth(true, true) == {"calibration_error": 0.0, "distance_from_truth": 0.0}
    assert SAC3.against_truth(true + 0.05, true)["calibration_error"] == pytest.approx(0.05)
    # Twenty groups of 200 mixed people: their means would be off by 0.29 / sqrt(200) = 0.02.
    assert SAC3.against_truth(nothing_known, true)["calibration_error"] < 0.012
    assert SAC3.against_truth(nothing_known, true)["distance_from_truth"] == pytest.approx(0.25, abs=0.01)
    assert SAC3.against_truth(true**2, true)["calibration_error"] == pytest.approx((1 / 30) ** 0.5, rel=0.03)


def test_calibration_errors_are_compared_split_by_split():
    errors = {"ours": (0.1, 0.2), "CoxTime": (0.3, 0.1), "PCHazard": (0.4, 0.5)}
    latest = {
        (name, number): {"calibration_error": value}
        for name, values in errors.items()
        for number, value in enumerate(values)
    }
    said = SAC3.comparison(latest, [0, 1])
    # Differences 0.2 and -0.1: mean 0.05, standard deviation 0.3 / sqrt(2), standard error 0.15.
    assert "ours 0.1500; CoxTime 0.2000, +0.0500 ± 0.1500 (standard error) from ours" in said
    assert "which is lower on 1 of 2 splits; PCHazard 0.4500, +0.3000 ± 0.0000" in said
