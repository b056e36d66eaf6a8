"""The inference problem of the paper: a likelihood with its priors."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch

from neuralsurv.data.cohort import Cohort
from neuralsurv.errors import InputError
from neuralsurv.inference.paper.settings import PaperSettings
from neuralsurv.model.hazard import ClosedForm, Constant, MonteCarlo, Normaliser
from neuralsurv.model.likelihood import Likelihood
from neuralsurv.model.network import MLP, Network
from neuralsurv.model.points import build_points
from neuralsurv.model.prior import Gamma, WeightPrior
from neuralsurv.model.quadrature import GaussLegendre

# A problem with more points than this many times those of the coarse problem is first solved coarsely.
_WORTH_A_COARSE_PROBLEM = 3
_COARSE_RULE = GaussLegendre(8)
COARSE_ROWS = 1500


@dataclass(frozen=True)
class PaperProblem(Likelihood):
    """A likelihood with the priors of the paper."""

    weight_prior: WeightPrior
    phi_prior: Gamma

    @cached_property
    def phi_rate(self) -> float:
        """Rate of q(phi), β0 + Σ c: the same in every sweep (eq. A14)."""
        return self.phi_prior.rate + float(self.baseline.sum())


def choose_normaliser(settings: PaperSettings, network: Network, prior: WeightPrior, seed: int) -> Normaliser:
    """Return Z: one half where that is exact, else as chosen."""
    kind = settings.normaliser
    if kind == "auto":
        kind = "half" if network.symmetric else "closed-form"
    if kind == "half":
        if not network.symmetric:
            raise InputError("normaliser='half' is only right for a network whose prior is symmetric about 0.")
        return Constant(0.5)
    return ClosedForm(network, prior) if kind == "closed-form" else MonteCarlo(network, prior, seed=seed)


def build_problem(cohort: Cohort, settings: PaperSettings, seed: int) -> PaperProblem:
    """Build the problem from a cohort and settings."""
    network = MLP(cohort.covariates, settings.hidden, settings.activation)
    prior = WeightPrior.isotropic(network.size)
    return PaperProblem(
        points=build_points(cohort, settings.rule, settings.rho),
        x=cohort.x,
        network=network,
        weight_prior=prior,
        phi_prior=Gamma(*settings.phi_prior),
        normaliser=choose_normaliser(settings, network, prior, seed),
        rho=settings.rho,
    )


def coarse_problem(problem: PaperProblem, cohort: Cohort, settings: PaperSettings) -> PaperProblem | None:
    """Return the problem with few quadrature nodes and some of the rows, where that is much smaller.

    It only says where to start: mode and sweeps end on the problem itself. The rows are every k-th of the canonical
    order, with weights that make up for the others. None where there is little to save, or where shortcuts are off.
    """
    if not settings.accelerate or settings.mode == "em":
        return None
    some = torch.arange(0, len(cohort), max(1, len(cohort) // COARSE_ROWS))
    # Without events there is nothing to start from; they are the scarce rows.
    some = torch.unique(torch.cat([some, torch.nonzero(cohort.event).squeeze(1)[:1]]))
    part = cohort.take(some)
    part = replace(part, weight=float(cohort.weight.sum() / part.weight.sum()) * part.weight)
    points = build_points(part, _COARSE_RULE, settings.rho)
    points = replace(points, row=some[points.row])
    return replace(problem, points=points) if len(problem.points) > _WORTH_A_COARSE_PROBLEM * len(points) else None
