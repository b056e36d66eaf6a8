"""What a fit does differently where there are many rows or many weights."""

import dataclasses

import pytest
import torch

from inference.problems import simulated
from neuralsurv.inference import fit as inference
from neuralsurv.inference.mean_step import some_points
from neuralsurv.presets import resolve
from neuralsurv.solvers.dual import DualGaussian
from neuralsurv.solvers.subspace import SubspaceGaussian

CHOICES = resolve("paper", hidden=(3,), activation="tanh", quadrature="gauss-legendre", starts=1)


class TestSomePoints:
    def test_few_points_are_all_taken(self):
        curvature = torch.rand(20, dtype=torch.float64)
        assert some_points(curvature, 10) is curvature

    def test_some_stand_for_all(self):
        curvature = torch.rand(100_000, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        some = some_points(curvature, 10_000)
        chosen = some != 0
        assert int(chosen.sum()) == 10_000
        torch.testing.assert_close(some[chosen], 10 * curvature[chosen])
        assert float(some.sum()) == pytest.approx(float(curvature.sum()), rel=0.03)
        # Nodes of a row follow each other: none of the eight may be preferred.
        shares = chosen.reshape(-1, 8).double().mean(0)
        assert bool(((shares - 0.1).abs() < 0.02).all())

    def test_the_end_is_that_of_all_points(self, monkeypatch):
        rows = simulated(200, seed=2)
        choices = dataclasses.replace(CHOICES, quadrature_points=8, tolerance=1e-8)
        whole = inference.fit(*rows.arguments, choices, seed=0)
        monkeypatch.setattr("neuralsurv.inference.mean_step._POINTS_A_WEIGHT", 10)
        some = inference.fit(*rows.arguments, choices, seed=0)
        assert some.info.elbo != whole.info.elbo
        assert some.info.elbo[-1] == pytest.approx(whole.info.elbo[-1], abs=1e-7)
        assert some.phi.shape == pytest.approx(whole.phi.shape, rel=1e-6)
        assert torch.allclose(some.theta.mean, whole.theta.mean, atol=1e-5)


class TestSweepsOnFewNodes:
    choices = dataclasses.replace(CHOICES, quadrature_points=40)

    def test_with_all_rows(self):
        assert inference.fit(*simulated(60, seed=2).arguments, self.choices, seed=0).coarse_sweeps > 0

    def test_not_with_some_of_the_rows(self, monkeypatch):
        monkeypatch.setattr(inference, "_COARSE_ROWS", 30)
        assert inference.fit(*simulated(60, seed=2).arguments, self.choices, seed=0).coarse_sweeps == 0


@pytest.mark.parametrize(("memory", "kind"), [(2**30, SubspaceGaussian), (2**10, DualGaussian)])
def test_the_training_rows_are_dropped_where_a_basis_has_room(monkeypatch, memory, kind):
    rows = simulated(12, seed=3)
    monkeypatch.setattr(inference, "_MEMORY", memory)
    choices = dataclasses.replace(CHOICES, quadrature_points=4, solver="dual")
    found = inference.fit(*rows.arguments, choices, seed=0)
    assert isinstance(found.theta, kind)
    assert torch.isfinite(found.theta.draw(3, torch.Generator().manual_seed(0))).all()
