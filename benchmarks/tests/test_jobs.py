import os
import sys
import warnings
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_info

from neuralsurv_bench import jobs, protocol, published
from neuralsurv_bench.environment import environment, without_paths
from neuralsurv_bench.experiments import EXPERIMENTS, Job, jobs_of
from neuralsurv_bench.methods.interface import Method, Settings
from neuralsurv_bench.methods.neuralsurv_paper import METHODS as PAPER_METHODS
from neuralsurv_bench.methods.neuralsurv_paper import paper_method
from neuralsurv_bench.store import Key
from neuralsurv_bench.threads import one_thread


@dataclass
class Exponential:
    """Curves exp(−t / scale), the same for everybody."""

    scale: float
    note: str = ""

    def survival(self, x, times):
        return np.tile(np.exp(-times / self.scale), (len(x), 1))

    def risk(self, x):
        return None


class Ranks:
    def survival(self, x, times):
        return None

    def risk(self, x):
        return -x[:, 0]


def fit_exponential(split, settings):
    return Exponential(split.train.time.mean(), note="one number")


def fit_truth(split, settings):
    fitted = Exponential(1.0)
    fitted.survival = protocol.synthetic(25).truth
    return fitted


def fit_nothing(split, settings):
    raise ValueError("cannot read /home/somebody/models/weights.pt")


def fit_with_complaints(split, settings):
    for _ in range(3):
        warnings.warn("the steps did not settle", UserWarning, stacklevel=1)
    return fit_exponential(split, settings)


def fit_at_random(split, settings):
    assert settings == Settings("fair", (16, 16), 7)
    return Exponential(20 + 10 * (np.random.random() + torch.rand(1).item()))  # noqa: NPY002


FAKES = {
    name: Method(name, "deep", fit)
    for name, fit in {
        "exponential": fit_exponential,
        "truth": fit_truth,
        "broken": fit_nothing,
        "complaining": fit_with_complaints,
        "random": fit_at_random,
        "ranks": lambda split, settings: Ranks(),
        "small paper": paper_method((2,)).fit,
    }.items()
}


@pytest.fixture(autouse=True)
def fake_registry(monkeypatch):
    monkeypatch.setitem(sys.modules, "neuralsurv_bench.methods.registry", SimpleNamespace(METHODS=FAKES))


def job(method, experiment="synthetic", cohort="synthetic", variant="fair", rows=25, seed=0, **options):
    return Job(Key(experiment, cohort, "", 0, method, variant, seed), rows, **options)


def test_a_finished_job_has_scores_by_both_definitions_times_and_versions():
    done = jobs.execute(job("exponential"))
    assert done.status == "finished", done.error
    assert set(done.scores) == {"paper", "ours"}
    for definition in done.scores.values():
        assert 0.05 < definition["ibs"] < 0.5
        assert definition["c_index"] == 0.5
    assert sum(done.scores["ours"]["d_calibration_histogram"]) == pytest.approx(100)
    assert 0 < done.fit_seconds < 5
    assert 0 < done.predict_seconds < 5
    assert done.details["note"] == "one number"
    assert 0 < done.details["fit_processor_seconds"] < 5
    assert done.environment["packages"]["torch"] == torch.__version__
    assert done.date.endswith("+00:00")
    assert done.error == ""


def test_the_truth_scores_better_than_a_guess():
    truth, guess = jobs.execute(job("truth")), jobs.execute(job("exponential"))
    for definition in ("paper", "ours"):
        assert truth.scores[definition]["ibs"] < guess.scores[definition]["ibs"]
        assert truth.scores[definition]["c_index"] > 0.5


def test_synthetic_jobs_keep_the_curves_of_both_groups():
    curves = jobs.execute(job("truth")).details["curves"]
    assert sum(group["people"] for group in curves["groups"]) == 100
    assert len(curves["groups"]) == 2
    for group in curves["groups"]:
        assert group["mean"] == pytest.approx(group["truth"])
        assert "lower" not in group
    split = protocol.synthetic(25).split
    assert curves["times"][0] == 0
    assert curves["times"][-1] == split.train.time[split.train.event].max()
    first, second = (np.array(group["truth"]) for group in curves["groups"])
    assert np.abs(first - second).max() > 0.1


def test_an_error_becomes_a_failed_record_without_folders():
    done = jobs.execute(job("broken"))
    assert done.status == "failed"
    assert done.error.startswith("ValueError: cannot read …/weights.pt [fit_nothing, line ")
    assert done.error.endswith("of …/test_jobs.py]")
    assert done.scores == {}
    assert done.fit_seconds is None


def test_an_unknown_method_is_a_failure_too():
    assert jobs.execute(job("unheard of")).error.startswith("KeyError: 'unheard of'")


def test_warnings_are_kept_once_each():
    assert jobs.execute(job("complaining")).details["warnings"] == ["UserWarning: the steps did not settle"]


def test_the_seed_is_set_for_methods_that_draw_from_global_generators():
    once, again = (jobs.execute(job("random", seed=7)) for _ in range(2))
    assert once.status == "finished", once.error
    assert once.scores == again.scores


def test_a_method_without_curves_has_a_concordance_and_reasons():
    done = jobs.execute(job("ranks"))
    assert done.status == "finished", done.error
    assert 0 < done.scores["ours"]["c_index"] < 1
    assert np.isnan(done.scores["ours"]["ibs"])
    assert done.scores["ours"]["reasons"]["ibs"] == "the method has no survival curves"
    assert "d_calibration_histogram" not in done.scores["ours"]
    assert done.details["curves"] == {}


def test_only_as_published_is_scored_by_the_published_rules(monkeypatch):
    asked = []

    def spy(*arguments, published_rules):
        asked.append(published_rules)
        return {"reasons": {}}

    monkeypatch.setattr(jobs.scores, "paper_scores", spy)
    jobs.execute(job("exponential", variant="fair"))
    jobs.execute(job("exponential", variant="as-published"))
    assert asked == [False, True]


def test_infinite_scores_are_put_into_words():
    kept = jobs._kept({"log_likelihood": -np.inf, "ibs": 0.2, "histogram": [], "reasons": {}})
    assert kept == {"log_likelihood": -np.inf, "ibs": 0.2, "reasons": {"log_likelihood": "minus infinity"}}
    assert jobs._kept({"ibs": 0.2, "reasons": {}}) == {"ibs": 0.2}


def test_runtime_jobs_are_timed_and_not_scored():
    done = jobs.execute(job("exponential", experiment="runtime", cohort="COLON"))
    assert done.status == "finished", done.error
    assert done.scores == {}
    assert done.fit_seconds > 0


def test_the_rows_are_those_of_the_experiment():
    paper = jobs.split_of(job("x", "central", "COLON", rows=125))
    assert (len(paper.train), len(paper.validation), len(paper.test)) == (80, 20, 25)
    large = jobs.split_of(job("x", "ablation", "COLON", rows=250))
    assert (len(large.train), len(large.validation), len(large.test)) == (160, 40, 50)
    first, second = (jobs.split_of(job("x", "repeated", "GBSG", rows=125, seed=seed)) for seed in (0, 1))
    assert (len(first.train), len(first.validation), len(first.test)) == (100, 0, 25)
    assert not np.array_equal(first.train.time, second.train.time)
    assert len(jobs.split_of(job("x", rows=50)).train) == 50


def test_the_paper_preset_keeps_its_posterior_and_has_a_band():
    done = jobs.execute(job("small paper"))
    assert done.status == "finished", done.error
    phi = done.details["phi"]
    assert phi["lower"] < phi["median"] < phi["upper"]
    for group in done.details["curves"]["groups"]:
        lower, upper, mean = (np.array(group[name]) for name in ("lower", "upper", "mean"))
        assert (lower <= mean + 1e-9).all()
        assert (mean <= upper + 1e-9).all()
        assert (upper - lower)[-1] > 0.02


@pytest.mark.parametrize("cohort", published.columns("prior"))
def test_the_rate_of_phi_is_the_published_one(cohort):
    # It depends on the training times and the quadrature alone, so a fit that is stopped at once has it already.
    from neuralsurv import PaperNeuralSurv

    for prior in published.rows("prior"):
        shape, rate = map(float, prior.split("-"))
        split = jobs.split_of(job("x", "prior", cohort, rows=125))
        model = PaperNeuralSurv(
            hidden=(1,), phi_prior=(shape, rate), starts=1, max_sweeps=1, mode_tolerance=1e-1, verbose=False
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(split.train.x[:, :1], (split.train.time, split.train.event))
        assert round(model.posterior_.phi.rate, 3) == published.figure("prior", cohort, prior, "rate")


def test_the_paper_preset_takes_the_covariates_as_they_are_and_leaves_out_constant_ones():
    split = protocol.synthetic(25).split
    x = np.column_stack([split.train.x, np.full(len(split.train), 3.0)])
    wider = type(split)(type(split.train)(x, split.train.time, split.train.event), split.validation, split.test, ())
    fitted = paper_method((2,)).fit(wider, Settings(seed=1))
    assert fitted.kept.tolist() == [True] * 4 + [False]
    assert fitted.details()["columns_left_out"] == 1
    assert fitted.model.encoding_.transform(split.train.x) == pytest.approx(split.train.x)
    test_x = np.column_stack([split.test.x, np.full(len(split.test), 3.0)])
    times = np.array([0.0, 5.0, 20.0])
    survival = fitted.survival(test_x, times)
    draws = fitted.model.predict_survival(split.test.x, times).draws
    assert survival == pytest.approx(np.median(draws, axis=0))
    assert fitted.risk(test_x) is None


def test_layers_follow_the_experiment_or_the_name():
    split = protocol.synthetic(25).split
    free = jobs.method_of(job("NeuralSurv paper", "runtime", "COLON"))
    assert free.name == "NeuralSurv paper"
    network = free.fit(split, Settings(hidden=(3, 2))).model.posterior_.network
    assert network.size == paper_method((3, 2)).fit(split, Settings()).model.posterior_.network.size
    assert [method.name for method in PAPER_METHODS] == ["NeuralSurv paper (16,)", "NeuralSurv paper (16,16)"]


def test_the_prior_of_a_job_reaches_the_model():
    (first, *_) = jobs_of(EXPERIMENTS["prior"], {method.name: method for method in PAPER_METHODS})
    method = jobs.method_of(Job(first.key, first.rows, (2,), (2.0, 3.0)))
    prior = method.fit(protocol.synthetic(25).split, Settings()).model.phi_prior_
    assert (prior.shape, prior.rate) == (2.0, 3.0)


def test_one_thread_inside_and_as_before_outside():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with one_thread():
            assert torch.get_num_threads() == 1
            assert {pool["num_threads"] for pool in threadpool_info()} == {1}
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_the_environment_names_no_machine():
    import socket

    text = str(environment())
    assert socket.gethostname() not in text.replace("'", " ").split()
    assert os.path.expanduser("~") not in text
    assert environment()["machine"]["cores"] == os.cpu_count()


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("lost /a/b/c.py here", "lost …/c.py here"),
        ("'/opt/x/y'", "'…/y'"),
        (r"C:\Users\me\rows.csv", "…/rows.csv"),
        ("a ratio of 1/2 and km/h", "a ratio of 1/2 and km/h"),
        ("see https://example.org/a/b", "see https://example.org/a/b"),
    ],
)
def test_folders_are_cut_off(text, clean):
    assert without_paths(text) == clean
