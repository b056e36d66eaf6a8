"""Simulation-based calibration as a command: bands hold as often as they say, and a shrunk posterior fails."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm

from false_alarm import z_bound

FOLDER = Path(__file__).parents[2] / "benchmarks" / "proof"


@pytest.fixture
def sbc(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    spec = importlib.util.spec_from_file_location("sbc", FOLDER / "sbc.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_bands_hold_as_often_as_they_say(sbc):
    from sbc_bands import judge

    rng, count = np.random.default_rng(1), 1000
    failed = sum(not judge(rng.integers(0, 20, 80), 19, 0.1).uniform for _ in range(count))
    # The critical tail comes from 4,000 simulations of its own.
    error = np.sqrt(0.1 * 0.9 * (1 / count + 1 / 4000))
    # Counts are whole numbers, so the band can be somewhat too wide, never too narrow.
    assert 0.05 < failed / count < 0.1 + z_bound() * error


def test_bands_are_those_of_the_verdict(sbc):
    from sbc_bands import judge

    rng = np.random.default_rng(2)
    for spread in (1, 0.6):
        ranks = np.clip(rng.normal(9.5, 5.8 * spread, 100), 0, 19).astype(int)
        verdict = judge(ranks, 19, 0.05)
        inside = (verdict.difference >= verdict.low - 1e-12) & (verdict.difference <= verdict.high + 1e-12)
        assert inside.all() == verdict.uniform
        assert verdict.difference[-1] == pytest.approx((ranks <= 18).mean() - 0.95)


def conjugate(replicates, bias=0.0):
    """Ranks of the truth in a Gaussian model whose posterior is known, right and shrunk."""
    from sbc_models import DRAWS, ranks, shrunk

    rng = np.random.default_rng(3)
    right, wrong = [], []
    for _ in range(replicates):
        truth = rng.normal()
        seen = truth + rng.normal()
        draws = {"mean": seen / 2 + bias + np.sqrt(0.5) * rng.normal(size=DRAWS)}
        right.append(ranks({"mean": np.array([truth])}, draws)["mean"])
        wrong.append(ranks({"mean": np.array([truth])}, shrunk(draws))["mean"])
    return np.array(right), np.array(wrong)


def test_a_right_posterior_passes_and_a_shrunk_one_fails(sbc):
    from sbc_bands import judge
    from sbc_models import DRAWS, SHRUNK

    right, wrong = (judge(ranks, DRAWS, 0.001) for ranks in conjugate(250))
    assert right.uniform
    assert right.spread == pytest.approx(1, abs=0.1)
    assert not wrong.uniform
    # The truth is a normal number with 1/SHRUNK of the standard deviation that the posterior says.
    expected = np.std(norm.cdf(norm.rvs(size=20_000, random_state=0) / SHRUNK)) * np.sqrt(12)
    assert wrong.spread == pytest.approx(expected, abs=0.1)
    assert wrong.asymmetry > 0.001


def test_the_variational_form_finds_a_bias(sbc):
    from sbc_bands import judge
    from sbc_models import DRAWS

    biased, _ = (judge(ranks, DRAWS, 0.001) for ranks in conjugate(250, bias=0.5))
    assert biased.asymmetry < 1e-5


@pytest.mark.parametrize("model", ["paper", "default"])
def test_cohorts_are_drawn_from_the_hazard(sbc, model):
    from sbc_models import MODELS, ROWS, Draws

    made = MODELS[model]()
    rng = np.random.default_rng(0)
    truth = made.draw_prior(rng)
    truth = Draws(0 * truth.theta, 0 * truth.phi + 1.0)
    cohorts = [made.draw_cohort(truth, rng) for _ in range(60)]
    events = sum(int(cohort.event.sum()) for cohort in cohorts)
    # The cumulative hazard at the end of each row adds up to the number of events (a martingale).
    import torch

    from neuralsurv.posterior.gaussian import Posterior
    from neuralsurv.posterior.samples import DrawnWeights

    weights = DrawnWeights(truth.theta)
    posterior = Posterior(made.phi_prior, weights, made.theta_star, made.network, made.normaliser, 1.0)
    total = 0.0
    for cohort in cohorts:
        entry = torch.zeros_like(cohort.time)
        nothing = torch.zeros(ROWS, dtype=torch.bool)
        total -= float(posterior.log_likelihood_draws(truth, entry, cohort.time, nothing, cohort.x).sum())
    assert abs(events - total) < z_bound(2) * np.sqrt(total)


def test_a_small_run_is_stored_once_and_drawn(sbc, tmp_path, capsys, monkeypatch):
    import sbc_models

    monkeypatch.setattr(sbc_models, "WARMUP", 2)
    monkeypatch.setattr(sbc_models, "THIN", 1)
    store, page, picture = tmp_path / "store.jsonl", tmp_path / "page.md", tmp_path / "picture.png"
    command = ["run", "--store", str(store), "--replicates", "1"]
    assert sbc.main(command) == 0
    records = [json.loads(line) for line in store.read_text(encoding="utf-8").splitlines()]
    assert {(r["model"], r["method"]) for r in records} == {
        ("paper", "exact"),
        ("paper", "CAVI"),
        ("default", "exact"),
        ("default", "Gaussian"),
    }
    assert all(0 <= rank <= 99 for r in records for of in r["ranks"].values() for rank in of.values())
    assert {"phi"} < set(records[0]["ranks"]["exact"])
    capsys.readouterr()
    assert sbc.main(command) == 0
    assert "4 jobs, 4 of them stored, 0 to do" in capsys.readouterr().out
    assert sbc.main(["table", "--store", str(store), "--out", str(page)]) == 0
    assert "| exact, shrunk | phi |" in page.read_text(encoding="utf-8")
    assert sbc.main(["plot", "--store", str(store), "--out", str(picture)]) == 0
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_nothing_to_draw(sbc, tmp_path):
    with pytest.raises(SystemExit, match="holds no result of today's models"):
        sbc.main(["plot", "--store", str(tmp_path / "none.jsonl"), "--out", str(tmp_path / "x.png")])


def test_the_stored_run_finds_the_shrunk_posterior_out(sbc):
    from sbc_report import ranks_of, verdicts

    records = sbc.read_store(sbc.STORE)
    for model in ("paper", "default"):
        found = ranks_of(records, model, sbc.fingerprint(model))
        assert all(verdict.uniform for verdict in verdicts(found["exact"]).values())
        assert not any(verdict.uniform for verdict in verdicts(found["exact, shrunk"]).values())
