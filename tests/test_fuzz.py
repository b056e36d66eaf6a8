"""Fuzzing in short: a few hundred made-up cases, and every case that once broke the library."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "benchmarks" / "fuzz"
FAIL = sorted((ROOT / "tests" / "fail").glob("*.json"))


@pytest.fixture(scope="module")
def fuzz():
    before = list(sys.path)
    spec = importlib.util.spec_from_file_location("fuzz", FOLDER / "fuzz.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    sys.path[:] = before


@pytest.mark.parametrize("path", FAIL, ids=lambda path: path.stem)
def test_what_once_broke(fuzz, path):
    assert fuzz.run_case(json.loads(path.read_text(encoding="utf-8")))


@pytest.mark.parametrize(("layer", "cases"), [("fit", 40), ("read", 150), ("file", 100), ("table", 100)])
def test_made_up_cases(fuzz, layer, cases):
    record = fuzz.run_chunk(layer, 20261116, cases)
    assert record["broken"] == []
    assert record["cases"] == cases
    assert len(record["came"]["all"]) > 1


def ordinary(fuzz, **changes):
    """Return a faultless cohort, changed."""
    recipe = fuzz.recipe_of("read", b"")
    recipe["columns"][0]["cells"] = [1.0, 2.0, 3.0, 4.0, 5.0]
    return {**recipe, **changes}


def test_the_shortest_case_is_a_plain_cohort(fuzz):
    recipe = fuzz.recipe_of("fit", b"")
    assert recipe["hazards"] == []
    assert recipe["container"] == "frame"
    assert "fitted" in fuzz.run_case(recipe)


def test_a_strange_exception_is_broken(fuzz, monkeypatch):
    import fuzz_cohort

    def fails(*_, **__):
        raise KeyError("inside")

    monkeypatch.setattr(fuzz_cohort, "canonical_cohort", fails)
    with pytest.raises(KeyError, match="inside"):
        fuzz.run_case(ordinary(fuzz))


def test_a_strange_warning_is_broken(fuzz, monkeypatch):
    import warnings

    import fuzz_cohort

    original = fuzz_cohort.canonical_cohort

    def warns(rows):
        warnings.warn("divide by zero", RuntimeWarning, stacklevel=1)
        return original(rows)

    monkeypatch.setattr(fuzz_cohort, "canonical_cohort", warns)
    with pytest.raises(fuzz_cohort.BrokenPromiseError, match="a warning that is not ours: RuntimeWarning"):
        fuzz.run_case(ordinary(fuzz))


def test_a_faultless_cohort_that_is_refused_is_broken(fuzz, monkeypatch):
    import fuzz_cohort

    from neuralsurv.errors import InputError

    def refuses(*_, **__):
        raise InputError("column 'x0' is not liked by this version.")

    monkeypatch.setattr(fuzz_cohort.Encoding, "fit", refuses)
    with pytest.raises(fuzz_cohort.BrokenPromiseError, match="names none of the faults"):
        fuzz.run_case(ordinary(fuzz))


def test_a_fault_that_is_accepted_is_broken(fuzz, monkeypatch):
    import fuzz_cohort

    # The second reading finds the column constant; the first is told otherwise.
    recipe = ordinary(fuzz)
    monkeypatch.setattr(fuzz_cohort, "faults", lambda _: ["column 'x0' is constant"])
    with pytest.raises(fuzz_cohort.BrokenPromiseError, match="accepted, though at fault"):
        fuzz.run_case(recipe)


@pytest.mark.parametrize(
    ("spoil", "match"),
    [
        (lambda draws: draws * float("nan"), "holds NaN"),
        (lambda draws: draws + 0.5, r"leaves \[0, 1\]"),
        (lambda draws: draws[:, :, ::-1], "not monotone"),
        (lambda draws: draws[:, :1], "people for"),
    ],
)
def test_wrong_curves_are_broken(fuzz, monkeypatch, spoil, match):
    import fuzz_cohort

    recipe = fuzz.recipe_of("fit", b"")
    original = fuzz_cohort.Prediction.draws.fget
    monkeypatch.setattr(fuzz_cohort.Prediction, "draws", property(lambda self: spoil(original(self))))
    with pytest.raises(fuzz_cohort.BrokenPromiseError, match=match):
        fuzz.run_case(recipe)


def test_a_reader_that_asks_for_memory_or_runs_code_is_broken(fuzz, monkeypatch):
    import fuzz_cohort
    import fuzz_files
    import numpy as np

    original = next(iter(fuzz_files.originals().values()))
    fuzz_files.read_bytes(original)
    monkeypatch.setattr(fuzz_files.neuralsurv, "load", lambda _: np.ones(2**28))
    with pytest.raises(fuzz_cohort.BrokenPromiseError, match="too much memory"):
        fuzz_files.read_bytes(original)
    monkeypatch.setattr(fuzz_files.neuralsurv, "load", lambda _: eval(compile("1", "forged", "eval")))
    with pytest.raises(fuzz_cohort.BrokenPromiseError, match="ran something"):
        fuzz_files.read_bytes(original)


def test_a_broken_case_is_shrunk_and_kept(fuzz, monkeypatch, tmp_path):
    def breaks(recipe):
        if recipe["container"] != "frame":
            raise ZeroDivisionError("found")
        return {"accepted": 1}

    monkeypatch.setattr(fuzz, "run_case", breaks)
    record = fuzz.run_chunk("read", 1, 200)
    (broken,) = record["broken"]
    assert broken["error"] == "ZeroDivisionError: found"
    # Shrunk: the hazard that it takes, and at most one beside it that the shrinking was left with.
    assert "matrix" in broken["recipe"]["hazards"]
    assert len(broken["recipe"]["hazards"]) <= 2
    store = tmp_path / "store.jsonl"
    fuzz.append(store, record)
    assert fuzz.main(["keep", "--store", str(store), "--folder", str(tmp_path / "fail")]) == 0
    (path,) = (tmp_path / "fail").glob("*.json")
    assert fuzz.main(["replay", str(path)]) == 1


def test_a_run_goes_on_where_it_was_and_makes_the_page(fuzz, tmp_path, capsys):
    store, out = tmp_path / "store.jsonl", tmp_path / "page.md"
    arguments = ["run", "--cases", "30", "--layer", "table", "--store", str(store)]
    assert fuzz.main(arguments) == 0
    assert fuzz.main(arguments) == 0
    assert "0 chunks, 0 cases, to do" in capsys.readouterr().out
    assert fuzz.main(["table", "--store", str(store), "--out", str(out)]) == 0
    assert "**30 cases, 0 broken**" in out.read_text(encoding="utf-8")
