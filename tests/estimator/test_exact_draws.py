"""Exact draws in place of the variational posterior, and what a check of the latter says."""

import builtins
import warnings

import numpy as np
import pytest
import torch

import neuralsurv
from neuralsurv import NeuralSurv, OwnNetwork
from neuralsurv.data.cohort import Cohort
from neuralsurv.errors import ApproximationWarning, CollapseWarning, ConvergenceWarning, InputError, StorageError
from neuralsurv.estimator import base
from neuralsurv.files.format import read, write
from neuralsurv.inference.exact.sweep import Sweeper
from neuralsurv.inference.paper.fit import fit_paper
from neuralsurv.inference.paper.settings import PaperSettings
from neuralsurv.model.prior import PointMass
from neuralsurv.posterior.samples import SampledPosterior
from small_cohort import quick_default, quick_model, small_cohort

COHORT = small_cohort(20)
SHORT = {"chains": 2, "warmup": 6, "thin": 1}
TIMES = [0.2, 0.5, 1.0]


def sampled(make, **options):
    """Fit and sample; chains as short as these are always warned of, and that is tested by itself."""
    with warnings.catch_warnings():
        for kind in (ApproximationWarning, CollapseWarning, ConvergenceWarning):
            warnings.simplefilter("ignore", kind)
        return make(**{"draws": 20} | options).fit_exact(COHORT.x, COHORT.y, **SHORT)


@pytest.fixture(scope="module")
def models():
    return {"paper": sampled(quick_model), "default": sampled(quick_default)}


@pytest.mark.parametrize("preset", ["paper", "default"])
class TestBothEstimators:
    def test_predictions_come_from_the_drawn_weights(self, models, preset):
        model = models[preset]
        posterior = model.posterior_
        assert isinstance(posterior, SampledPosterior)
        assert posterior.phi_draws.shape == (20,)
        assert isinstance(posterior.phi, PointMass) == (preset == "default")
        draws = posterior.draw(20, model.fitted_.draw_seed)
        x = torch.from_numpy(model.encoding_.transform(COHORT.x))
        scaled = torch.tensor(TIMES, dtype=torch.float64) / model.time_scale_
        expected = torch.exp(-posterior.cumulative_hazard_draws(draws, scaled, x))
        np.testing.assert_allclose(model.predict_survival(COHORT.x, TIMES).draws, expected, rtol=1e-12)

    def test_chains_are_reported_and_warned_of(self, models, preset):
        model = models[preset]
        found = model.diagnostics_.sampling
        assert (found["chains"], found["draws"]) == (2, 10)
        assert found["r_hat"] > 1.01
        assert not model.diagnostics_.converged
        warned = (quick_model if preset == "paper" else quick_default)(draws=20)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            warned.fit_exact(COHORT.x, COHORT.y, **SHORT)
        said = [str(one.message) for one in caught if one.category is ConvergenceWarning]
        assert any("the chains disagree: R-hat of" in message for message in said)
        assert any("effective ones where 200 are wanted" in message for message in said)
        text = str(model.summary())
        assert "exact draws" in text
        assert "20 (2 chains)" in text
        assert f"{found['r_hat']:.3f}" in text

    def test_round_trip_through_a_file(self, models, preset, tmp_path):
        model = models[preset]
        path = tmp_path / "model.neuralsurv"
        model.save(path)
        again = neuralsurv.load(path)
        assert isinstance(again.posterior_, SampledPosterior)
        assert again.diagnostics_ == model.diagnostics_
        assert again.get_params() == model.get_params()
        assert (again.predict(COHORT.x) == model.predict(COHORT.x)).all()

    def test_same_seed_same_draws(self, models, preset):
        again = sampled(quick_model if preset == "paper" else quick_default)
        assert torch.equal(again.posterior_.phi_draws, models[preset].posterior_.phi_draws)
        assert torch.equal(again.posterior_.theta.draws, models[preset].posterior_.theta.draws)


def test_a_network_of_your_own(monkeypatch):
    from modules import Perceptron
    from neuralsurv.inference.exact import directions

    monkeypatch.setattr(directions, "_MOST_WEIGHTS", 5)
    model = sampled(lambda **given: NeuralSurv(network=OwnNetwork(Perceptron(2, (3,)), epochs=2), **given))
    assert model.posterior_.theta.draws.shape == (20, model.posterior_.network.size)
    curves = model.predict_survival(COHORT.x, TIMES).draws
    assert np.isfinite(curves).all()
    assert (np.diff(curves, axis=2) <= 0).all()


def test_a_damaged_file(models, tmp_path):
    path = tmp_path / "model.neuralsurv"
    models["paper"].save(path)
    header, tensors = read(path)
    write(path, header, tensors | {"phi_draws": -tensors["phi_draws"]})
    with pytest.raises(StorageError, match=r"'phi_draws' are none, or not positive"):
        neuralsurv.load(path)
    write(path, header, tensors | {"phi_draws": tensors["phi_draws"][:-1]})
    with pytest.raises(StorageError, match=r"'phi_draws' is missing or has the wrong shape"):
        neuralsurv.load(path)


def test_what_the_sweeps_did_does_not_matter_to_exact_draws():
    # The sweeps are cut short, and the chains do not care.
    model = sampled(quick_model, max_sweeps=1)
    assert not any("sweeps" in message for message in model.diagnostics_.messages)
    assert model.diagnostics_.latent_points > 0


def test_an_interrupt_leaves_a_model(monkeypatch):
    count = 0
    original = Sweeper.sweep

    def stopping(self, state, rng):
        nonlocal count
        count += 1
        if count > 11:
            raise KeyboardInterrupt
        return original(self, state, rng)

    monkeypatch.setattr(Sweeper, "sweep", stopping)
    model = sampled(quick_model)
    assert model.diagnostics_.interrupted
    assert model.diagnostics_.sampling["draws"] == 5
    assert len(model.predict(COHORT.x)) == 20


class TestRefusals:
    def test_one_chain(self):
        with pytest.raises(InputError, match=r"chains=1 must be a whole number of at least 2"):
            quick_model().fit_exact(COHORT.x, COHORT.y, chains=1)

    def test_light_events(self):
        with pytest.raises(InputError, match=r"events have a weight below 1, for which there is no exact"):
            quick_model().fit_exact(COHORT.x, COHORT.y, sample_weight=np.full(20, 0.5), **SHORT)

    def test_without_the_extra_nothing_is_fitted(self, monkeypatch):
        original = builtins.__import__

        def missing(module, *arguments, **options):
            if module == "polyagamma":
                raise ImportError(module)
            return original(module, *arguments, **options)

        monkeypatch.setattr(builtins, "__import__", missing)
        monkeypatch.setattr("neuralsurv.estimator.paper.fit_paper", None)
        with pytest.raises(InputError, match=r"the Gibbs sampler needs polyagamma: pip install 'neuralsurv\[gibbs\]'"):
            quick_model().fit_exact(COHORT.x, COHORT.y)


class TestCheck:
    @pytest.mark.parametrize(("k_hat", "words"), [(0.9, "do not trust its bands, which are likely too nar"), (0.6, "")])
    def test_what_is_said_of_k_hat(self, monkeypatch, k_hat, words):
        monkeypatch.setattr(base, "check_posterior", lambda *_: {"k_hat": k_hat, "effective": 0.1})
        model = quick_model().fit(COHORT.x, COHORT.y)
        found = model.diagnostics_
        assert words in found.trust
        assert (found.trust == "") == (words == "")
        assert found.trust not in found.messages
        assert (words in str(model.summary())) or not words
        assert found.importance["k_hat"] == k_hat
        assert f"{k_hat:.2f}" in str(model.summary())

    def test_a_hopeless_default_is_warned_of(self, monkeypatch):
        monkeypatch.setattr(base, "check_posterior", lambda *_: {"k_hat": 1.3, "effective": 0.01})
        with pytest.warns(ApproximationWarning, match=r"\(k-hat 1.30, above 0.7\): .* Use fit_exact"):
            quick_default().fit(COHORT.x, COHORT.y)

    def test_the_default_is_close_to_exact(self):
        model = quick_default().fit(COHORT.x, COHORT.y)
        assert model.diagnostics_.importance["k_hat"] < 0.7
        assert model.diagnostics_.importance["effective"] > 0.5
        assert model.diagnostics_.trust == ""


def test_diagnose_without_a_check_says_nothing_of_it():
    time = np.linspace(0.1, 1, 8)
    cohort = Cohort.of(time, time < 0.9, 0 * time, np.ones(8), time[:, None])
    assert fit_paper(cohort, PaperSettings(hidden=()), seed=0).diagnose().importance == {}
