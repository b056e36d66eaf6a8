"""Tables as people have them, at every command that reads one: what is said, what is refused, what is typed next."""

import numpy as np
import pandas as pd
import pytest

import neuralsurv
from cli.run_command import QUICK, refused, run
from small_cohort import small_cohort

N = 60


@pytest.fixture
def lung():
    """Return a table like R's lung: status 1 and 2, days, gaps."""
    cohort = small_cohort(N)
    frame = pd.DataFrame(
        {
            "time": np.ceil(200 * cohort.time).astype(int),
            "status": 1 + cohort.event.astype(int),
            "age": cohort.x["age"].round(1),
            "meal.cal": np.resize([1175.0, 1225.0, 150.0, 825.0, 271.0, 513.0, 1025.0], N),
            "sex": np.resize([1, 2], N),
        }
    )
    frame.loc[[4, 9], "meal.cal"] = np.nan
    return frame


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


ROLES = ("--time", "time", "--event", "status")
EVENT = (*ROLES, "--event-value", "2")


def fit(table, *arguments):
    return run("fit", table, *arguments, "--out", "m.neuralsurv", "--force", *QUICK)


def every_command(table, *arguments):
    """Return what fit, evaluate and report refuse a table with, which must be the same; there is a model already."""
    told = {
        refused("fit", table, *arguments, "--out", "other.neuralsurv", *QUICK),
        refused("evaluate", table, *arguments, "--folds", 2, *QUICK),
        refused("report", "m.neuralsurv", table, *arguments, "--out", "refused.html"),
    }
    assert len(told) == 1
    return told.pop()


def test_the_codes_of_r(lung, folder):
    lung.to_csv("lung.csv", index=False)
    ended = fit("lung.csv", *EVENT)
    assert ended.code == 0, ended.err
    events = int((lung["status"] == 2).sum())
    note = f"status: 2 ({events}) → event; 1 ({N - events}) → censored."
    assert note in ended.err
    assert note in run("evaluate", "lung.csv", *EVENT, "--folds", 2, "--json", *QUICK).json["notes"]
    assert note in run("report", "m.neuralsurv", "lung.csv", "--out", "r.html", "--json").json["notes"]
    for command in (
        ("fit", "lung.csv", *EVENT, "--out", "m.neuralsurv", "--force", *QUICK),
        ("evaluate", "lung.csv", *EVENT, "--folds", 2, *QUICK),
        ("report", "m.neuralsurv", "lung.csv", "--out", "quiet.html"),
    ):
        told = run(*command, "--quiet").err.splitlines()
        assert [line for line in told if line.startswith("note: ")] == [f"note: {note}"]
    told = every_command("lung.csv", *ROLES)
    assert told == (
        f"column 'status' must be 0/1 or true/false, but holds 1 ({N - events}), 2 ({events}); R codes censored as 1 "
        "and the event as 2; say which value means the event: --event-value 2."
    )


def test_a_misspelt_event_is_not_censored(lung, folder):
    lung.to_csv("lung.csv", index=False)
    assert fit("lung.csv", *EVENT).code == 0
    words = lung["status"].map({1: "Alive", 2: "Dead"})
    first = words.index[words == "Dead"][0]
    words[first] = "dead"
    lung.assign(status=words).to_csv("words.csv", index=False)
    told = every_command("words.csv", *ROLES, "--event-value", "Dead")
    assert "column 'status' holds 'dead' (1 row) beside 'Dead' (" in told
    assert "add --event-value dead" in told
    ended = fit("words.csv", *ROLES, "--event-value", "Dead", "--event-value", "dead")
    assert neuralsurv.load("m.neuralsurv").training_["events"] == (lung["status"] == 2).sum()
    assert ", dead (1) → event; Alive (" in ended.err


def test_a_gap_in_the_event(lung, folder):
    lung.to_csv("lung.csv", index=False)
    assert fit("lung.csv", *EVENT).code == 0
    words = lung["status"].map({1: "Alive", 2: "Dead"})
    words[[3, 7]] = None
    lung.assign(status=words).to_csv("gaps.csv", index=False)
    roles = (*ROLES, "--event-value", "Dead")
    told = every_command("gaps.csv", *roles)
    assert told == (
        "column 'status' is missing (NaN) in 2 rows (rows 3, 7, counting from 0); fill them in, or leave these rows "
        "out: --drop-missing-outcome."
    )
    assert "left out 2 of 60 rows" in fit("gaps.csv", *roles, "--drop-missing-outcome").err


def test_an_export_with_semicolons_decimal_commas_and_a_byte_order_mark(lung, folder):
    lung.to_csv("lung.csv", index=False)
    assert fit("lung.csv", *EVENT).code == 0
    plain = neuralsurv.load("m.neuralsurv")
    lung.to_csv("de.csv", index=False, sep=";", decimal=",", encoding="utf-8-sig", lineterminator="\r\n")
    flag = "column 'age' and 1 more column hold numbers with a decimal comma"
    told = every_command("de.csv", *EVENT)
    assert told.startswith(flag)
    assert "; add --decimal , (or" in told
    assert refused("predict", "m.neuralsurv", "de.csv").startswith(flag)
    ended = fit("de.csv", *EVENT, "--decimal", ",")
    note = "read de.csv with ';' between cells, by its first lines; --separator overrides it."
    assert note in ended.err
    assert (neuralsurv.load("m.neuralsurv").predict(lung) == plain.predict(lung)).all()
    found = run("predict", "m.neuralsurv", "de.csv", "--decimal", ",", "--times", "90", "--json").json
    assert note in found["notes"]
    assert "one column" not in refused("fit", "de.csv", *EVENT, "--separator", ",", "--out", "x.neuralsurv")


def test_decimal_commas_may_be_categories(lung, folder):
    grades = np.resize(["1,5", "2,5", "3,5"], N)
    lung.assign(grade=grades).to_csv("lung.csv", index=False, sep=";")
    assert "decimal comma" in refused("fit", "lung.csv", *EVENT, "--out", "x.neuralsurv", *QUICK)
    ended = fit("lung.csv", *EVENT, "--categorical", "grade")
    assert ended.code == 0, ended.err
    assert neuralsurv.load("m.neuralsurv").encoding_.columns[-1].levels == ("1,5", "2,5", "3,5")
    assert run("predict", "m.neuralsurv", "lung.csv").code == 0
    assert run("report", "m.neuralsurv", "lung.csv", "--out", "r.html").code == 0
    scored = run("evaluate", "lung.csv", *EVENT, "--categorical", "grade", "--folds", 2, "--json", *QUICK)
    assert scored.code == 0, scored.err


def test_row_names_of_r(lung, folder):
    lung.index = range(1, N + 1)
    lung.to_csv("r.csv", na_rep="NA")
    assert (folder / "r.csv").read_text().startswith(",time")
    ended = fit("r.csv", *EVENT)
    assert (
        "note: left out column 'column 1': it has no name in the header and numbers the rows (1 to 60); to use it, "
        "give it another name." in ended.err
    )
    assert [column.name for column in neuralsurv.load("m.neuralsurv").encoding_.columns] == ["age", "meal.cal", "sex"]
    found = run("evaluate", "r.csv", *EVENT, "--folds", 2, "--json", *QUICK).json
    assert any("left out column 'column 1'" in text for text in found["notes"])
    assert run("predict", "m.neuralsurv", "r.csv").code == 0
    assert run("report", "m.neuralsurv", "r.csv", "--out", "r.html").code == 0
    kept = fit("r.csv", *EVENT, "--features", "column 1", "--features", "age")
    assert "left out" not in kept.err


def test_a_model_may_use_a_column_that_is_called_like_row_names(lung, folder):
    lung.assign(X=np.arange(N)[::-1]).to_csv("lung.csv", index=False)
    assert fit("lung.csv", *EVENT).code == 0
    lung.assign(X=np.arange(N)).to_csv("others.csv", index=False)
    ended = run("report", "m.neuralsurv", "others.csv", "--out", "r.html")
    assert ended.code == 0, ended.err


def test_rows_of_length_zero(lung, folder):
    lung.to_csv("lung.csv", index=False)
    assert fit("lung.csv", *EVENT).code == 0
    lung.loc[[2, 5], "time"] = 0
    lung.to_csv("zero.csv", index=False)
    told = every_command("zero.csv", *EVENT)
    assert told.startswith(
        "column 'time' is 0 in 2 rows (rows 2, 5, counting from 0); a row must be observed for some time. Add half of"
    )
    assert "--zero-times half-step; or leave them out: --zero-times drop." in told
    assert "is not known; use half-step or drop" in every_command("zero.csv", *EVENT, "--zero-times", "half")
    assert "left out 2 of 60 rows" in fit("zero.csv", *EVENT, "--zero-times", "drop").err
    assert neuralsurv.load("m.neuralsurv").training_["rows"] == N - 2
    ended = fit("zero.csv", *EVENT, "--zero-times", "half-step", "--write-config", "run.toml")
    assert "note: added 0.5, half of the smallest step between times, to 2 of 60 rows" in ended.err
    assert neuralsurv.load("m.neuralsurv").unique_times_[0] == 0.5
    # Other commands do the same: by the config file, or by the model file.
    found = run("evaluate", "--config", "run.toml", "--folds", 2, "--json").json
    assert any(text.startswith("added 0.5") for text in found["notes"])
    found = run("report", "m.neuralsurv", "zero.csv", "--out", "r.html", "--json").json
    assert any(text.startswith("added 0.5") for text in found["notes"])


def test_start_and_end_on_the_same_day(lung, folder):
    start = pd.Timestamp("2021-03-01")
    days = lung["time"].where(np.arange(N) > 1, 0)
    frame = lung.drop(columns="time").assign(entered=start, left=start + pd.to_timedelta(days, unit="D"))
    frame["died"] = frame.pop("status").map({1: "no", 2: "yes"})
    frame.to_csv("dates.csv", index=False)
    roles = ("--start-date", "entered", "--end-date", "left", "--event", "died")
    assert "add" not in refused("fit", "dates.csv", *roles, "--out", "x.neuralsurv").partition("; say which")[0]
    assert "for example --event-value yes" in refused("fit", "dates.csv", *roles, "--out", "x.neuralsurv")
    told = refused("fit", "dates.csv", *roles, "--event-value", "yes", "--out", "x.neuralsurv")
    assert "is 0 in 2 rows (rows 0, 1, counting from 0): both dates are the same; a row" in told
    ended = fit("dates.csv", *roles, "--event-value", "yes", "--zero-times", "half-step")
    assert ended.code == 0, ended.err
    assert neuralsurv.load("m.neuralsurv").unique_times_[0] == 0.5


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_number_that_stands_for_a_missing_value(lung, folder, kind):
    lung["meal.cal"] = lung["meal.cal"].fillna(9999)
    lung["age"] = lung["age"].where(np.arange(N) > 2, -9)
    path = folder / f"codes.{kind}"
    lung.to_csv(path, index=False) if kind == "csv" else lung.to_parquet(path)
    ended = fit(path, *EVENT)
    assert "warning: column 'meal.cal' holds 9999 in 2 rows, and 150 to 1225 in the others; " in ended.err
    assert "add --missing meal.cal=9999." in ended.err
    assert "add --missing age=-9." in ended.err
    plain = neuralsurv.load("m.neuralsurv")
    assert [column.has_missing for column in plain.encoding_.columns] == [False, False, False]
    told = run("predict", "m.neuralsurv", path, "--times", "90", "--json").json
    assert len(told["warnings"]) == 2
    codes = ("--missing", "meal.cal=9999", "--missing", "-9")
    assert "warning: column" not in fit(path, *EVENT, *codes).err
    columns = neuralsurv.load("m.neuralsurv").encoding_.columns
    assert [column.has_missing for column in columns] == [True, True, False]
    # The model file keeps the codes, so that they are not taken for amounts in new rows.
    found = run("predict", "m.neuralsurv", path, "--times", "90", "--json").json
    assert found["notes"][0] == "meal.cal=9999, -9 stands for a missing value, as in the fit."
    assert found["warnings"] == []
    assert run("report", "m.neuralsurv", path, "--out", "r.html", "--json").json["rows"] == N


def test_a_code_of_one_column_is_an_amount_in_another(lung, folder):
    lung.loc[0, "time"] = 999
    lung.loc[[4, 9], "meal.cal"] = 999
    lung.to_csv("codes.csv", index=False)
    assert "'time' is missing (NaN) in 1 row (row 0, counting from 0)" in refused(
        "fit", "codes.csv", *EVENT, "--missing", "999", "--out", "x.neuralsurv"
    )
    assert fit("codes.csv", *EVENT, "--missing", "meal.cal=999").code == 0
    assert neuralsurv.load("m.neuralsurv").time_scale_ >= 999
    told = refused("fit", "codes.csv", *EVENT, "--missing", "meals=999", "--out", "x.neuralsurv")
    assert told.startswith("there is no column 'meals' (--missing meals=999); did you mean")


def test_a_text_column_of_many_levels_and_a_large_file(lung, folder, monkeypatch):
    frame = lung.assign(town=[f"town {k % 25}" for k in range(N)])
    frame.to_csv("towns.csv", index=False)
    ended = fit("towns.csv", *EVENT)
    assert (
        "warning: column 'town' is text with 25 levels in 60 rows, and the model sees an indicator for each; join the "
        "rare ones in the file, or leave the column out: --drop town." in ended.err
    )
    assert "the model file" not in ended.err
    monkeypatch.setattr("neuralsurv.cli.modelling.LARGE_FILE", 1000.0)
    ended = run("fit", "towns.csv", *EVENT, "--out", "plain.neuralsurv")
    assert "warning: the model file will have up to about " in ended.err
    told = "MB, since 4 covariates become 29 numbers, 25 of them from 'town'; leave columns out (--drop)."
    assert told in ended.err
    ended = fit("towns.csv", *EVENT)
    assert "leave columns out (--drop), or use a smaller network (--hidden)." in ended.err


def test_an_excel_file(folder):
    (folder / "book.xlsx").write_bytes(b"PK\x03\x04")
    told = refused("fit", "book.xlsx", *EVENT, "--out", "m.neuralsurv")
    assert told == (
        "book.xlsx is an Excel file, which is not read; save it as CSV, or convert it with pandas (pip install "
        "openpyxl): python -c \"import pandas; pandas.read_excel('book.xlsx').to_csv('book.csv', index=False)\"."
    )
