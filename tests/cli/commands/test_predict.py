"""``neuralsurv predict`` and ``neuralsurv inspect``."""

import io
import json
import sys
from pathlib import Path
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot

import neuralsurv
from cli.run_command import QUICK, fitted_file, refused, run
from cli.terminal import Terminal
from neuralsurv.cli.commands.predict import parse_times
from neuralsurv.errors import InputError
from neuralsurv.files import format as storage
from neuralsurv.files.format import read, write

_SVG = "http://www.w3.org/2000/svg"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return fitted_file(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def model(files):
    return neuralsurv.load(files[0])


@pytest.fixture(scope="module")
def frame(files):
    return pd.read_csv(files[1])


def test_survival_is_that_of_the_estimator(files, model, frame):
    ended = run("predict", *files, "--times", "0.5,1", "--level", "0.8")
    found = pd.read_csv(io.StringIO(ended.out))
    expected = model.predict_survival(frame, [0.5, 1]).to_frame(0.8)
    assert list(found.columns) == ["row", "time", "mean", "median", "lower", "upper", "extrapolated", "filled_in"]
    np.testing.assert_allclose(found[["mean", "lower", "upper"]], expected[["mean", "lower", "upper"]], rtol=1e-5)
    assert found["row"].tolist() == np.repeat(np.arange(40), 2).tolist()
    assert (
        found["filled_in"].fillna("").tolist()
        == np.repeat(frame["dose"].isna().map({True: "dose", False: ""}), 2).tolist()
    )
    assert ended.err.startswith("note: filled in for 2 of 40 people who lack values: dose (2). Each draw takes another")
    frame.dropna(subset="dose").to_csv(files[0].with_name("whole.csv"), index=False)
    whole = run("predict", files[0], files[0].with_name("whole.csv"), "--times", "0.5")
    assert whole.err == ""
    assert "filled_in" not in whole.out


@pytest.mark.parametrize(
    ("arguments", "ask"),
    [
        (("--times", "1", "--quantity", "hazard"), lambda m, x: m.predict_hazard(x, [1])),
        (("--times", "1", "--quantity", "cumulative-hazard"), lambda m, x: m.predict_cumulative_hazard(x, [1])),
        (("--times", "1", "--given", "0.5"), lambda m, x: m.predict_conditional_survival(x, [1], 0.5)),
        (("--quantity", "quantile", "--share", "0.2"), lambda m, x: m.predict_quantile(x, 0.2)),
        (("--quantity", "median"), lambda m, x: m.predict_median(x)),
        (("--quantity", "event-time"), lambda m, x: m.predict_event_time(x)),
        (("--quantity", "rmst", "--horizon", "1"), lambda m, x: m.predict_rmst(x, 1)),
        (("--quantity", "rmst"), lambda m, x: m.predict_rmst(x, m.time_scale_)),
    ],
)
def test_every_quantity(files, model, frame, arguments, ask):
    found = run("predict", *files, *arguments, "--json").json
    expected = ask(model, frame)
    assert found["quantity"] == expected.name
    means = [line["mean"] for line in found["predictions"]]
    # JSON has no infinity: what is not reached is null.
    for shown, value in zip(means, expected.mean.to_numpy().reshape(-1), strict=True):
        assert shown == (pytest.approx(value) if np.isfinite(value) else None)


def test_path_of_a_subject(tmp_path):
    rng = np.random.default_rng(0)
    n = 30
    table = pd.DataFrame({"who": range(n), "start": 0.0, "stop": rng.exponential(size=n) + 0.1, "dead": 1,
                          "x": rng.normal(size=n)})  # fmt: skip
    table.to_csv(tmp_path / "e.csv", index=False)
    model = tmp_path / "m.neuralsurv"
    columns = ("--time", "stop", "--event", "dead", "--entry", "start", "--id", "who")
    assert run("fit", tmp_path / "e.csv", *columns, "--out", model, *QUICK).code == 0
    path = pd.DataFrame({"who": "new", "start": [0.0, 0.5], "stop": [0.5, 2.0], "x": [0.0, 1.0]})
    path.to_csv(tmp_path / "path.csv", index=False)
    found = run("predict", model, tmp_path / "path.csv", "--quantity", "path", "--times", "0.5,1", "--json").json
    expected = neuralsurv.load(model).predict_survival_path(path, [0.5, 1]).mean.to_numpy()[0]
    assert [line["mean"] for line in found["predictions"]] == pytest.approx(expected)
    assert found["predictions"][0]["id"] == "new"


def test_without_times_there_are_the_quartiles_of_the_event_times_and_the_median(files, model, frame):
    ended = run("predict", *files)
    assert ended.code == 0, ended.err
    found = pd.read_csv(io.StringIO(ended.out))
    years = np.sort(frame["years"][frame["died"] == 1])
    quartiles = [years[int(np.ceil(share * len(years))) - 1] for share in (0.25, 0.5, 0.75)]
    shown = ", ".join(f"{time:g}" for time in quartiles)
    assert ended.err.startswith(
        f"note: predicting survival at {shown} (the quartiles of the training event times), and the median event time; "
        "--times chooses other times.\n"
    )
    np.testing.assert_allclose(found["time"], np.tile(quartiles, 40), rtol=1e-5)
    expected = model.predict_survival(frame, quartiles).to_frame()
    np.testing.assert_allclose(found[["mean", "lower", "upper"]], expected[["mean", "lower", "upper"]], rtol=1e-5)
    medians = model.predict_median(frame).to_frame().loc[np.repeat(np.arange(40), 3), ["median", "lower", "upper"]]
    added = ["median_event_time", "median_event_time_lower", "median_event_time_upper"]
    np.testing.assert_allclose(found[added], medians, rtol=1e-5)


@pytest.mark.parametrize("quantity", ["hazard", "cumulative-hazard"])
def test_other_quantities_along_time_have_no_median(files, quantity):
    ended = run("predict", *files, "--quantity", quantity, "--json")
    assert len(ended.json["predictions"]) == 3 * 40
    assert "median_event_time" not in ended.json["predictions"][0]
    assert ended.json["notes"][0].startswith(f"predicting {quantity} at ")


def test_given_leaves_later_quartiles(files, model):
    _, middle, last = model.event_quartiles_
    ended = run("predict", *files, "--given", middle, "--json")
    assert {line["time"] for line in ended.json["predictions"]} == {last}
    assert "median_event_time" not in ended.json["predictions"][0]


def test_an_older_file_has_quartiles_of_all_its_times(files, model, tmp_path):
    old = tmp_path / "old.neuralsurv"
    header, tensors = storage.read(files[0])
    del tensors["event_quartiles"]
    storage.write(old, header, tensors)
    ended = run("predict", old, files[1], "--json")
    times = sorted({line["time"] for line in ended.json["predictions"]})
    np.testing.assert_allclose(times, np.quantile(model.unique_times_, (0.25, 0.5, 0.75)))
    assert "(the quartiles of all training times, since this older model file" in ended.json["notes"][0]


def test_extrapolation_is_said(files, model):
    ended = run("predict", *files, "--times", f"1,{2 * model.time_scale_}")
    assert ended.err.startswith("warning: beyond ")
    assert pd.read_csv(io.StringIO(ended.out))["extrapolated"].sum() == 40


def test_out_and_id(files, tmp_path):
    out = tmp_path / "p.parquet"
    ended = run("predict", *files, "--quantity", "median", "--id", "name", "--out", out)
    assert ended.out == f"wrote {out}: 40 lines ({out.stat().st_size / 1e3:.0f} kB)\n"
    found = pd.read_parquet(out)
    assert found["name"].tolist() == [f"person {k}" for k in range(40)]
    assert "exists already" in refused("predict", *files, "--quantity", "median", "--out", out)
    summary = run("predict", *files, "--quantity", "median", "--out", out, "--force", "--json").json
    assert summary["lines"] == 40


def test_an_input_is_never_replaced(files):
    before = [path.read_bytes() for path in files]
    for path in files:
        told = refused("predict", *files, "--quantity", "median", "--out", path, "--force")
        assert "is also read by this command" in told
    assert [path.read_bytes() for path in files] == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--given", "3"), "there are none of the quartiles of the training event times after 3; say for which times"),
        (("--quantity", "survivl"), "there is no quantity 'survivl' (--quantity); did you mean 'survival'?"),
        (("--quantity", "median", "--times", "1"), "--quantity median does not take --times."),
        (("--quantity", "median", "--given", "1"), "--given goes with --quantity survival only."),
        (("--times", "1", "--horizon", "1"), "--horizon goes with --quantity rmst or rmtl only."),
        (("--times", "1", "--level", "2"), "level=2.0 must lie strictly between 0 and 1"),
        (("--times", "1", "--id", "nmae"), "there is no column 'nmae' (--id); did you mean 'name'?"),
        (("--times", "1", "--out", "x.xlsx"), "the kind of 'x.xlsx' is not known by its name"),
        (("--times", "-1"), "times holds -1; every time must be"),
    ],
)
def test_wrong_questions(files, arguments, message):
    assert message in refused("predict", *files, *arguments)


def test_rows_that_do_not_suit_the_model(files, frame, tmp_path):
    path = tmp_path / "people.csv"
    frame.drop(columns="stage").to_csv(path, index=False)
    assert "there is no column 'stage' (used by the model)" in refused("predict", files[0], path, "--times", "1")
    frame.assign(stage="IV").to_csv(path, index=False)
    told = refused("predict", files[0], path, "--times", "1")
    assert "column 'stage' has the value 'IV' in 40 rows" in told
    assert "there is no file" in refused("predict", tmp_path / "no.neuralsurv", path, "--times", "1")
    assert "is not a model file" in refused("predict", path, path, "--times", "1")


def test_times():
    assert parse_times("1, 2.5,3").tolist() == [1, 2.5, 3]
    assert parse_times("0:1:0.1").tolist() == pytest.approx(np.linspace(0, 1, 11))
    assert parse_times("0:1:0.3").tolist() == pytest.approx([0, 0.3, 0.6, 0.9])
    for text in ("", "a", "1:2", "2:1:1", "0:1:0", "0:inf:1"):
        with pytest.raises(InputError, match="is not understood; give times with commas"):
            parse_times(text)
    with pytest.raises(InputError, match="are 1000001 times; give at most 100000"):
        parse_times("0:1:0.000001")


def test_inspect(files, model, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    ended = run("inspect", files[0])
    assert str(model.summary()) in ended.out
    assert "Outcome: time = years, event = died" in ended.out
    rows = [" ".join(line.split()) for line in ended.out.splitlines()]
    assert "stage category II, III none" in rows
    _, dose, _ = model.encoding_.columns
    assert f"dose number {dose.low:g} to {dose.high:g} some" in rows
    old = run("inspect", Path(__file__).parents[2] / "fixtures" / "before_ranges.neuralsurv")
    assert "dose number – some" in [" ".join(line.split()) for line in old.out.splitlines()]
    found = run("inspect", files[0], "--json").json
    assert found["training"] == model.training_
    assert found["diagnostics"]["sweeps"] == model.diagnostics_.sweeps
    assert [column["name"] for column in found["columns"]] == ["age", "dose", "stage"]
    assert json.loads(json.dumps(found)) == found


ESCAPE = "\x1b]0;mine\x07\x9b2J"
SHOWN = r"\x1b]0;mine\x07\x9b2J"


@pytest.fixture
def forged(files, tmp_path):
    """A model file whose names hold what a terminal would act on."""
    header, tensors = read(files[0])
    header["columns"][0]["name"] += ESCAPE
    header["columns"][2]["levels"][0] += ESCAPE
    header["roles"]["time"] += ESCAPE + "\nOutcome: forged"
    header["diagnostics"]["messages"] = ["careful" + ESCAPE]
    write(tmp_path / "forged.neuralsurv", header, tensors)
    return tmp_path / "forged.neuralsurv"


def test_inspect_shows_control_characters_and_does_not_send_them(forged, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    ended = run("inspect", forged)
    assert not set(ended.out + ended.err) & set("\x1b\x07\x9b")
    for text in (f"age{SHOWN}", f"II{SHOWN}", rf"years{SHOWN}\nOutcome: forged", f"careful{SHOWN}"):
        assert text in ended.out + ended.err
    told = run("inspect", forged, "--json")
    assert not set(told.out) & set("\x1b\x07\x9b")
    assert told.json["columns"][0]["name"] == f"age{ESCAPE}"


def test_an_error_shows_control_characters_and_does_not_send_them(files, frame, tmp_path):
    frame.rename(columns={"age": f"old{ESCAPE}"}).to_csv(tmp_path / "people.csv", index=False)
    ended = run("predict", files[0], tmp_path / "people.csv", "--quantity", "median")
    assert ended.code == 2
    assert not set(ended.err) & set("\x1b\x07\x9b")
    assert f"The columns are old{SHOWN}, " in ended.err


def test_a_table_on_a_terminal_shows_control_characters_and_in_a_pipe_keeps_them(files, frame, tmp_path):
    frame.assign(name=[f"person {k}{ESCAPE}" for k in range(40)]).to_csv(tmp_path / "people.csv", index=False)
    asked = ("predict", files[0], tmp_path / "people.csv", "--quantity", "median", "--id", "name")
    assert f"person 3{ESCAPE}," in run(*asked).out
    command = [sys.executable, "-m", "neuralsurv", *map(str, asked)]
    with Terminal(command, columns=300) as terminal:
        assert terminal.finish() == 0
        assert f"person 3{SHOWN}," in terminal.text


def test_ids_that_a_spreadsheet_would_compute(files, frame, tmp_path):
    ids = ["=1+1", "@sum(a1)", "-2+3", "-5", "plain", *map(str, range(35))]
    frame.assign(**{"+name": ids}).to_csv(tmp_path / "people.csv", index=False)
    asked = ("predict", files[0], tmp_path / "people.csv", "--quantity", "median", "--id", "+name")
    assert run(*asked, "--out", tmp_path / "out.csv").code == 0
    assert run(*asked, "--out", tmp_path / "out.parquet").code == 0
    for text in (run(*asked).out, (tmp_path / "out.csv").read_text(encoding="utf-8")):
        lines = [line.split(",")[0] for line in text.splitlines()]
        assert lines[:6] == ["'+name", "'=1+1", "'@sum(a1)", "'-2+3", "-5", "plain"]
    # No spreadsheet reads these as cells.
    assert pd.read_parquet(tmp_path / "out.parquet")["+name"].tolist() == ids
    assert run(*asked, "--json").json["predictions"][0]["+name"] == "=1+1"


@pytest.fixture
def pictures(tmp_path):
    yield tmp_path
    assert pyplot.get_fignums() == [], "a figure was left open"


def drawn(path):
    """Return every text of a picture in SVG."""
    texts = ElementTree.parse(path).getroot().iter(f"{{{_SVG}}}text")
    return {"".join(text.itertext()).strip() for text in texts}


def test_a_picture_shows_the_first_three_people_over_the_training_range(files, model, pictures, monkeypatch):
    monkeypatch.setitem(matplotlib.rcParams, "svg.fonttype", "none")
    ended = run("predict", *files, "--picture", pictures / "curves.svg")
    assert ended.code == 0, ended.err
    assert ended.err.endswith("note: the picture shows the first 3 of 40 people.\n")
    assert ended.out.startswith(f"wrote {pictures / 'curves.svg'} (")
    names = drawn(pictures / "curves.svg")
    assert {"row 0", "row 1", "row 2", "years", "survival", "survival: median and 90% interval"} <= names
    assert "row 3" not in names
    # The last label of the time axis lies within the training range, and not far from its end.
    numbers = [float(name) for name in names if name.replace(".", "").isdigit()]
    assert 0.75 * model.time_scale_ < max(numbers) <= model.time_scale_


def test_a_picture_and_a_table_may_both_be_asked_for(files, pictures, frame):
    frame.dropna(subset="dose").head(2).to_csv(pictures / "two.csv", index=False)
    asked = ("--times", "0.5,1", "--picture", pictures / "a.png", "--out", pictures / "a.csv")
    ended = run("predict", files[0], pictures / "two.csv", *asked, "--json")
    assert ended.json["lines"] == len(pd.read_csv(pictures / "a.csv")) == 4
    assert ended.json["picture"] == str(pictures / "a.png")
    assert ended.json["notes"] == []
    assert pyplot.imread(pictures / "a.png").std() > 0.01, "an empty picture"


@pytest.mark.parametrize("quantity", ["hazard", "cumulative-hazard", "median", "rmst"])
def test_every_quantity_can_be_drawn(files, pictures, quantity):
    ended = run("predict", *files, "--quantity", quantity, "--picture", pictures / "q.pdf", "--quiet")
    assert (ended.code, ended.err) == (0, "")
    assert (pictures / "q.pdf").read_bytes().startswith(b"%PDF")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--picture", "curves.gif"), "--picture 'curves.gif' must end with .png, .svg or .pdf."),
        (("--picture", "nowhere/curves.png"), "the folder 'nowhere' does not exist"),
    ],
)
def test_pictures_that_cannot_be(files, arguments, message):
    assert message in refused("predict", *files, *arguments)


def test_a_picture_does_not_replace_another_file(files, tmp_path):
    picture = tmp_path / "a.svg"
    picture.write_text("mine", encoding="utf-8")
    assert "exists already" in refused("predict", *files, "--picture", picture)
    assert picture.read_text(encoding="utf-8") == "mine"
    assert list(tmp_path.iterdir()) == [picture]


def test_a_picture_without_matplotlib_says_what_to_install(files, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    said = refused("predict", *files, "--picture", tmp_path / "a.png")
    assert said == "a picture needs matplotlib: pip install 'neuralsurv[plot]'."
    assert list(tmp_path.iterdir()) == []
