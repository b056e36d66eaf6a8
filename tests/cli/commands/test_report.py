"""``neuralsurv report``."""

import numpy as np
import pandas as pd
import pytest

import neuralsurv
from cli.run_command import QUICK, fitted_file, refused, run


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return fitted_file(tmp_path_factory.mktemp("model"))


def test_a_page_is_written_with_the_columns_of_the_fit(files, tmp_path):
    out = tmp_path / "report.html"
    ended = run("report", *files, "--out", out, "--title", "Ours & yours", "--times", "0.3,0.6", "--horizon", "1")
    assert ended.code == 0, ended.err
    assert ended.out.startswith(f"wrote {out} (")
    assert "warning: These look like the rows that the model was fitted to" in ended.err
    page = out.read_text(encoding="utf-8")
    assert "<h1>Ours &amp; yours</h1>" in page
    assert "Survival at 0.6 in " in page
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
    assert "exists already" in refused("report", *files, "--out", out)


def test_json(files, tmp_path):
    arguments = ("--out", tmp_path / "r.html", "--rows", 20, "--id", "name", "--people", "0,3", "--json")
    found = run("report", *files, *arguments).json
    model = neuralsurv.load(files[0])
    assert found["rows"] == 40
    assert {effect["column"] for effect in found["effects"]} == {column.name for column in model.encoding_.columns}
    assert any(note.startswith("predictions are shown for 2") for note in found["notes"])
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "person 3" in page


def test_other_rows_and_other_columns(files, tmp_path):
    frame = pd.read_csv(files[1]).iloc[:35].rename(columns={"years": "t", "died": "e"})
    frame["e"] = np.where(frame["e"] == 1, "dead", "alive")
    path = tmp_path / "others.tsv"
    frame.to_csv(path, index=False, sep="\t")
    columns = ("--time", "t", "--event", "e", "--event-value", "dead")
    ended = run("report", files[0], path, *columns, "--out", tmp_path / "r.html", "--json")
    assert ended.json["rows"] == 35
    assert not any("the rows that the model was fitted to" in text for text in ended.json["warnings"])


def test_dates_of_the_fit_are_read_again(tmp_path):
    n = 30
    rng = np.random.default_rng(0)
    start = pd.Timestamp("2020-01-01") + pd.to_timedelta(np.arange(n), unit="D")
    table = pd.DataFrame({
        "x": rng.normal(size=n), "from": start.strftime("%Y-%m-%d"),
        "to": (start + pd.to_timedelta(rng.integers(5, 400, n), unit="D")).strftime("%Y-%m-%d"),
        "state": np.where(rng.random(n) < 0.7, "dead", "alive"),
    })  # fmt: skip
    path, model = tmp_path / "dated.csv", tmp_path / "m.neuralsurv"
    table.to_csv(path, index=False)
    columns = (
        "--start-date",
        "from",
        "--end-date",
        "to",
        "--unit",
        "weeks",
        "--event",
        "state",
        "--event-value",
        "dead",
    )
    assert run("fit", path, *columns, "--out", model, *QUICK).code == 0
    found = run("report", model, path, "--out", tmp_path / "r.html", "--json").json
    assert found["events"] == (table["state"] == "dead").sum()
    assert any("the rows that the model was fitted to" in text for text in found["warnings"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--rows", "3"), "--rows 3 is too few for a report; use at least 10."),
        (("--people", "a"), "--people 'a' must be row numbers with commas between them, from 0."),
        (("--people", "99"), "there is no row 99 among the 40 rows"),
        (("--times", "1000"), "time 1000 cannot be compared with these rows"),
        (("--time", "yaers", "--event", "died"), "there is no column 'yaers' (--time); did you mean 'years'?"),
    ],
)
def test_wrong_wishes(files, tmp_path, arguments, message):
    assert message in refused("report", *files, "--out", tmp_path / "r.html", *arguments)
    assert list(tmp_path.iterdir()) == []


def test_a_table_without_a_covariate(files, tmp_path):
    path = tmp_path / "people.csv"
    pd.read_csv(files[1]).drop(columns="stage").to_csv(path, index=False)
    told = refused("report", files[0], path, "--out", tmp_path / "r.html")
    assert "there is no column 'stage'" in told
