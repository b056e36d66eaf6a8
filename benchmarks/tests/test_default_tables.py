from neuralsurv_bench.default_tables import full_tables, ingredients_tables
from neuralsurv_bench.methods import neuralsurv_default
from neuralsurv_bench.methods.interface import Method
from neuralsurv_bench.store import Key, Record

METHODS = {name: Method(name, "classical", None) for name in ("A", "B", "C")}


def record(experiment, setting, fold, method, ibs, cohort="X", seed=0):
    scores = {"ours": {"ibs": ibs, "c_index": 1 - ibs, "log_likelihood": -ibs}}
    return Record(
        Key(experiment, cohort, setting, fold, method, "fair", seed),
        status="finished",
        scores=scores,
        fit_seconds=1.0,
        predict_seconds=1.0,
        details={},
        error="",
        environment={},
        date="2026-01-01T00:00:00",
    )


def cells(table, name):
    return next([cell.text for cell in row] for row in table.rows if row[0].text == name)


def test_full_says_how_far_each_is_behind_the_best_and_whether_within_an_error():
    values = {"A": (0.10, 0.20, 0.30), "B": (0.11, 0.19, 0.31), "C": (0.20, 0.30, 0.40)}
    records = [record("full", "", f, m, v) for m, line in values.items() for f, v in enumerate(line)]
    behind = [table for table in full_tables(records, METHODS) if "behind" in table.title]
    assert len(behind) == 3
    assert cells(behind[0], "A") == ["A", "best"]
    # The differences 0.01, -0.01, 0.01 have mean 0.0033 and standard error 0.01155 / sqrt(3).
    assert cells(behind[0], "B") == ["B", "+0.0033 ± 0.0067 ✓"]
    assert cells(behind[0], "C") == ["C", "+0.1000 ± 0.0000"]
    # Of the C-index, 1 minus it here, more is better.
    assert cells(behind[1], "A") == ["A", "best"]
    assert cells(behind[1], "C") == ["C", "-0.1000 ± 0.0000"]


def test_one_fold_has_no_standard_error():
    records = [record("full", "", 0, "A", 0.1), record("full", "", 0, "B", 0.2)]
    behind = next(table for table in full_tables(records, METHODS) if "behind" in table.title)
    assert cells(behind, "B") == ["B", "+0.1000"]


def test_ingredients_compares_every_change_with_the_preset():
    first, second, *_ = neuralsurv_default.CHANGES
    records = [
        record("ingredients", change, fold, neuralsurv_default.NAME, value + fold, seed=seed)
        for change, value in ((first, 0.1), (second, 0.3))
        for fold in range(2)
        for seed in (100, 101, 102)
    ]
    tables = list(ingredients_tables(records, METHODS))
    differences = next(table for table in tables if "paired" in table.title)
    assert cells(differences, second)[1].startswith("+0.2000")
