"""The command behind the gold posteriors: a short run of it, its resuming, its tables, and its twin of the network."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from arviz_stats.base import array_stats
from scipy.integrate import quad

from false_alarm import z_bound

FOLDER = Path(__file__).parents[3] / "benchmarks" / "proof"


@pytest.fixture(scope="module")
def gold():
    """The command as a module; its siblings are found beside it while it is imported."""
    sys.path.append(str(FOLDER))
    import gold

    yield gold
    sys.path[:] = [entry for entry in sys.path if entry != str(FOLDER)]


def test_a_short_run_is_stored_and_not_repeated(gold, tmp_path, capsys):
    command = ["run", "--preset", "paper", "--problem", "truncation", "--stage", "linear"]
    command += ["--draws", "80", "--store", str(tmp_path)]
    gold.main(command)
    assert "R-hat" in capsys.readouterr().out
    (file,) = tmp_path.iterdir()
    assert file.name == "truncation-paper-linear.npz"
    first = file.read_bytes()
    with np.load(file) as stored:
        assert stored["exact_draws"].shape == stored["variational_draws"].shape == (80, 4, 3)
        assert stored["exact_mean"].shape == (4, 25)
        # Curves fall, from draw to draw and in the mean.
        assert (np.diff(stored["exact_draws"].astype(int), axis=2) <= 0).all()
        assert (np.diff(stored["variational_mean"], axis=1) <= 0).all()
    gold.main(command)
    assert "stored already" in capsys.readouterr().out
    assert file.read_bytes() == first


def test_a_trial_cannot_pass_for_gold(gold, capsys):
    with pytest.raises(SystemExit):
        gold.main(["run", "--draws", "400"])
    assert "fewer than 10000 draws are a trial; give it a --store of its own" in capsys.readouterr().err


@pytest.mark.parametrize(
    "name", ["strong-signal", "no-signal", "heavy-censoring", "crossing-hazards", "rho", "truncation"]
)
def test_problems_are_what_they_say(gold, name):
    problem = gold.PROBLEMS[name]()
    assert len(problem.time) == 60
    assert (problem.entry < problem.time).all()
    assert (problem.entry > 0).any() == (name == "truncation")
    assert (problem.event.mean() < 0.35) == (name == "heavy-censoring")
    assert (problem.options.get("rho", 1) != 1) == (name == "rho")


def synthetic(gold, folder, *, narrow, shift):
    """Store normal posteriors of S with a known shift and known standard deviations."""
    from gold_stages import compared, store

    rng = np.random.default_rng(0)
    noise = rng.standard_normal((4000, 4, 3))
    curve = np.repeat(noise[:, :, :1], 25, axis=2)
    facts = {
        "draws": 4000,
        "r_hat": 1.001,
        "ess_bulk": 900.0,
        "collapsed": False,
        "rows": 60,
        "events": 40,
        "weights": 41,
    }
    parts = {
        "variational": (0.5 + shift, 0.05 * narrow),
        "exact": (0.5 + shift, 0.05),
        "network": (0.5, 0.05),
    }
    made = {name: compared(name, mean + sd * noise, mean + sd * curve) for name, (mean, sd) in parts.items()}
    linear = {**made["variational"], **made["exact"], "theta_star": np.zeros(3)}
    store(folder / "rho-paper-linear.npz", linear, facts)
    store(folder / "rho-paper-network.npz", made["network"], {**facts, "r_hat": 1.02})


class TestTables:
    def test_gaps_are_those_that_were_put_in(self, gold, tmp_path):
        from gold_tables import gap, held, load

        synthetic(gold, tmp_path, narrow=0.5, shift=0.03)
        stored = load(tmp_path, "rho", "paper")
        field, line, both = (
            gap(stored, *pair) for pair in (("variational", "exact"), ("exact", "network"), ("variational", "network"))
        )
        assert field.sd_ratio == pytest.approx(0.5, rel=1e-3)
        assert field.mean_error == pytest.approx(0, abs=1e-3)
        # E|X| of a normal with the difference of the two standard deviations.
        assert field.distance == pytest.approx(0.025 * np.sqrt(2 / np.pi), rel=0.03)
        assert (line.mean_error, line.worst_error) == pytest.approx((0.03, 0.03), abs=1e-5)
        assert line.distance == pytest.approx(0.03, abs=1e-4)
        assert line.sd_ratio == pytest.approx(1, abs=1e-3)
        assert both.lowest_ratio == pytest.approx(0.5, rel=1e-2)
        assert both.highest_ratio == pytest.approx(0.5, rel=1e-2)
        # A 90 % band of half the width and without a shift would hold 59 % of the reference.
        assert held(stored, "variational", "exact") == pytest.approx(0.589, abs=0.01)

    def test_page_says_what_is_too_narrow_and_what_is_missing(self, gold, tmp_path):
        synthetic(gold, tmp_path, narrow=0.5, shift=0.0)
        page = tmp_path / "deep" / "gold.md"
        gold.main(["table", "--store", str(tmp_path), "--page", str(page)])
        text = page.read_text(encoding="utf-8")
        assert "**rho = 2**: bands are too narrow (standard deviations 0.50 times" in text
        assert "The larger part of the distance comes from the mean-field bound." in text
        assert "R-hat is not below 1.01 for rho = 2" in text
        assert (
            "Not sampled at all yet: strong signal, no signal, heavy censoring, crossing hazards, truncation." in text
        )

    def test_page_before_the_network_is_sampled(self, gold, tmp_path):
        synthetic(gold, tmp_path, narrow=0.5, shift=0.0)
        (tmp_path / "rho-paper-network.npz").unlink()
        from gold_tables import page

        text = page(tmp_path, ["paper"])
        assert "0.50 times those of the exact posterior of the same linearised model); the 90 % band holds 59 %" in text
        assert "linearisation |" not in text
        assert "Not sampled by NUTS yet: rho = 2." in text

    def test_page_says_what_is_right(self, gold, tmp_path):
        synthetic(gold, tmp_path, narrow=1.0, shift=0.01)
        from gold_tables import page

        text = page(tmp_path, ["paper"])
        assert "**rho = 2**: bands are right" in text
        assert "comes from the linearisation." in text


class TestCheck:
    """K-hat of the variational posterior, stored by a stage of its own."""

    def test_k_hat_is_shown(self, gold, tmp_path):
        from gold_stages import store
        from gold_tables import page

        synthetic(gold, tmp_path, narrow=0.5, shift=0.0)
        assert "| 0.91 |" not in page(tmp_path, ["paper"])
        store(tmp_path / "rho-paper-check.npz", {}, {"draws": 4000, "k_hat": 0.91})
        assert "| 0.91 |" in page(tmp_path, ["paper"])

    def test_a_short_check(self, gold, tmp_path, capsys):
        command = ["run", "--problem", "no-signal", "--stage", "check", "--draws", "50", "--store", str(tmp_path)]
        gold.main(command)
        said = capsys.readouterr().out
        assert re.search(r"no-signal-paper-check\.npz: k-hat \d\.\d\d\n", said)
        assert re.search(r"no-signal-default-check\.npz: k-hat \d\.\d\d\n", said)


class TestTwinOfTheNetwork:
    """The network in JAX, where NumPyro is installed (an extra of the benchmark)."""

    @pytest.fixture(autouse=True)
    def _needs_numpyro(self):
        pytest.importorskip("numpyro")

    def data(self, hidden, activation="relu", rho=1.5):
        from gold_network import NetworkData

        from neuralsurv.model.network import MLP
        from neuralsurv.model.prior import Gamma

        rng = np.random.default_rng(2)
        time = rng.uniform(0.2, 1, 15)
        event = rng.random(15) < 0.7
        network = MLP(2, hidden, activation)
        x, precision = rng.standard_normal((15, 2)), np.ones(network.size)
        return NetworkData(time, event, 0.3 * time, x, network, precision, Gamma(2.0, 1.0), 0.5, rho)

    def default_data(self, inner=(3,)):
        """The default preset's network and prior, with phi held."""
        from gold_network import NetworkData

        from neuralsurv.inference.default.settings import DefaultSettings
        from neuralsurv.inference.default.structure import build_network, build_prior

        data = self.data(())
        choices = DefaultSettings(hidden=inner)
        time = torch.from_numpy(data.time[data.event])
        network = build_network(time, torch.ones_like(time), 2, choices, 0)
        prior = build_prior(network, choices)
        precision = prior.at(prior.medians).precision.numpy()
        return NetworkData(data.time, data.event, data.entry, data.x, network, precision, 1.4, 1 / 30, 1.0)

    @pytest.mark.parametrize("activation", ["relu", "tanh", "silu"])
    def test_survival_is_that_of_our_network(self, gold, activation):
        import numpyro
        from gold_network import network_survival

        numpyro.enable_x64()
        data = self.data((4, 3), activation)
        rng = np.random.default_rng(1)
        theta, phi = rng.standard_normal((2, data.network.size)), np.array([0.7, 2.0])
        x, times = np.array([[0.3, -1.0]]), np.array([0.4, 0.9])
        found = network_survival(data, theta, phi, x, times)

        def hazard(t, s):
            g = data.network.value(torch.from_numpy(theta[s]), torch.tensor([t]).double(), torch.from_numpy(x))
            return float(phi[s] * t ** (data.rho - 1) * 2 * torch.sigmoid(g))

        for s in range(2):
            for k, t in enumerate(times):
                exact = np.exp(-quad(hazard, 0, t, args=(s,), limit=200)[0])
                assert found[s, 0, k] == pytest.approx(exact, abs=2e-3 if activation == "relu" else 1e-6)

    def test_survival_is_that_of_the_default_s_network(self, gold):
        import numpyro
        from gold_network import network_survival

        numpyro.enable_x64()
        data = self.default_data()
        theta = np.random.default_rng(1).standard_normal((1, data.network.size)) / np.sqrt(data.precision)
        x, times = np.array([[0.3, -1.0]]), np.array([0.2, 0.9])
        found = network_survival(data, theta, np.array([1.4]), x, times)

        def hazard(t):
            g = data.network.value(torch.from_numpy(theta[0]), torch.tensor([t]).double(), torch.from_numpy(x))
            return float(1.4 * 30 * torch.sigmoid(g))

        for k, t in enumerate(times):
            assert found[0, 0, k] == pytest.approx(np.exp(-quad(hazard, 0, t, limit=200)[0]), abs=1e-5)

    def test_a_default_without_products_is_refused(self, gold):
        from dataclasses import replace

        from gold_network import network_function

        with pytest.raises(SystemExit, match="a linear path, changing effects and products"):
            network_function(replace(self.default_data().network, pairs=False))

    @pytest.mark.slow
    def test_nuts_and_gibbs_agree_where_nothing_is_linearised(self, gold):
        # Without a hidden layer the network is its own linearisation, and the two samplers have one target.
        from gold_network import sample_network

        from neuralsurv.data.cohort import Cohort
        from neuralsurv.inference.exact.sampler import LinearModel, sample
        from neuralsurv.model.hazard import Constant
        from neuralsurv.model.prior import WeightPrior

        data = self.data(())
        nuts = sample_network(data, chains=2, draws=1000, warmup=300, thin=1, seed=0)
        model = LinearModel.from_network(
            Cohort.of(data.time, data.event, data.entry, np.ones(len(data.time)), data.x),
            network=data.network,
            theta_star=torch.zeros(data.network.size, dtype=torch.float64),
            weight_prior=WeightPrior.isotropic(data.network.size),
            phi_prior=data.phi_prior,
            normaliser=Constant(0.5),
            rho=data.rho,
        )
        gibbs = sample(model, chains=16, draws=300, warmup=50, seed=0)
        pairs = [(nuts["theta"][:, :, k], gibbs.theta[:, :, k].numpy()) for k in range(data.network.size)]
        pairs.append((np.log(nuts["phi"]), gibbs.phi.log().numpy()))
        pairs += [(a**2, b**2) for a, b in pairs]
        for a, b in pairs:
            errors = [v.var() / float(array_stats.ess(v, method="mean")) for v in (a, b)]
            assert abs(a.mean() - b.mean()) < z_bound(len(pairs)) * np.sqrt(sum(errors))
