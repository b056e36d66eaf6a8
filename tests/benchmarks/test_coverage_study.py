"""The coverage study as a command: jobs are done once, a killed run goes on, page and picture come from the store."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

from false_alarm import z_bound

FOLDER = Path(__file__).parents[2] / "benchmarks" / "proof"
SMALL = ["--rows", "25", "--censoring", "0.5", "--design", "log-normal", "--draws", "40"]


@pytest.fixture
def study(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    # Under another name: `coverage` is what test runners import to measure lines.
    spec = importlib.util.spec_from_file_location("coverage_study", FOLDER / "coverage_study.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_small_study(study, tmp_path, capsys):
    store, page, picture = tmp_path / "store.jsonl", tmp_path / "page.md", tmp_path / "picture.png"
    assert study.main(["run", "--store", str(store), "--replicates", "1", *SMALL]) == 0
    assert "1 jobs, 0 of them stored, 1 to do" in capsys.readouterr().out
    first = store.read_text(encoding="utf-8")
    (record,) = map(json.loads, first.splitlines())
    assert (record["design"], record["rows"], record["censoring"], record["replicate"]) == ("log-normal", 25, 0.5, 0)
    widths = [record["levels"][level]["width"] for level in ("0.5", "0.8", "0.9", "0.95")]
    assert widths == sorted(widths)
    # A run that was killed while it wrote a line: the half line goes, the job is done.
    store.write_text(first + '{"preset": "def', encoding="utf-8")
    assert study.main(["run", "--store", str(store), "--replicates", "2", *SMALL]) == 0
    assert "2 jobs, 1 of them stored, 1 to do" in capsys.readouterr().out
    lines = store.read_text(encoding="utf-8").splitlines()
    assert lines[0] + "\n" == first
    assert [json.loads(line)["replicate"] for line in lines] == [0, 1]
    assert study.main(["table", "--store", str(store), "--out", str(page)]) == 0
    mean = np.mean([json.loads(line)["levels"]["0.9"]["pointwise"] for line in lines])
    assert f"| log-normal | {mean:.3f} ±" in page.read_text(encoding="utf-8")
    assert study.main(["plot", "--store", str(store), "--out", str(picture)]) == 0
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_results_of_other_choices_are_not_taken(study, tmp_path):
    store = tmp_path / "store.jsonl"
    store.write_text(json.dumps({"preset": "default", "rows": 25, "fingerprint": "another"}) + "\n", encoding="utf-8")
    with pytest.raises(SystemExit, match="holds no result of today's presets"):
        study.main(["table", "--store", str(store), "--out", str(tmp_path / "page.md")])


def test_measures_of_a_posterior_with_known_coverage(study):
    from coverage_jobs import measured

    class Draws:
        """Independent normal posteriors around estimates with the right error."""

        def __init__(self, estimate, deviation):
            self.mean = pd.DataFrame(estimate)
            self.std = pd.DataFrame(np.full_like(estimate, deviation))

        def interval(self, level):
            half = norm.isf((1 - level) / 2) * self.std
            return self.mean - half, self.mean + half

    rng = np.random.default_rng(0)
    truth = rng.normal(size=(400, 20))
    found = measured(Draws(truth + 0.5 * rng.normal(size=truth.shape), 0.5), truth)
    bound, whole = z_bound(6), 0.9**20
    assert abs(found["levels"]["0.9"]["pointwise"] - 0.9) < bound * np.sqrt(0.9 * 0.1 / truth.size)
    assert abs(found["levels"]["0.9"]["simultaneous"] - whole) < bound * np.sqrt(whole * (1 - whole) / 400)
    # A mean of n squared normal numbers has variance 2 / n, its root half of that deviation; 1e-3 for the rounding.
    assert abs(found["standardised"] - 1) < bound * np.sqrt(0.5 / truth.size) + 1e-3
    assert abs(found["levels"]["0.9"]["width"] - norm.isf(0.05)) < 1e-4
    # A tenth of the errors lie beyond the band; of a normal one this share lies beyond the band and 0.01 more.
    near = 1 - 2 * norm.sf(norm.isf(0.05) + 0.01 / 0.5)
    assert abs(found["within"] - near) < bound * np.sqrt(near * (1 - near) / truth.size)
    middle = (truth >= 0.02) & (truth <= 0.98)
    assert found["middle_share"] == pytest.approx(middle.mean(), abs=1e-4)
    assert abs(found["middle"] - 0.9) < bound * np.sqrt(0.09 / middle.sum())
    narrow = measured(Draws(truth + 0.5 * rng.normal(size=truth.shape), 0.25), truth)
    assert abs(narrow["standardised"] - 2) < 2 * bound * np.sqrt(0.5 / truth.size) + 1e-3
    assert narrow["levels"]["0.9"]["pointwise"] < 0.65
