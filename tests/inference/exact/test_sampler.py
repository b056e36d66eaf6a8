"""The exact sampler against brute force; its draws, its diagnostics, and what it refuses."""

import builtins
from dataclasses import replace

import numpy as np
import pytest
import torch
from arviz_stats.base import array_stats

from false_alarm import z_bound
from inference.gibbs_models import PRECISION, PRIOR, RHO, GridPosterior, network_model, two_weights, z_scores
from inference.problems import double, simulated
from neuralsurv.errors import InputError, NotFiniteError
from neuralsurv.inference.exact.sampler import sample
from neuralsurv.inference.exact.sweep import Sweeper
from neuralsurv.inference.exact.thinning import Thinning
from neuralsurv.model.prior import Gamma


class TestAgainstBruteForce:
    CASES = (
        ("plain", 1, False, 1.0, PRIOR),
        ("entry, weights and rho", 2, True, RHO, PRIOR),
        ("phi known", 2, True, 0.7, 1.8),
        ("small sigmoid", 1, False, 1.0, Gamma(40.0, 1.0)),
    )

    @pytest.mark.parametrize(("name", "size", "dressed", "rho", "prior"), CASES, ids=[case[0] for case in CASES])
    def test_moments(self, name, size, dressed, rho, prior):
        rows = simulated(12, covariates=1, entry=dressed, seed=4)
        # Whole, fractional and (at censored rows) small weights.
        weights = torch.where(rows.event, double([1, 2.5, 2, 1.2] * 3), double([0.3, 1, 2, 3] * 3))
        x = rows.x[:, 0] / 2
        rows = replace(rows, weight=weights) if dressed else rows
        model = two_weights(rows, x, phi_prior=prior, rho=rho, precision=PRECISION[:size])
        grid = GridPosterior(model, x.numpy())
        result = sample(model, chains=16, draws=200, warmup=50, slides=2, seed=5)
        theta, phi = result.theta.numpy(), result.phi.numpy()
        draws, exact = [], []
        for k in range(size):
            for power in (1, 2, 3):
                draws.append(theta[:, :, k] ** power)
                exact.append(grid.mean(grid.theta[:, k] ** power))
        if isinstance(prior, Gamma):
            draws += [phi, np.log(phi), phi * theta[:, :, 0]]
            products = grid.phi_mean * grid.theta[:, 0]
            exact += [grid.mean(grid.phi_mean), grid.mean(grid.log_phi_mean), grid.mean(products)]
        else:
            assert (phi == prior).all()
        scores = z_scores(draws, exact)
        assert max(map(abs, scores)) < z_bound(len(self.CASES) * len(scores)), scores


class TestResult:
    def model(self):
        return network_model(simulated(10, seed=0))

    def test_same_seed_same_draws(self):
        model, _, _ = self.model()
        first, again, other = (sample(model, chains=2, draws=20, warmup=10, seed=seed) for seed in (1, 1, 2))
        assert torch.equal(first.theta, again.theta)
        assert torch.equal(first.phi, again.phi)
        assert not torch.equal(first.theta, other.theta)
        assert not torch.equal(first.theta[0], first.theta[1])

    def test_shapes_and_thinning(self):
        model, network, _ = self.model()
        result = sample(model, chains=3, draws=7, warmup=2, thin=2, seed=1)
        every = sample(model, chains=3, draws=14, warmup=2, thin=1, seed=1)
        assert result.theta.shape == (3, 7, network.size)
        assert result.phi.shape == (3, 7)
        assert torch.equal(result.theta, every.theta[:, 1::2])
        theta, phi = result.flat()
        assert torch.equal(theta[7:14], result.theta[1])
        assert torch.equal(phi[7:14], result.phi[1])

    def test_diagnostics_are_the_worst_of_all_quantities(self):
        model, _, _ = self.model()
        result = sample(model, chains=4, draws=100, warmup=20, seed=3)
        diagnostics = result.diagnostics
        log_phi = result.phi.log().numpy()
        assert diagnostics.r_hat >= float(array_stats.rhat(log_phi))
        assert diagnostics.ess_bulk <= float(array_stats.ess(log_phi, method="bulk"))
        assert diagnostics.ess_tail <= float(array_stats.ess(log_phi, method="tail", prob=(0.05, 0.95)))
        name, number = diagnostics.worst.rsplit(" ", 1)
        if name == "theta":
            own = array_stats.rhat(result.theta[:, :, int(number)].numpy())
            assert diagnostics.r_hat == pytest.approx(float(own))
        assert diagnostics.latent_points > 0

    def test_short_chains_are_reported(self):
        model, _, _ = self.model()
        messages = sample(model, chains=2, draws=8, warmup=0, seed=3).diagnostics.messages
        assert any("the chains disagree: R-hat of" in message for message in messages)
        assert any("effective ones where 200 are wanted" in message for message in messages)

    def test_interrupt_keeps_what_there_is(self, monkeypatch):
        model, _, _ = self.model()
        count = 0
        original = Sweeper.sweep

        def stopping(self, state, rng):
            nonlocal count
            count += 1
            if count > 9:
                raise KeyboardInterrupt
            return original(self, state, rng)

        monkeypatch.setattr(Sweeper, "sweep", stopping)
        result = sample(model, chains=2, draws=50, warmup=3, seed=3)
        assert result.phi.shape == (2, 6)
        assert result.diagnostics.interrupted
        assert "stopped early; 6 draws a chain were kept" in result.diagnostics.messages[-1]
        count = 6
        with pytest.raises(KeyboardInterrupt):
            sample(model, chains=2, draws=50, warmup=3, seed=3)


class TestRefusals:
    ROWS = simulated(4, seed=0)

    @pytest.mark.parametrize(
        ("name", "value", "least"),
        [("chains", 1, 2), ("draws", 3, 4), ("warmup", -1, 0), ("thin", 0, 1), ("slides", -1, 0), ("chains", True, 2)],
    )
    def test_numbers(self, name, value, least):
        model, _, _ = network_model(self.ROWS)
        with pytest.raises(InputError, match=f"{name}={value!r} must be a whole number of at least {least}"):
            sample(model, **{name: value})

    def test_margin(self):
        model, _, _ = network_model(self.ROWS)
        with pytest.raises(InputError, match=r"ceiling_margin=0.5 must be a number of at least 1"):
            sample(model, ceiling_margin=0.5)

    def test_rows(self):
        with pytest.raises(InputError, match=r"1 of 4 rows have an entry that is not before their time"):
            network_model(replace(self.ROWS, entry=double([0, 0, 5, 0])))
        with pytest.raises(InputError, match=r"2 of 4 rows have a weight that is not positive"):
            network_model(replace(self.ROWS, weight=double([1, 0, -1, 1])))
        with pytest.raises(InputError, match=r"of \d events have a weight below 1, for which there is no exact"):
            network_model(replace(self.ROWS, weight=double([0.5, 0.5, 0.5, 0.5])))
        with pytest.raises(InputError, match=r"phi is about -1.0 by its prior, but it must be a positive number"):
            network_model(self.ROWS, phi_prior=-1.0)

    def test_ceiling_that_is_too_low(self):
        spike = two_weights(self.ROWS, self.ROWS.x[:, 0])
        seen = Thinning(spike).ceiling

        def normaliser(at, row):
            return torch.where(
                (at / self.ROWS.time[row] * 64 - (at / self.ROWS.time[row] * 64).round()).abs() < 1e-6, 0.5, 0.1
            )

        low = replace(spike, normaliser=normaliser, rho=1.0)
        assert (Thinning(low).ceiling < seen).any()
        with pytest.raises(
            InputError,
            match=r"1/Z exceeds its ceiling by a factor of 5 .* set ceiling_margin, now not given, to more than",
        ):
            sample(low, chains=2, draws=20, warmup=20)
        assert sample(replace(low), chains=2, draws=4, warmup=0, ceiling_margin=8.0).phi.shape == (2, 4)

    def test_too_many_points(self):
        model, _, _ = network_model(self.ROWS, phi_prior=1e9)
        with pytest.raises(NotFiniteError, match=r"a sweep would draw .* latent points \(phi is up to 1e\+09\)"):
            sample(model, chains=2, draws=4)

    @pytest.mark.parametrize(("package", "name"), [("polyagamma", "polyagamma"), ("arviz_stats.base", "arviz-stats")])
    def test_missing_package(self, monkeypatch, package, name):
        original = builtins.__import__

        def missing(module, *arguments, **options):
            if module == package:
                raise ImportError(module)
            return original(module, *arguments, **options)

        monkeypatch.setattr(builtins, "__import__", missing)
        model, _, _ = network_model(self.ROWS)
        with pytest.raises(InputError, match=rf"the Gibbs sampler needs {name}: pip install 'neuralsurv\[gibbs\]'"):
            sample(model)


def test_importing_the_sampler_needs_neither_package():
    import subprocess
    import sys

    code = (
        "import sys; sys.modules['arviz_stats'] = None; sys.modules['polyagamma'] = None; "
        "import neuralsurv.inference.exact.sampler, neuralsurv.posterior.samples"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
