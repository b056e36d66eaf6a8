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
SMALL = ["--rows", "60", "--censoring", "0.2", "0.5", "--design", "accelerated", "--draws", "40"]


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
    assert (record["design"], record["rows"], record["censoring"], record["replicate"]) == ("accelerated", 60, 0.2, 0)
    coverage = [record["coverage"][level] for level in ("0.5", "0.8", "0.9", "0.95")]
    assert coverage == sorted(coverage)
    assert record["ibs"] > record["ibs_truth"]
    assert not [name for name, value in record.items() if isinstance(value, list) and name != "warnings"]
    # A run that was killed while it wrote a line: the half line goes, the job is done. The shares take turns.
    store.write_text(first + '{"preset": "def', encoding="utf-8")
    assert study.main(["run", "--store", str(store), "--replicates", "2", *SMALL]) == 0
    assert "2 jobs, 1 of them stored, 1 to do" in capsys.readouterr().out
    lines = store.read_text(encoding="utf-8").splitlines()
    assert lines[0] + "\n" == first
    assert [(json.loads(line)["replicate"], json.loads(line)["censoring"]) for line in lines] == [(0, 0.2), (1, 0.5)]
    assert study.main(["table", "--store", str(store), "--out", str(page)]) == 0
    covered = [json.loads(line)["coverage"]["0.9"] for line in lines]
    error = np.std(covered, ddof=1) / np.sqrt(2)
    text = page.read_text(encoding="utf-8")
    assert "## `default`\n" in text
    assert f"| accelerated | {np.mean(covered):.3f} ± {error:.3f} (2) |" in text
    assert study.main(["plot", "--store", str(store), "--out", str(picture)]) == 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    capsys.readouterr()
    assert study.main(["table", "--check", "--store", str(store)]) == 1
    assert "accelerated, 60 rows: short" in capsys.readouterr().out


def records(model, **changes):
    """Return records of every cell that hold what is asked for, but for what is changed."""
    from coverage_jobs import DESIGNS, ROWS

    def one(design, rows, replicate):
        plain = {"preset": "default", "design": design, "rows": rows, "censoring": 0.5, "replicate": replicate}
        # Around 0.9 with a standard error of 0.01.
        noise = 0.01 * np.sqrt(20) * (-1) ** replicate * np.sqrt(19 / 20)
        found = {"coverage": {str(level): 0.9 + noise for level in (0.5, 0.8, 0.9, 0.95)}, "interval_90": 0.9 + noise}
        return plain | found | {"model": model, "commit": "0" * 10, "date": "2026-11-18"}

    made = [one(design, rows, replicate) for design in DESIGNS for rows in ROWS for replicate in range(20)]
    for record in made:
        if (record["design"], record["rows"]) == changes.get("cell"):
            for level in record["coverage"]:
                record["coverage"][level] += changes.get("by", 0.0)
            record["interval_90"] += changes.get("interval_by", 0.0)
    return made


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, None),
        # The mean leaves 0.85 by less, and by more, than two standard errors of 0.01.
        ({"cell": ("cure", 100), "by": -0.069}, None),
        ({"cell": ("cure", 100), "by": -0.071}, "cure, 100 rows: outside, coverage 0.9 0.829 ± 0.010 in 20 cohorts"),
        ({"cell": ("turning", 3000), "by": 0.071}, "turning, 3000 rows: outside"),
        # SAC is judged by its prediction interval, the others are not.
        ({"cell": ("SAC", 60), "by": -0.5}, None),
        ({"cell": ("cure", 60), "interval_by": -0.5}, None),
        ({"cell": ("SAC", 60), "interval_by": -0.041}, "SAC, 60 rows: outside, interval_90 0.859 ± 0.010"),
    ],
)
def test_check_is_by_two_standard_errors(study, tmp_path, capsys, changes, said):
    from coverage_jobs import digest

    store = tmp_path / "store.jsonl"
    lines = records(digest("default"), **changes)
    store.write_text("".join(json.dumps(record) + "\n" for record in lines), encoding="utf-8")
    assert study.main(["table", "--check", "--store", str(store)]) == (0 if said is None else 1)
    assert (said or "every cell holds") in capsys.readouterr().out


def test_missing_and_short_cells_fail_the_check(study):
    from coverage_report import problems, table_of

    lines = records("today")
    assert problems(table_of(lines)) == []
    assert problems(table_of(lines[1:])) == ["log-normal, 60 rows: short, coverage 0.9 0.898 ± 0.010 in 19 cohorts"]
    assert problems(table_of(lines[20:])) == ["log-normal, 60 rows: missing"]


def test_results_of_another_model_are_marked_and_fail_the_check(study, tmp_path, capsys):
    store, page = tmp_path / "store.jsonl", tmp_path / "page.md"
    store.write_text("".join(json.dumps(record) + "\n" for record in records("another")), encoding="utf-8")
    assert study.main(["table", "--check", "--store", str(store)]) == 1
    assert "the results are of 2026-11-18 and of another model than today's" in capsys.readouterr().out
    assert study.main(["table", "--store", str(store), "--out", str(page)]) == 0
    assert "## `default` as of 2026-11-18" in page.read_text(encoding="utf-8")


def test_stored_results_of_before_are_read(study):
    from coverage_report import OLDER, flat, table_of
    from job_store import read_store

    stored = [record for record in read_store(FOLDER / "coverage.jsonl") if "model" not in record]
    assert len(stored) == 165
    table = table_of(stored)
    assert len(table) == 165
    assert set(table["model"]) == {OLDER}
    first = stored[0]
    line = flat(first)
    assert line["coverage 0.9"] == first["levels"]["0.9"]["pointwise"]
    assert line["half_width"] == first["levels"]["0.9"]["width"] / 2
    assert line["error_in_sd"] == first["standardised"]
    assert line["absolute_error"] == first["absolute_error"]


def test_no_results(study, tmp_path):
    with pytest.raises(SystemExit, match="the store holds no results; do `run` first"):
        study.main(["table", "--store", str(tmp_path / "none.jsonl"), "--out", str(tmp_path / "page.md")])
    with pytest.raises(SystemExit, match="the store holds no results; do `run` first"):
        study.main(["table", "--check", "--store", str(tmp_path / "none.jsonl")])


def test_no_results_of_a_preset(study):
    from coverage_report import newest

    with pytest.raises(SystemExit, match="holds no results of paper; do `run` first"):
        newest(records("today"), "paper")


def test_all_designs_can_be_censored_as_asked(study):
    from coverage_jobs import CENSORING, DESIGNS, Job, cohort_of

    assert len(DESIGNS) == 11
    for design in DESIGNS:
        for share in CENSORING:
            assert len(cohort_of(Job("default", design, 60, share, 0)).time) == 60


class EventTimes:
    """Predictive draws of event times, summarised as the package does."""

    def __init__(self, draws):
        self.draws = draws

    def quantile(self, probability):
        return pd.Series(np.quantile(self.draws, probability, axis=0, method="inverted_cdf"))

    def interval(self, level):
        return self.quantile((1 - level) / 2), self.quantile((1 + level) / 2)


def test_event_times_of_the_truth_are_covered(study):
    from coverage_jobs import event_times_measured

    from neuralsurv.data.simulate import proportional_hazards_cohort

    cohort = proportional_hazards_cohort(400, censoring=0, seed=1)
    people = proportional_hazards_cohort(100, seed=2).x
    rng = np.random.default_rng(3)
    draws = np.stack([cohort.design.event_times(people, rng) for _ in range(4_000)])
    # An interval between two sample quantiles holds what it should up to a deviation of √(0.09 / 4,000) a person.
    allowed = z_bound(4) * np.sqrt(0.09 / 4_000 / 100) + 1e-3
    found = event_times_measured(EventTimes(draws), cohort, people)
    assert abs(found["interval"] - 0.9) < allowed
    assert abs(found["interval_90"] - 0.9) < allowed
    # Follow-up ended at 20: what lies beyond is infinite, and the 95 % quantile is for nearly everybody.
    cohort.time[:] = np.minimum(cohort.time, 20.0)
    cut = event_times_measured(EventTimes(np.where(draws > 20, np.inf, draws)), cohort, people)
    assert 0.93 < cut["interval_mass"] <= 0.9505
    assert abs(cut["interval"] - cut["interval_mass"]) < allowed
    assert abs(cut["interval_90"] - 0.9) < allowed
    # Draws that are three times as late miss.
    late = event_times_measured(EventTimes(3 * draws), cohort, people)
    assert late["interval"] < 0.8


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
    times = np.arange(1.0, 21.0)
    estimate = truth + 0.5 * rng.normal(size=truth.shape)
    found = measured(Draws(estimate, 0.5), truth, times)
    bound = z_bound(6)
    for level, covered in found["coverage"].items():
        share = float(level)
        assert abs(covered - share) < bound * np.sqrt(share * (1 - share) / truth.size)
    # The trapezoid rule over 20 steps from 0, where both curves are 1.
    excess = np.concatenate([[0], ((estimate - truth) ** 2).mean(0)])
    assert found["ibs"] - found["ibs_truth"] == pytest.approx((excess[1:] + excess[:-1]).sum() / 40, abs=2e-5)
    # A mean of n squared normal numbers has variance 2 / n, its root half of that deviation; 1e-3 for the rounding.
    assert abs(found["error_in_sd"] - 1) < bound * np.sqrt(0.5 / truth.size) + 1e-3
    assert abs(found["half_width"] - 0.5 * norm.isf(0.05)) < 1e-4
    # A tenth of the errors lie beyond the band; of a normal one this share lies beyond the band and 0.01 more.
    near = 1 - 2 * norm.sf(norm.isf(0.05) + 0.01 / 0.5)
    assert abs(found["within"] - near) < bound * np.sqrt(near * (1 - near) / truth.size)
    middle = (truth >= 0.02) & (truth <= 0.98)
    assert abs(found["middle"] - 0.9) < bound * np.sqrt(0.09 / middle.sum())
    narrow = measured(Draws(truth + 0.5 * rng.normal(size=truth.shape), 0.25), truth, times)
    assert abs(narrow["error_in_sd"] - 2) < 2 * bound * np.sqrt(0.5 / truth.size) + 1e-3
    assert narrow["coverage"]["0.9"] < 0.65
