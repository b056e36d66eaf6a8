"""The small studies as commands: each runs, goes on where it was, and its table says what is stored."""

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import kstest

from false_alarm import FALSE_ALARM, z_bound
from neuralsurv.metrics import integrated_brier_score

FOLDER = Path(__file__).parents[1] / "proof"


@pytest.fixture
def load(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))

    def module(name):
        spec = importlib.util.spec_from_file_location(f"proof_{name}", FOLDER / f"{name}.py")
        found = importlib.util.module_from_spec(spec)
        # Dataclasses look their module up by name.
        monkeypatch.setitem(sys.modules, spec.name, found)
        spec.loader.exec_module(found)
        return found

    return module


def stored(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def run_twice(study, store, capsys, *arguments, jobs):
    """Run, cut the last line as a kill would, run again; return the records."""
    command = ["run", "--store", str(store), "--draws", "30", *arguments]
    assert study.main(command) == 0
    assert f"{jobs} jobs, 0 of them stored, {jobs} to do" in capsys.readouterr().out
    lines = store.read_text(encoding="utf-8").splitlines(keepends=True)
    store.write_text("".join(lines[:-1]) + lines[-1][:20], encoding="utf-8")
    assert study.main(command) == 0
    assert f"{jobs} jobs, {jobs - 1} of them stored, 1 to do" in capsys.readouterr().out
    records = stored(store)
    assert len(records) == jobs
    for record in records:
        assert {"model", "commit", "date"} <= set(record)
        assert not [name for name, value in record.items() if isinstance(value, list)]
    return records


def test_continuity(load, tmp_path, capsys):
    study = load("continuity")
    store, page, picture = tmp_path / "s.jsonl", tmp_path / "p.md", tmp_path / "p.png"
    small = ["--design", "accelerated", "--rows", "30", "35", "40", "45", "50", "--replicates", "2"]
    records = run_twice(study, store, capsys, *small, jobs=10)
    assert study.main(["table", "--store", str(store), "--out", str(page)]) == 0
    values = [record["half_width"] for record in records if record["rows"] == 40]
    cell = f"{np.mean(values):.3f} ± {np.std(values, ddof=1) / np.sqrt(2):.3f}"
    assert cell in page.read_text(encoding="utf-8")
    assert study.main(["plot", "--store", str(store), "--out", str(picture)]) == 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    with pytest.raises(SystemExit, match="--rows 4001: the cohorts have 4000 rows"):
        study.main(["run", "--store", str(store), "--rows", "4001"])


def test_people_and_times_are_the_same_for_all_rows(load, monkeypatch):
    study = load("continuity")
    import coverage_jobs

    seen = []

    def measured(estimator, cohort, people, last=None):
        seen.append((cohort, people, last))
        return {}

    monkeypatch.setattr(coverage_jobs, "fitted_and_measured", measured)
    for rows in (20, 50):
        study.run_job(study.Job("crossing", 3, rows), "model", 10)
    (few, people, last), (many, others, same) = seen
    assert people.equals(others)
    assert last == same
    assert len(few.time) == 20
    np.testing.assert_array_equal(few.time, many.time[:20])
    assert few.x.equals(many.x.head(20))


def test_contrasts_see_a_step_and_no_smooth_trend(load):
    study = load("continuity")
    rows = np.array(study.ROWS)
    weights = study.contrasts(rows)
    logs = np.log(rows)
    np.testing.assert_allclose(weights @ (3 - 0.7 * logs + 0.2 * logs**2), 0, atol=1e-10)
    for gap in range(1, len(rows)):
        assert weights[gap - 1] @ (rows >= rows[gap]) == pytest.approx(1)


def test_steps_are_found_and_noise_is_not(load):
    study = load("continuity")
    rows = np.array(study.ROWS)
    rng = np.random.default_rng(4)
    noise = rng.normal(size=(40, 8)) + 5 * rng.normal(size=(40, 1))
    smooth = 2 * np.log(rows) ** 2
    with_step = study.steps(rows, noise + smooth + 4 * (rows > 2000))
    at = int(np.argmax(np.abs(with_step.ratio)))
    assert rows[at] == 1900
    assert abs(with_step.size[at] - 4) < z_bound() * with_step.error[at]
    assert with_step.p_value < 0.001
    # Noise that all sizes of a cohort share cancels: the error is that of the contrast alone.
    expected = np.linalg.norm(study.contrasts(rows), axis=1) / np.sqrt(40)
    np.testing.assert_allclose(with_step.error, expected, rtol=z_bound(7) / np.sqrt(2 * 39))
    # Without a step the probabilities are uniform.
    none = [study.steps(rows, rng.normal(size=(9, 8)) + smooth).p_value for _ in range(300)]
    assert kstest(none, "uniform").pvalue > FALSE_ALARM


def test_continuity_with_too_few_cohorts(load, tmp_path, capsys):
    study = load("continuity")
    line = {"design": "crossing", "replicate": 0, "coverage": {"0.9": 0.9}, "absolute_error": 0.1, "half_width": 0.2}
    lines = [line | {"rows": rows, "model": "m", "commit": "c", "date": "2026-11-18"} for rows in study.ROWS]
    text = study.page(lines)
    assert "| crossing | coverage of the 90 % band | too few cohorts or N |" in text
    assert "0.900 | 1 |" in text


def test_no_signal(load, tmp_path, capsys):
    study = load("no_signal")
    store, page = tmp_path / "s.jsonl", tmp_path / "p.md"
    small = ["--cohort", "VLC-137", "--folds", "2", "--permutations", "2"]
    records = run_twice(study, store, capsys, *small, jobs=2)
    assert study.main(["table", "--store", str(store), "--out", str(page)]) == 0
    mean = np.mean([record["difference"] for record in records])
    error = np.sqrt(sum(record["standard_error"] ** 2 for record in records)) / 2
    assert f"{1000 * mean:+.2f} ± {1000 * error:.2f}" in page.read_text(encoding="utf-8")
    for record in records:
        assert record["difference"] == pytest.approx(record["ibs"] - record["ibs_km"], abs=3e-6)


def test_outcomes_are_permuted_and_kept_together(load):
    from neuralsurv_bench.cohorts import load as cohort_of

    study = load("no_signal")
    assert len(study.COHORTS) == 10
    for name, (source, rows) in study.COHORTS.items():
        whole = cohort_of(source)
        x, time, event = study.permuted(study.Job(name, 0, 5))
        assert len(x) == len(time) == len(event) == rows
        assert set(zip(time, event, strict=True)) <= set(zip(whole.time, whole.event, strict=True))
        assert not np.array_equal(time, study.permuted(study.Job(name, 1, 5))[1])
    # VLC has no rows to leave out: the same outcomes, in an order that has nothing to do with the covariates.
    whole = cohort_of("VLC")
    x, time, event = study.permuted(study.Job("VLC-137", 0, 5))
    assert sorted(time) == sorted(whole.time)
    moved = np.argsort(np.lexsort(x.T.to_numpy()))
    aligned = np.lexsort(whole.frame.T.to_numpy())[moved]
    assert x.equals(whole.frame.iloc[aligned].reset_index(drop=True))
    correlation = np.corrcoef(np.argsort(np.argsort(time)), np.argsort(np.argsort(whole.time[aligned])))[0, 1]
    assert abs(correlation) < z_bound() / np.sqrt(137)


def test_a_patient_of_two_rows_is_taken_once(load):
    from neuralsurv_bench.cohorts import load as cohort_of

    study = load("no_signal")
    whole = cohort_of("COLON")
    x, _, _ = study.permuted(study.Job("COLON-250", 0, 5))
    # The two rows of a patient have the same covariates; among 250 patients few are alike by chance.
    twice = whole.frame.groupby(whole.group).nunique().max(axis=None)
    assert twice == 1
    by_patient = whole.frame.groupby(whole.group).first()
    assert x.duplicated().mean() <= 2 * by_patient.duplicated().mean() + 0.02


def test_too_many_rows_are_refused(load, monkeypatch):
    study = load("no_signal")
    monkeypatch.setitem(study.COHORTS, "VLC-138", ("VLC", 138))
    with pytest.raises(RuntimeError, match="VLC has 137 patients; 138 were asked for"):
        study.permuted(study.Job("VLC-138", 0, 5))


def test_scores_of_rows_are_the_parts_of_the_brier_score(load):
    study = load("no_signal")
    rng = np.random.default_rng(0)
    time, event = np.ceil(rng.exponential(10, 200)), rng.uniform(size=200) < 0.6
    train = np.ceil(rng.exponential(10, 300)), rng.uniform(size=300) < 0.6
    grid = np.linspace(0.5, 18, 30)
    survival = np.exp(-grid / rng.uniform(5, 20, (200, 1)))
    parts = study.row_scores(time, event, survival, grid, train)
    whole = integrated_brier_score(time, event, survival, grid, train_time=train[0], train_event=train[1])
    assert parts.mean() == pytest.approx(whole, rel=1e-12)


def test_seeds(load, tmp_path, capsys):
    study = load("seeds")
    store, page = tmp_path / "s.jsonl", tmp_path / "p.md"
    records = run_twice(study, store, capsys, "--case", "VLC-110", "accelerated-100", "--seeds", "2", jobs=2)
    assert study.main(["table", "--store", str(store), "--out", str(page)]) == 0
    text = page.read_text(encoding="utf-8")
    for record in records:
        assert record["draws"] == 30
        assert record["movement"] > 0
        assert f"| {record['case']} | 2 | {record['movement']:.3f} ±" in text


def test_all_cases_have_people_who_were_not_fitted(load):
    study = load("seeds")
    assert len(study.CASES) == 6
    for case, (_, rows) in study.CASES.items():
        x, time, event, people = study.data_of(case)
        assert len(x) == len(time) == len(event) == rows
        assert len(people) == (27 if case == "VLC-110" else 100)
        if case.split("-")[0].isupper():
            assert not set(x.index) & set(people.index)


def test_movement_of_known_size(load):
    study = load("seeds")
    rng = np.random.default_rng(1)
    deviations = np.full((6, 40, 50), 0.2)
    means = 0.5 + 0.2 * 0.3 * rng.normal(size=deviations.shape)
    moved, most = study.movement(means, deviations)
    # A mean of n squares with 5 degrees of freedom each.
    assert abs(moved**2 / 0.09 - 1) < z_bound() * np.sqrt(2 / 5 / 2_000)
    assert most > moved
    assert study.movement(means[:1].repeat(6, axis=0), deviations) == pytest.approx((0, 0), abs=1e-12)
    # Where there is hardly any posterior deviation, the movement is in thousandths.
    assert study.movement(np.array([[[0.0]], [[0.002]]]), np.zeros((2, 1, 1)))[0] == pytest.approx(np.sqrt(2))


def test_competing(load, tmp_path, capsys):
    study = load("competing")
    store, page = tmp_path / "s.jsonl", tmp_path / "p.md"
    records = run_twice(study, store, capsys, "--rows", "40", "--cohorts", "2", jobs=2)
    assert study.main(["table", "--store", str(store), "--out", str(page)]) == 0
    for cause in ("relapse", "death"):
        mean = np.mean([record[cause]["shared"]["coverage"] for record in records])
        assert f"| 40 | 2 | {cause} | {mean:.2f} ± " in page.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["competing", "continuity", "no_signal", "seeds"])
def test_tables_take_the_newest_model_and_say_what_failed(load, name, tmp_path, capsys):
    study = load(name)
    store = tmp_path / "s.jsonl"
    with pytest.raises(SystemExit, match="the store holds no results; do `run` first"):
        study.main(["table", "--store", str(store), "--out", str(tmp_path / "p.md")])
    lines = [{"model": "old"}, {"model": "new", "error": "FitError: no"}]
    store.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    with pytest.raises(SystemExit, match="the store holds no results; do `run` first"):
        study.main(["table", "--store", str(store), "--out", str(tmp_path / "p.md")])
    assert "1 of 1 jobs failed, the first with FitError: no" in capsys.readouterr().err
