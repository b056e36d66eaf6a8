"""The result of a fit in memory, by any method: a linearised model and a posterior of its weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from neuralsurv.model.likelihood import Likelihood
from neuralsurv.model.prior import Gamma, GroupedPrior, PointMass
from neuralsurv.model.quadrature import Rule
from neuralsurv.posterior.competing import posterior_kind
from neuralsurv.posterior.diagnostics import Diagnostics
from neuralsurv.posterior.gaussian import Posterior
from neuralsurv.solvers.grouped import GroupedSolver
from neuralsurv.solvers.interface import Gaussian, SolvedGaussian
from neuralsurv.solvers.rows import Products


@dataclass(frozen=True)
class SolverReport:
    """Which solver was used."""

    # The solver, and why it was chosen.
    solver: str
    solver_reason: str
    rank: int  # number of directions that it kept; all m weights if it cuts nothing off
    lost_information: float  # Σ κ‖R‖² at the end, in nats: the information in the directions that were cut off


class LinearisedFit(Protocol):
    """A linearised model and q(phi) q(theta)."""

    @property
    def phi(self) -> Gamma | PointMass:
        """q(phi), in scaled time."""

    @property
    def theta(self) -> Gaussian:
        """q(theta)."""

    @property
    def theta_star(self) -> Tensor:
        """Where the network was linearised, shape (m,)."""

    @property
    def likelihood(self) -> Likelihood:
        """What was fitted."""

    @property
    def phi_prior(self) -> Gamma | PointMass:
        """The prior of phi."""

    @property
    def prior(self) -> GroupedPrior:
        """The prior of the weights."""

    @property
    def known_log_scales(self) -> Tensor | None:
        """Logarithms of the scales of the prior where they are not averaged over, shape (G,); else None."""

    @property
    def best_theta(self) -> SolvedGaussian:
        """q(theta) for the best scales of the prior."""

    @property
    def trace(self) -> tuple[float, ...]:
        """The ELBO as the fit went on, in nats."""

    @property
    def worst_k_hat(self) -> float:
        """The k-hat of importance weights above which the user is warned."""

    def rule(self, nodes: int) -> Rule:
        """Return a quadrature rule that suits the network, with this many nodes per row."""

    def reduce(self, time: Tensor, x: Tensor, importance: Tensor, tolerance: float) -> GroupedSolver:
        """Return the directions of the weights that carry information at P points.

        `importance` bounds the information of each point, shape (P,); `tolerance` is what may be given up, in nats.
        """

    def separate(self, likelihood: Likelihood) -> tuple[Tensor, Products] | None:
        """Return offset (P,) and rows (P, r) of the same model at other points of the training rows.

        They are in the coordinates of `best_theta`; None where their products would cost as much as those of a matrix.
        """

    def diagnose(self) -> Diagnostics:
        """Return the diagnostics of the variational posterior."""

    def diagnose_draws(self, latent_points: float, phi: float) -> Diagnostics:
        """Return the diagnostics of exact draws, from their mean latent points and phi."""


def posterior_of(fit: LinearisedFit) -> Posterior:
    """Return the variational posterior of a fit."""
    model = fit.likelihood
    kind = posterior_kind(model.network)
    return kind(fit.phi, fit.theta, fit.theta_star, model.network, model.normaliser, model.rho)
