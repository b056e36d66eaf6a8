"""A posterior around several modes: draws, curves and moments are those of its parts; files; streamed fits."""

import copy

import numpy as np
import pytest
import torch

import neuralsurv
from neuralsurv.errors import InputError, StorageError
from neuralsurv.files.checkpoint import Checkpoint
from neuralsurv.files.format import read, write
from neuralsurv.files.stored_posterior import posterior_parts
from neuralsurv.posterior.gaussian import Draws
from neuralsurv.posterior.mixture import MixedPosterior
from posteriors import small_posterior
from small_cohort import quick_default, small_cohort

NAMES = {"time": "years", "event": "died"}
TIMES = torch.tensor([0.2, 0.5, 1.0], dtype=torch.float64)
X = torch.tensor([[0.3, -0.5], [1.0, 0.2]], dtype=torch.float64)


@pytest.fixture(scope="module")
def mixed():
    return MixedPosterior.of(tuple(small_posterior(normaliser="closed-form", seed=seed) for seed in (0, 1, 2)))


def test_every_part_has_its_share_of_the_draws(mixed):
    draws = mixed.draw(20, seed=1)
    assert sorted(torch.bincount(draws.part).tolist()) == [6, 7, 7]
    assert torch.equal(draws.theta, mixed.draw(20, seed=1).theta)
    assert not torch.equal(draws.theta, mixed.draw(20, seed=2).theta)
    assert len({int(mixed.draw(1, seed).part[0]) for seed in range(20)}) == 3, "no part is always the first"


def test_draws_of_a_part_predict_with_its_network_and_normaliser(mixed):
    draws = mixed.draw(7, seed=0)
    time, event = torch.tensor([0.4, 0.9], dtype=torch.float64), torch.tensor([True, False])
    whole = {
        "g": mixed.g_draws(draws, time, X),
        "hazard": mixed.hazard_draws(draws, time, X),
        "cumulative": mixed.cumulative_hazard_draws(draws, TIMES, X),
        "likelihood": mixed.log_likelihood_draws(draws, 0 * time, time, event, X),
    }
    for k in range(7):
        part = mixed.parts[int(draws.part[k])]
        one = Draws(draws.theta[k : k + 1], draws.phi[k : k + 1])
        torch.testing.assert_close(whole["g"][k], part.g_draws(one, time, X)[0])
        torch.testing.assert_close(whole["hazard"][k], part.hazard_draws(one, time, X)[0])
        torch.testing.assert_close(whole["cumulative"][k], part.cumulative_hazard_draws(one, TIMES, X)[0])
        torch.testing.assert_close(whole["likelihood"][k], part.log_likelihood_draws(one, 0 * time, time, event, X)[0])


def test_parts_must_be_of_one_model():
    with pytest.raises(InputError, match="a mixture needs posteriors of one model"):
        MixedPosterior.of((small_posterior(), small_posterior(hidden=(5,))))
    with pytest.raises(InputError, match="at least one of them"):
        MixedPosterior.of(())


# ------------------------------------------------------------------------------------------------ streamed fits


@pytest.fixture(scope="module")
def table():
    return small_cohort(400).frame()


def fit(table, modes, **given):
    return quick_default(hidden=(4,), draws=30).fit_stream([table], **NAMES, training_passes=2, modes=modes, **given)


@pytest.fixture(scope="module")
def three(table):
    return fit(table, 3)


def test_the_first_mode_is_the_fit_with_one(table, three):
    one = fit(table, 1)
    first, *others = three.posterior_.parts
    assert torch.equal(first.theta.mean, one.posterior_.theta.mean)
    assert not any(torch.equal(first.theta_star, part.theta_star) for part in others)
    assert not torch.equal(first.network.origin, others[0].network.origin), "each has a random draw of its own"
    assert three.diagnostics_.modes == 3
    assert one.diagnostics_.modes == 1
    assert "modes averaged over" in str(three.summary())
    assert "modes averaged over" not in str(one.summary())
    assert three.score(small_cohort(400).x, small_cohort(400).y) > 0.6


def test_the_mean_curve_is_that_of_the_parts(table, three):
    people = small_cohort(400).x.head(5)
    prediction = three.predict_survival(people, [0.2, 0.8])
    part = three.posterior_.draw(30, three.fitted_.draw_seed).part
    assert torch.bincount(part).tolist() == [10, 10, 10]
    encoded = torch.from_numpy(three.encoding_.transform(people))
    times = torch.tensor([0.2, 0.8], dtype=torch.float64) / three.time_scale_
    draws = three.posterior_.draw(30, three.fitted_.draw_seed)
    curves = [
        posterior.cumulative_hazard_draws(draws.take(draws.around(k)), times, encoded).neg().exp()
        for k, posterior in enumerate(three.posterior_.parts)
    ]
    np.testing.assert_allclose(prediction.mean.to_numpy(), torch.cat(curves).mean(0), rtol=1e-12)


def test_a_mixture_comes_back_from_its_file(three, tmp_path):
    three.save(tmp_path / "m")
    again = neuralsurv.load(tmp_path / "m")
    people = small_cohort(400).x
    assert isinstance(again.posterior_, MixedPosterior)
    assert np.array_equal(again.predict_survival(people, [0.5]).draws, three.predict_survival(people, [0.5]).draws)
    assert again.diagnostics_ == three.diagnostics_
    before = (tmp_path / "m").read_bytes()
    again.save(tmp_path / "m")
    assert (tmp_path / "m").read_bytes() == before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda header, tensors: header.update(modes=[]), "a mixture of 1 modes"),
        (lambda header, tensors: header.update(modes={}), "'modes' is not a list"),
        (lambda header, tensors: header.update(modes=[1, 2]), "mode 2 is not a table"),
        (lambda header, tensors: header["modes"][1].pop("rho"), "mode 3 'rho' is not a number"),
        (lambda header, tensors: tensors.pop("mode2_theta_star"), "'theta_star' is missing"),
        (lambda header, tensors: tensors.pop("mode3_origin"), "'origin' is missing"),
    ],
)
def test_damaged_mixtures_are_refused(three, tmp_path, change, message):
    three.save(tmp_path / "m")
    header, tensors = read(tmp_path / "m")
    header = copy.deepcopy(header)
    change(header, tensors)
    write(tmp_path / "m", header, tensors)
    with pytest.raises(StorageError, match=message):
        neuralsurv.load(tmp_path / "m")


def test_a_mixture_of_different_networks_in_a_file_is_refused(three, table, tmp_path):
    wider = quick_default(hidden=(5,)).fit_stream([table], **NAMES, training_passes=0)
    three.save(tmp_path / "m")
    header, tensors = read(tmp_path / "m")
    about, arrays = posterior_parts(wider.posterior_)
    header["modes"] = [about]
    write(tmp_path / "m", header, {**tensors, **{f"mode2_{name}": array for name, array in arrays.items()}})
    with pytest.raises(StorageError, match="a mixture needs posteriors of one model"):
        neuralsurv.load(tmp_path / "m")


def test_a_fit_that_is_killed_at_its_second_mode_ends_with_the_same_bits(table, three, tmp_path, monkeypatch):
    state = tmp_path / "state"
    plain = Checkpoint.save

    def dies(self, snapshot, *, now=False):
        plain(self, snapshot, now=now)
        if self._path.name == "state.2":
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "save", dies)
        with pytest.raises(KeyboardInterrupt):
            fit(table, 3, checkpoint=state, checkpoint_seconds=0)
    assert {path.name for path in tmp_path.iterdir()} == {"state", "state.2"}
    again = fit(table, 3, checkpoint=state, checkpoint_seconds=0)
    for one, other in zip(again.posterior_.parts, three.posterior_.parts, strict=True):
        assert torch.equal(one.theta.mean, other.theta.mean)
    assert {path.name for path in tmp_path.iterdir()} == {"state", "state.2", "state.3"}


def test_what_cannot_be_asked_for(table):
    with pytest.raises(InputError, match="modes=0 must be a whole number of at least 1"):
        fit(table, 0)


def test_what_is_wrong_with_a_mode_names_it(table):
    with pytest.warns(neuralsurv.errors.NeuralSurvWarning) as caught:
        quick_default(hidden=(4,), max_sweeps=1).fit_stream(
            [table], **NAMES, training_passes=0, method="exact", modes=2
        )
    assert {str(item.message)[:8] for item in caught} == {"mode 1: ", "mode 2: "}
    assert {item.category.__name__ for item in caught} == {"ConvergenceWarning", "CeilingWarning"}
