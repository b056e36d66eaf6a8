"""What a fit does differently where there are many rows or many weights."""

import dataclasses

import pytest
import torch

from inference.problems import simulated
from neuralsurv.inference.paper import fit as inference
from neuralsurv.inference.paper import problem
from neuralsurv.inference.paper.settings import PaperSettings
from neuralsurv.solvers.dual import DualGaussian
from neuralsurv.solvers.subspace import SubspaceGaussian

CHOICES = PaperSettings(hidden=(3,), activation="tanh", quadrature="gauss-legendre", starts=1)


class TestSweepsOnFewNodes:
    choices = dataclasses.replace(CHOICES, quadrature_points=40)

    def test_with_all_rows(self):
        assert inference.fit_paper(simulated(60, seed=2), self.choices, seed=0).coarse_sweeps > 0

    def test_not_with_some_of_the_rows(self, monkeypatch):
        monkeypatch.setattr(inference, "COARSE_ROWS", 30)
        monkeypatch.setattr(problem, "COARSE_ROWS", 30)
        assert inference.fit_paper(simulated(60, seed=2), self.choices, seed=0).coarse_sweeps == 0


@pytest.mark.parametrize(("memory", "kind"), [(2**30, SubspaceGaussian), (2**10, DualGaussian)])
def test_the_training_rows_are_dropped_where_a_basis_has_room(monkeypatch, memory, kind):
    rows = simulated(12, seed=3)
    monkeypatch.setattr(inference, "MEMORY", memory)
    choices = dataclasses.replace(CHOICES, quadrature_points=4, solver="dual")
    found = inference.fit_paper(rows, choices, seed=0)
    assert isinstance(found.theta, kind)
    assert torch.isfinite(found.theta.draw(3, torch.Generator().manual_seed(0))).all()
