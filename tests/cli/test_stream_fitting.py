"""``neuralsurv fit --stream``, alone and under torchrun."""

import os
import signal
import subprocess
import sys

import numpy as np
import pytest

import neuralsurv
from cli.commands import refused, run
from neuralsurv.cli import stream_fitting
from neuralsurv.data.simulate import lognormal_cohort
from neuralsurv.errors import ProcessLostError

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
    done = subprocess.run([*command, "--out", str(out)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("fitted by 2 processes") == 1
    np.testing.assert_allclose(
        neuralsurv.load(out).posterior_.theta.mean, fitted.posterior_.theta.mean, rtol=1e-8, atol=1e-8
    )


def test_what_cannot_stream_is_refused(rows, tmp_path):
    out = ("--out", tmp_path / "m")
    assert refused("fit", rows, "--stream", *ROLES) == "say where the model goes: --out m.neuralsurv."
    assert "say which column holds the event" in refused("fit", rows, "--stream", "--time", "time", *out)
    assert "say which column holds the time" in refused("fit", rows, "--stream", "--event", "event", *out)
    assert "there is no data file" in refused("fit", "--stream", *ROLES, *out)
    assert "--id, --categorical cannot be used with --stream" in refused(
        "fit", rows, "--stream", *ROLES, *out, "--id", "x", "--categorical", "y"
    )
    for option in ("--time", "--features", "--drop"):
        roles = ("--event", "event") if option == "--time" else ROLES
        assert "'tme'" in refused("fit", rows, "--stream", *roles, *out, option, "tme")
    assert "are for rows that stream; add --stream" in refused("fit", rows, *ROLES, *out, "--passes", "3")
    assert "there is no Parquet file" in refused("fit", tmp_path / "no", "--stream", *ROLES, *out)


def test_a_process_that_torchrun_stops_says_why(monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "3")
    before = signal.getsignal(signal.SIGTERM)
    message = (
        r"process 1 of 3 was told to stop, most likely because another one is gone; the checkpoint 'state' is intact"
    )
    with pytest.raises(ProcessLostError, match=message), stream_fitting._told_to_stop(stream_fitting.Path("state")):
        os.kill(os.getpid(), signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before


def test_several_modes(rows, tmp_path):
    out = tmp_path / "m.neuralsurv"
    ended = run("fit", rows, "--stream", *ROLES, *QUICK, "--modes", "2", "--out", out)
    assert ended.code == 0, ended.err
    assert "modes averaged over" in ended.out
    assert len(neuralsurv.load(out).posterior_.parts) == 2
    assert "are for rows that stream; add --stream" in refused("fit", rows, *ROLES, "--out", out, "--modes", "2")
