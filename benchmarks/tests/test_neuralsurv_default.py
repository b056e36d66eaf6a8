"""The default model as a method: ablations, and mixtures of fits at other draws of the network."""

import numpy as np
import pytest
from scipy.optimize import minimize

from neuralsurv import NeuralSurv
from neuralsurv_bench.methods import neuralsurv_default
from neuralsurv_bench.methods.interface import Settings
from neuralsurv_bench.methods.neuralsurv_default import FittedMixture, default_method, leave_one_out, stack
from small_split import SPLIT

TIMES = np.array([0.0, 5.0, 20.0])


def test_without_a_change_the_ablated_estimator_is_the_default_to_the_last_bit():
    ours = default_method().fit(SPLIT, Settings(seed=4))
    usual = NeuralSurv(random_state=4, verbose=False)
    usual.fit(SPLIT.train.x[:, ours.kept], (SPLIT.train.time, SPLIT.train.event))
    assert ours.model.elbo_.tolist() == usual.elbo_.tolist()
    people = SPLIT.test.x[:, ours.kept]
    mine, theirs = (model.predict_survival(people, TIMES).draws for model in (ours.model, usual))
    assert np.array_equal(mine, theirs)


def test_an_ablation_reaches_the_fit():
    plain = default_method("time by its logarithm alone").fit(SPLIT, Settings(seed=4)).model
    assert "bumps" in default_method().fit(SPLIT, Settings(seed=4)).model.diagnostics_.scales
    assert "bumps" not in plain.diagnostics_.scales


def mixture(how: str) -> FittedMixture:
    (change,) = (name for name, weighed in neuralsurv_default.MIXTURES.items() if weighed == how)
    found = default_method(change).fit(SPLIT, Settings(seed=4))
    assert isinstance(found, FittedMixture)
    return found


def test_an_even_mixture_is_the_average_of_fits_at_other_draws():
    even = mixture("even")
    assert even.shares.tolist() == [1 / 3] * 3
    curves = [part.survival(SPLIT.test.x, TIMES) for part in even.parts]
    assert np.abs(curves[0] - curves[1]).max() > 1e-4
    assert even.survival(SPLIT.test.x, TIMES) == pytest.approx(np.mean(curves, axis=0))
    # The first of them is the preset itself.
    alone = default_method().fit(SPLIT, Settings(seed=4)).survival(SPLIT.test.x, TIMES)
    assert curves[0] == pytest.approx(alone, abs=1e-12)
    assert even.risk(SPLIT.test.x) is None


def test_a_stacked_mixture_has_the_shares_of_the_leave_one_out_scores():
    stacked = mixture("stacked")
    rows = SPLIT.train.x[:, 1:], (SPLIT.train.time, SPLIT.train.event)
    scores = np.column_stack([leave_one_out(part.model, *rows) for part in stacked.parts])
    assert scores.shape == (40, 3)
    assert stacked.shares == pytest.approx(stack(scores), abs=1e-9)
    assert stacked.details()["shares"] == stacked.shares.tolist()


def test_stacking_is_the_top_of_the_score_on_the_simplex():
    scores = np.random.default_rng(0).normal(size=(60, 3))

    def loss(free):
        shares = np.exp([*free, 0.0]) / np.exp([*free, 0.0]).sum()
        return -np.log(np.exp(scores) @ shares).sum()

    best = minimize(loss, np.zeros(2), options={"gtol": 1e-8}).x
    assert stack(scores) == pytest.approx(np.exp([*best, 0.0]) / np.exp([*best, 0.0]).sum(), abs=1e-3)
