"""``neuralsurv fit --stream``, alone and under torchrun."""

import os
import signal
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

import neuralsurv
from cli.run_command import refused, run
from neuralsurv.cli.commands import fit_stream
from neuralsurv.cli.messages import Messages
from neuralsurv.data.simulate import lognormal_cohort
from neuralsurv.data.stream import batches
from neuralsurv.errors import ProcessLostError
from neuralsurv.inference.stream.fit import StreamFitter

QUICK = ("--hidden", "4", "--training-passes", "2", "--drop", "useless")
ROLES = ("--time", "time", "--event", "event")


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rows")
    cohort = lognormal_cohort(600, noise=1, seed=2)
    cohort.x.assign(time=cohort.time, event=cohort.event, useless=1).to_parquet(folder / "rows.parquet")
    return folder


@pytest.fixture(scope="module")
def fitted(rows):
    model = neuralsurv.NeuralSurv(hidden=(4,), random_state=0, verbose=False)
    features = [name for name in lognormal_cohort(2, noise=1, seed=0).x]
    return model.fit_stream(rows, time="time", event="event", features=features, training_passes=2)


def test_stream_writes_the_model_that_the_estimator_makes(rows, fitted, tmp_path):
    out, state = tmp_path / "m.neuralsurv", tmp_path / "state"
    ended = run("fit", rows, "--stream", *ROLES, *QUICK, "--checkpoint", state, "--out", out)
    assert ended.code == 0, ended.err
    assert "fitted in" in ended.out
    assert state.exists()
    found = neuralsurv.load(out)
    assert np.array_equal(found.posterior_.theta.mean, fitted.posterior_.theta.mean)
    assert found.columns_ == {"time": "time", "event": "event"}
    again = run("fit", str(rows / "*.parquet"), "--stream", *ROLES, *QUICK, "--checkpoint", state, "--out", out,
                "--force", "--json")  # fmt: skip
    assert again.json["rows"] == 600
    assert again.json["processes"] == 1
    assert again.json["elbo"] == float(fitted.elbo_[-1])


def test_torchrun_gives_the_same_model(rows, fitted, tmp_path):
    out = tmp_path / "m.neuralsurv"
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    # The long name, since torchrun would take --event for an option of its own.
    command = [*torchrun, "-m", "neuralsurv", "fit", str(rows), "--time", "time", "--event-column", "event", *QUICK]
    done = subprocess.run([*command, "--out", str(out)], capture_output=True, text=True, timeout=300, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("fitted by 2 processes") == 1
    np.testing.assert_allclose(
        neuralsurv.load(out).posterior_.theta.mean, fitted.posterior_.theta.mean, rtol=1e-8, atol=1e-8
    )


def test_messy_rows_of_a_stream(rows, tmp_path):
    frame = pd.read_parquet(rows / "rows.parquet")
    code = np.where(np.arange(600) % 20 == 0, 999, np.arange(600) % 50)
    numbered = frame.assign(**{"Unnamed: 0": range(600), "code": code, "town": [f"t{k % 30}" for k in range(600)]})
    numbered.set_index(np.random.default_rng(0).permutation(600)).to_parquet(tmp_path / "messy.parquet")
    roles = (*ROLES, *QUICK, "--stream", "--out", tmp_path / "m.neuralsurv")
    ended = run("fit", tmp_path / "messy.parquet", *roles, "--json")
    assert ended.code == 0, ended.err
    notes, warned = ended.json["notes"], ended.json["warnings"]
    assert notes[0] == "left out column '__index_level_0__': it is the index of the table that was written."
    assert notes[1].startswith("left out column 'Unnamed: 0': it has no name in the header and numbers the rows")
    events = int(frame["event"].sum())
    assert notes[2] == f"event: 1 ({events}) → event; 0 ({600 - events}) → censored."
    quiet = run("fit", tmp_path / "messy.parquet", *roles, "--force", "--quiet").err
    assert [line for line in quiet.splitlines() if line.startswith("note: ")] == [f"note: {notes[2]}"]
    assert warned[0].startswith("column 'town' is text with 30 levels in 600 rows")
    assert "df['code'] = df['code'].replace(999, float('nan'))" in warned[1]
    assert sum("999" in text for text in warned) == 1
    frame.assign(dose=frame.iloc[:, 0].map("{:.2f}".format).str.replace(".", ",")).to_parquet(tmp_path / "de.parquet")
    told = refused("fit", tmp_path / "de.parquet", *roles, "--force")
    assert told.endswith("write them as numbers: df['dose'] = df['dose'].str.replace(',', '.').astype(float).")
    frame.assign(event=frame["event"] + 1).to_parquet(tmp_path / "r.parquet")
    assert "df['event'] = df['event'] == 2" in refused("fit", tmp_path / "r.parquet", *roles, "--force")
    assert "--event-value, --zero-times cannot be used with --stream" in refused(
        "fit", tmp_path / "r.parquet", *roles, "--force", "--event-value", "2", "--zero-times", "drop"
    )


def test_codes_in_any_row_are_warned_of_once_and_before_the_fit(rows, tmp_path, monkeypatch):
    # Chunks of 300 rows, with the codes in the second.
    monkeypatch.setattr(batches, "CHUNK_ROWS", 300)
    place = np.arange(600)
    codes = {f"c{k}": np.where(place >= 590, 999, place % 50) for k in range(6)}
    pd.read_parquet(rows / "rows.parquet").assign(**codes).to_parquet(tmp_path / "coded.parquet")
    shown_before = []
    plain = StreamFitter.fit

    def fit(self, settings):
        shown_before.extend(shown)
        return plain(self, settings)

    shown = []
    monkeypatch.setattr(StreamFitter, "fit", fit)
    monkeypatch.setattr(Messages, "_remark", lambda self, kind, colour, texts: shown.extend(texts))
    ended = run("fit", tmp_path / "coded.parquet", *ROLES, *QUICK, "--stream", "--out", tmp_path / "m.neuralsurv")
    assert ended.code == 0, ended.err
    about = [text for text in shown if "999" in text or "the same for" in text]
    assert [text[:37] for text in about[:3]] == [f"column 'c{k}' holds 999 in 10 rows, and" for k in range(3)]
    assert about[3:] == ["… and the same for 3 more columns."]
    assert shown_before == about[:3]


def test_what_cannot_stream_is_refused(rows, tmp_path):
    out = ("--out", tmp_path / "m")
    assert refused("fit", rows, "--stream", *ROLES) == "say where the model goes: --out m.neuralsurv."
    assert "say which column holds the event" in refused("fit", rows, "--stream", "--time", "time", *out)
    assert "say which column holds the time" in refused("fit", rows, "--stream", "--event", "event", *out)
    assert "there is no data file" in refused("fit", "--stream", *ROLES, *out)
    assert "--id, --categorical cannot be used with --stream" in refused(
        "fit", rows, "--stream", *ROLES, *out, "--id", "x", "--categorical", "y"
    )
    assert refused("fit", rows, "--stream", *ROLES, *out, "--preset", "paper").startswith(
        "--stream is for the default model; --preset paper needs all rows in memory."
    )
    for option in ("--time", "--features", "--drop"):
        roles = ("--event", "event") if option == "--time" else ROLES
        assert "'tme'" in refused("fit", rows, "--stream", *roles, *out, option, "tme")
    assert "are for rows that stream; add --stream" in refused("fit", rows, *ROLES, *out, "--passes", "3")
    assert "there is no Parquet file" in refused("fit", tmp_path / "no", "--stream", *ROLES, *out)


def test_a_text_file_is_refused_with_what_to_do(rows, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pd.read_parquet(rows / "rows.parquet").to_csv("rows.csv", index=False)
    convert = "convert it once with pandas.read_csv('rows.csv').to_parquet('rows.parquet')"
    assert refused("fit", "rows.csv", "--stream", *ROLES, "--out", "m") == (
        f"'rows.csv' is not Parquet, which --stream reads; {convert}, or leave out --stream to read the whole table "
        "into memory."
    )
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert refused("fit", "rows.csv", *ROLES, "--out", "m") == (
        f"'rows.csv' is not Parquet, which a fit under torchrun reads; {convert}, or leave out torchrun to read the "
        "whole table into memory."
    )


@pytest.mark.parametrize(
    ("state", "kept"),
    [
        ("written", r"; the checkpoint '.*written' is intact\."),
        ("asked for", r"; no checkpoint was written yet\."),
        ("", r"\."),
    ],
)
def test_a_process_that_torchrun_stops_says_why(monkeypatch, tmp_path, state, kept):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "3")
    (tmp_path / "written").touch()
    before = signal.getsignal(signal.SIGTERM)
    message = r"process 1 of 3 was stopped, most likely because another one is gone" + kept + " Start the command"
    checkpoint = tmp_path / state if state else None
    with pytest.raises(ProcessLostError, match=message), fit_stream._stopped_by_torchrun(checkpoint):
        os.kill(os.getpid(), signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before


def test_several_modes(rows, tmp_path):
    out = tmp_path / "m.neuralsurv"
    ended = run("fit", rows, "--stream", *ROLES, *QUICK, "--modes", "2", "--out", out)
    assert ended.code == 0, ended.err
    assert "modes averaged over" in ended.out
    assert len(neuralsurv.load(out).posterior_.parts) == 2
    assert "are for rows that stream; add --stream" in refused("fit", rows, *ROLES, "--out", out, "--modes", "2")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("--passes", "3"), "passes=3 is for steps on samples of the rows, and this fit sweeps over all of them"),
        (("--set", "average=false"), "average=False is for fit, which holds all rows in memory, and does nothing in"),
        (
            ("--set", "max_sweeps=5", "--method", "mini-batch"),
            "max_sweeps=5 is for sweeps over all rows (method='exact'), and this",
        ),
        (
            ("--preset", "paper", "--set", "starts=3"),
            "--stream is for the default model; --preset paper needs all rows in memory.",
        ),
    ],
)
def test_settings_that_would_do_nothing_are_refused(rows, tmp_path, given, message):
    assert refused("fit", rows, "--stream", *ROLES, *QUICK, *given, "--out", tmp_path / "m").startswith(message)
