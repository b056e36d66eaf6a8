import json
import math
import sqlite3
from dataclasses import replace

import numpy as np
import pytest

from neuralsurv.errors import InputError
from neuralsurv_bench.store import Key, Record, Store

KEY = Key("central", "COLON", "", 0, "MTLR", "fair", 0)
RECORD = Record(
    KEY,
    "finished",
    {"paper": {"ibs": 0.25, "c_index": None}, "ours": {"ibs": 0.2, "d_calibration_histogram": [1.0, 2.5]}},
    1.5,
    0.25,
    {"warnings": ["careful"]},
    "",
    {"python": "3.11", "packages": {"torch": "2"}},
    "2026-11-15T12:00:00+00:00",
)


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "folder" / "results.sqlite") as opened:
        yield opened


def test_a_record_comes_back_as_it_was_also_from_another_process(store):
    store.save(RECORD)
    with Store(store.path) as again:
        assert again.records() == [RECORD]
        assert again.stored() == {KEY}


@pytest.mark.parametrize(
    "change",
    [
        {"experiment": "ablation"},
        {"cohort": "GBSG"},
        {"setting": "N=25"},
        {"fold": 1},
        {"method": "PMF"},
        {"variant": "as-published"},
        {"seed": 1},
    ],
)
def test_jobs_that_differ_in_one_thing_are_different_jobs(store, change):
    other = replace(RECORD, key=replace(KEY, **change), fit_seconds=2.0)
    store.save(RECORD)
    store.save(other)
    assert {record.key: record.fit_seconds for record in store.records()} == {KEY: 1.5, other.key: 2.0}


def test_a_finished_result_is_never_replaced(store):
    store.save(RECORD)
    store.save(replace(RECORD, scores={}, fit_seconds=9.0))
    store.save(replace(RECORD, status="failed", error="late"))
    assert store.records() == [RECORD]


def test_a_failed_result_is_replaced_by_the_next_try(store):
    failed = replace(RECORD, status="failed", scores={}, fit_seconds=None, predict_seconds=None, error="no luck")
    store.save(failed)
    assert store.records() == [failed]
    assert store.stored("failed") == {KEY}
    assert store.stored("finished") == set()
    other_machine = replace(RECORD, environment={"python": "3.13"}, date="2026-11-16T00:00:00+00:00")
    store.save(other_machine)
    assert store.records() == [other_machine]
    assert store.stored("failed") == set()


def test_records_of_one_experiment_only(store):
    store.save(RECORD)
    other = replace(RECORD, key=replace(KEY, experiment="ablation"))
    store.save(other)
    assert store.records("ablation") == [other]
    assert [record.key.experiment for record in store.records()] == ["ablation", "central"]


def test_numbers_are_stored_as_plain_json_with_eight_digits_and_none_for_nan(store):
    numbers = {"a": math.nan, "b": np.float64(1 / 3), "c": np.array([1.0, math.inf]), "d": np.int64(3), "e": (1, 2)}
    store.save(replace(RECORD, scores={"ours": numbers}))
    connection = sqlite3.connect(store.path)
    text = connection.execute("SELECT scores FROM result").fetchone()[0]
    connection.close()
    strict = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert strict == {"ours": {"a": None, "b": 0.33333333, "c": [1.0, None], "d": 3, "e": [1, 2]}}


def test_the_same_environment_is_stored_once(store):
    for fold in range(5):
        store.save(replace(RECORD, key=replace(KEY, fold=fold)))
    store.save(replace(RECORD, key=replace(KEY, fold=5), environment={"python": "3.12"}))
    connection = sqlite3.connect(store.path)
    assert connection.execute("SELECT count(*) FROM environment").fetchone() == (2,)
    connection.close()


def test_a_record_that_cannot_be_written_leaves_no_trace_and_no_lock(store):
    broken = replace(RECORD, status="unheard of")
    with pytest.raises(sqlite3.IntegrityError, match="CHECK"):
        store.save(broken)
    connection = sqlite3.connect(store.path, timeout=0)
    assert connection.execute("SELECT count(*) FROM environment").fetchone() == (0,)
    connection.close()
    store.save(RECORD)
    assert store.records() == [RECORD]


def test_between_two_writes_there_is_one_file(store):
    store.save(RECORD)
    assert [path.name for path in store.path.parent.iterdir()] == ["results.sqlite"]


def test_what_is_written_is_on_the_disk(store):
    # 3 is EXTRA: the folder that held the journal is written out as well.
    assert store._connection.execute("PRAGMA synchronous").fetchone() == (3,)
    assert store._connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)


def test_a_file_that_is_no_store_is_refused(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text(
        "not a database, but long enough to look like a file with a header of its own" * 10, encoding="utf-8"
    )
    with pytest.raises(InputError, match=r"notes\.txt cannot be used as a store .*; name another file with --store"):
        Store(path)
    assert path.read_text(encoding="utf-8").startswith("not a database")


def test_a_store_of_another_layout_is_refused(tmp_path):
    path = tmp_path / "future.sqlite"
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 7")
    connection.close()
    with pytest.raises(InputError, match=r"future\.sqlite was written with layout 7 .* reads layout 1; name another"):
        Store(path)
