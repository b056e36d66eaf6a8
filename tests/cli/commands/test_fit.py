"""``neuralsurv fit``: what it writes, what it says, what it refuses."""

import gzip
import json
import shutil
import tomllib

import numpy as np
import pandas as pd
import pytest

import neuralsurv
from cli.run_command import QUICK, cohort_file, refused, run
from neuralsurv.cli.commands import fit
from neuralsurv.cli.options import DataSettings
from neuralsurv.cli.tables.survival_table import kept_roles, read_survival_table
from neuralsurv.files.atomic import held_name

ROLES = ("--time", "years", "--event", "died")


@pytest.fixture
def table(tmp_path):
    return cohort_file(tmp_path)


def test_fit_writes_the_model_that_the_estimator_makes(table, tmp_path):
    out = tmp_path / "m.neuralsurv"
    ended = run("fit", table, *ROLES, "--out", out, "--seed", 7, *QUICK)
    assert ended.code == 0, ended.err
    frame = pd.read_csv(table).drop(columns=["name", "clinic"])
    direct = neuralsurv.PaperNeuralSurv(
        hidden=(2,), draws=40, starts=1, activation="tanh", quadrature="gauss-legendre",
        quadrature_points=8, random_state=7, verbose=False,
    ).fit(frame, time="years", event="died")  # fmt: skip
    loaded = neuralsurv.load(out)
    assert (loaded.predict(frame) == direct.predict(frame)).all()
    assert loaded.columns_ == {"time": "years", "event": "died"}


def test_fit_says_what_it_did_with_text_and_gaps(table, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    ended = run("fit", table, *ROLES, "--out", tmp_path / "m.neuralsurv", *QUICK)
    assert "note: left out column 'name': it has 40 different texts in 40 rows, like a name." in ended.err
    assert "note: left out column 'clinic': it is North in every row that has a value." in ended.err
    rows = {line.split()[0]: " ".join(line.split()[1:]) for line in ended.out.splitlines() if line.strip()}
    assert rows["age"] == "number none scaled"
    assert rows["dose"] == "number 2 (5%) scaled; gaps filled with the mean; too few for an indicator"
    assert rows["stage"] == "2 categories: II, III none 1 indicator"
    assert "rows                           40" in ended.out
    assert f"neuralsurv predict {tmp_path / 'm.neuralsurv'}" in ended.out


def test_json_holds_the_same(table, tmp_path):
    ended = run("fit", table, *ROLES, "--out", tmp_path / "m.neuralsurv", "--json", *QUICK)
    assert ended.err == ""
    found = ended.json
    assert (found["rows"], found["roles"]) == (40, {"time": "years", "event": "died"})
    assert [column["name"] for column in found["columns"]] == ["age", "dose", "stage"]
    dose = found["columns"][1]
    assert -3 < dose.pop("low") < 0 < dose.pop("high") < 3
    assert dose == {
        "name": "dose", "kind": "number", "levels": [], "has_missing": True, "missing": 2, "whole": False,
        "part": "", "shape": [], "gap_indicator": False,
    }  # fmt: skip
    assert found["notes"][0] == "died: 1 (24) → event; 0 (16) → censored."
    assert len(found["notes"]) == 3
    assert found["parameters"]["hidden"] == [2]
    assert found["converged"] is True
    assert np.isfinite(found["elbo"])


def test_json_says_how_likely_it_is_that_no_covariate_matters(table, tmp_path):
    frame = pd.read_csv(table)
    outcome = ["years", "died"]
    frame[outcome] = frame[outcome].sample(frac=1, random_state=0).to_numpy()
    frame.to_csv(tmp_path / "permuted.csv", index=False)
    found = run("fit", tmp_path / "permuted.csv", *ROLES, "--out", tmp_path / "m.neuralsurv", "--json").json
    assert found["null_share"] == neuralsurv.load(tmp_path / "m.neuralsurv").diagnostics_.null_share
    assert 0.02 < found["null_share"] < 1


def test_warnings_of_the_fit_are_passed_on(table, tmp_path):
    arguments = ("fit", table, *ROLES, "--out", tmp_path / "m.neuralsurv", *QUICK, "--set", "max_sweeps=1")
    ended = run(*arguments, "--quiet")
    assert ended.code == 0
    assert "\nwarning: the variational sweeps stopped after 1" in ended.err
    assert run(*arguments, "--force", "--json").json["warnings"][0].startswith("the variational sweeps stopped after 1")


def test_config_repeats_a_run(table, tmp_path):
    out, config = tmp_path / "m.neuralsurv", tmp_path / "run.toml"
    first = run("fit", table, *ROLES, "--drop", "dose", "--out", out, "--write-config", config, *QUICK)
    assert first.code == 0, first.err
    written = tomllib.loads(config.read_text(encoding="utf-8"))
    assert written["data"] == {"file": "people.csv", "time": "years", "event": "died", "drop": ["dose"]}
    assert written["model"]["random_state"] == 0
    assert written["output"] == {"file": "m.neuralsurv"}
    before = out.read_bytes()
    # From another folder: paths count from the config file.
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for name in ("people.csv", "run.toml"):
        shutil.copy(tmp_path / name, elsewhere / name)
    assert run("fit", "--config", elsewhere / "run.toml").code == 0
    assert (elsewhere / "m.neuralsurv").read_bytes() == before


def test_what_is_typed_comes_before_the_config(table, tmp_path):
    config = tmp_path / "run.toml"
    config.write_text('[data]\ntime = "age"\nevent = "died"\n[model]\nrandom_state = 3\n', encoding="utf-8")
    out = tmp_path / "m.neuralsurv"
    ended = run("fit", table, "--time", "years", "--out", out, "--config", config, "--json", *QUICK)
    assert ended.json["roles"] == {"time": "years", "event": "died"}
    assert ended.json["parameters"]["random_state"] == 3


@pytest.mark.parametrize("kind", ["csv", "tsv", "parquet", "feather"])
def test_every_kind_of_table_is_read_the_same(table, tmp_path, kind):
    frame = pd.read_csv(table)
    plain, zipped = tmp_path / f"same.{kind}", tmp_path / f"same.{kind}.gz"
    if kind == "parquet":
        frame.to_parquet(plain)
    elif kind == "feather":
        frame.to_feather(plain)
    else:
        frame.to_csv(plain, index=False, sep="\t" if kind == "tsv" else ",")
    zipped.write_bytes(gzip.compress(plain.read_bytes()))
    for path in (plain, zipped):
        found = read_survival_table(DataSettings(file=path, time="years", event="died"))
        pd.testing.assert_frame_equal(found.frame, frame)
    ended = run("fit", zipped, *ROLES, "--out", tmp_path / "m.neuralsurv", "--json", *QUICK)
    assert ended.json["rows"] == 40


def test_dates_become_durations(table, tmp_path):
    frame = pd.read_csv(table)
    start = pd.Timestamp("2020-02-29") + pd.to_timedelta(np.arange(len(frame)), unit="D")
    days = np.ceil(frame["years"] * 365)
    frame["admitted"] = start.strftime("%d.%m.%Y")
    frame["left"] = (start + pd.to_timedelta(days, unit="D")).dt.strftime("%d.%m.%Y")
    frame["status"] = np.where(frame["died"] == 1, "dead", "alive")
    dated = tmp_path / "dated.csv"
    frame.drop(columns=["years", "died"]).to_csv(dated, index=False)
    out = tmp_path / "m.neuralsurv"
    ended = run(
        "fit", dated, "--start-date", "admitted", "--end-date", "left", "--date-format", "%d.%m.%Y", "--unit", "weeks",
        "--event", "status", "--event-value", "dead", "--out", out, "--json", *QUICK,
    )  # fmt: skip
    assert ended.code == 0, ended.err
    assert ended.json["roles"] == {"time": "weeks from admitted to left", "event": "status"}
    assert ended.json["events"] == frame["died"].sum()
    model = neuralsurv.load(out)
    assert model.time_scale_ == pytest.approx(days.max() / 7)
    assert model.columns_["start_date"] == "admitted"
    assert json.loads(model.columns_["event_values"]) == ["dead"]


def test_entry_weight_and_id_reach_the_estimator(tmp_path):
    frame = pd.read_csv(cohort_file(tmp_path)).drop(columns=["name", "clinic"])
    frame["seen"] = np.where(frame["years"] > 0.5, 0.2, 0.0)
    frame["count"] = 2
    frame["who"] = np.arange(len(frame))
    path, out = tmp_path / "late.csv", tmp_path / "m.neuralsurv"
    frame.to_csv(path, index=False)
    arguments = ("--entry", "seen", "--weight", "count", "--id", "who", "--out", out, "--json")
    found = run("fit", path, *ROLES, *arguments, *QUICK).json
    assert found["roles"] == {"time": "years", "event": "died", "entry": "seen", "weight": "count", "id": "who"}
    model = neuralsurv.load(out)
    assert model.training_["truncated"] == (frame["seen"] > 0).sum()
    assert model.training_["weighted_events"] == 2 * frame["died"].sum()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("--time", "yaers", "--event", "died"),
            "there is no column 'yaers' (--time); did you mean 'years'? The colum",
        ),
        (("--time", "YEARS", "--event", "died"), "did you mean 'years'?"),
        ((*ROLES, "--drop", "Dose"), "there is no column 'Dose' (--drop); did you mean 'dose'?"),
        (("--time", "years"), "say which column holds the event: --event COLUMN"),
        (("--event", "died"), "say which column holds the time: --time COLUMN"),
        (("--time", "years", "--event", "years"), "column 'years' is given as --time and as --event."),
        ((*ROLES, "--drop", "years"), "column 'years' belongs to the outcome"),
        ((*ROLES, "--features", "age", "--drop", "age"), "column 'age' is given as --features and as --drop."),
        (("--time", "years", "--event", "age"), "column 'age' must be 0/1 or True/False, but holds"),
        (
            ("--time", "years", "--event", "stage"),
            "column 'stage' holds words (II, III); say which of them mean the event, for example --event-value III.",
        ),
        (("--time", "stage", "--event", "died"), "column 'stage' cannot be read as numbers"),
        ((*ROLES, "--start-date", "age"), "--start-date and --end-date belong together"),
        ((*ROLES, "--start-date", "age", "--end-date", "dose"), "the time is given twice"),
        ((*ROLES, "--unit", "days"), "--unit and --date-format are for dates"),
        ((*ROLES, "--entry-date", "age"), "--entry-date goes with --start-date and --end-date"),
        (
            (*ROLES, "--event-value", "2"),
            "no row of column 'died' holds '2' (--event-value); its values are 1 (24), 0 (16).",
        ),
        ((*ROLES, "--set", "rho"), "--set 'rho' is not of the form name=value"),
        (
            (*ROLES, "--preset", "paper", "--set", "roh=1"),
            "there is no setting 'roh' (--set or [model]); did you mean 'rho'?",
        ),
        ((*ROLES, "--set", "rho=1"), "'rho' is a setting of --preset paper, and this is --preset default."),
        ((*ROLES, "--preset", "paper", "--set", "rho=-1"), "rho=-1 must be a positive number."),
        ((*ROLES, "--hidden", "a,b"), "--hidden 'a,b' must be whole numbers"),
        ((*ROLES, "--preset", "nothing"), "preset 'nothing' is not known"),
        ((*ROLES, "--features", "clinic"), "no covariate is left that a model can use"),
    ],
)
def test_wrong_input_is_refused_and_nothing_is_written(table, tmp_path, arguments, message):
    before = sorted(tmp_path.iterdir())
    assert message in refused("fit", table, *arguments, "--out", tmp_path / "m.neuralsurv")
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("force", [[], ["--force"]])
def test_two_fits_to_one_file(table, tmp_path, force):
    out = tmp_path / "m.neuralsurv"
    with held_name(out):
        said = refused("fit", table, *ROLES, "--out", out, *force, *QUICK)
    assert "m.neuralsurv' is being written by another command, or named twice; choose another name" in said
    assert not out.exists()
    same = ["--write-config", out]
    assert "named twice" in refused("fit", table, *ROLES, "--out", out, *same, *force, *QUICK)
    assert run("fit", table, *ROLES, "--out", out, *QUICK).code == 0


def test_a_model_that_another_program_puts_there_during_the_fit_is_left_alone(table, tmp_path, monkeypatch):
    out = tmp_path / "m.neuralsurv"

    def slow(cohort):
        out.write_bytes(b"theirs")
        return kept_roles(cohort)

    monkeypatch.setattr(fit, "kept_roles", slow)
    assert "was made by another program in the meantime" in refused("fit", table, *ROLES, "--out", out, *QUICK)
    assert out.read_bytes() == b"theirs"


def test_an_error_is_json_too_when_asked(table, tmp_path):
    ended = run("fit", table, "--time", "yaers", "--event", "died", "--out", tmp_path / "m.neuralsurv", "--json")
    assert ended.code == 2
    assert ended.json["exit_code"] == 2
    assert ended.json["error"].startswith("there is no column 'yaers'")


def test_no_place_for_the_model(table, tmp_path):
    assert refused("fit", table, *ROLES) == "say where the model goes: --out m.neuralsurv."
    assert refused("fit", *ROLES, "--out", tmp_path / "m").startswith("there is no data file; name one")


def test_files_are_replaced_only_with_force(table, tmp_path):
    out = tmp_path / "m.neuralsurv"
    out.write_text("precious", encoding="utf-8")
    assert "exists already; choose another name, or add --force" in refused("fit", table, *ROLES, "--out", out)
    assert out.read_text(encoding="utf-8") == "precious"
    config = tmp_path / "run.toml"
    config.write_text("precious", encoding="utf-8")
    new = tmp_path / "n.neuralsurv"
    told = refused("fit", table, *ROLES, "--out", new, "--write-config", config)
    assert f"'{config}' exists already" in told
    assert not new.exists()
    assert run("fit", table, *ROLES, "--out", out, "--force", *QUICK).code == 0
    assert neuralsurv.load(out).training_["rows"] == 40


def test_rows_without_an_outcome(table, tmp_path):
    frame = pd.read_csv(table)
    frame.loc[[0, 3], "years"] = np.nan
    frame.to_csv(table, index=False)
    out = tmp_path / "m.neuralsurv"
    assert "column 'years' is missing (NaN) in 2 rows (rows 0, 3, counting from 0)" in refused(
        "fit", table, *ROLES, "--out", out
    )
    ended = run("fit", table, *ROLES, "--out", out, "--drop-missing-outcome", "--json", *QUICK)
    assert ended.json["rows"] == 38
    assert "left out 2 of 40 rows, which have no complete outcome." in ended.json["notes"]
    frame.assign(years=np.nan).to_csv(table, index=False)
    arguments = ("fit", table, *ROLES, "--out", out, "--force", "--drop-missing-outcome")
    assert refused(*arguments) == "no row has a complete outcome; nothing is left."


def test_numbers_that_are_names(table, tmp_path):
    frame = pd.read_csv(table)
    frame["code"] = [f"0{k % 3}" for k in range(len(frame))]
    frame.to_csv(table, index=False)
    out = tmp_path / "m.neuralsurv"
    found = run("fit", table, *ROLES, "--categorical", "code", "--out", out, "--json", *QUICK).json
    column = next(column for column in found["columns"] if column["name"] == "code")
    assert column["levels"] == ["00", "01", "02"]
    # A table for prediction is read the same way.
    assert run("predict", out, table, "--quantity", "median").code == 0
