"""Settings of the paper's method."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from neuralsurv.arguments import flag, layer_widths, one_of, positive_number, whole_number
from neuralsurv.errors import InputError
from neuralsurv.model.quadrature import GaussLegendre, Rule, Trapezoid
from neuralsurv.solvers.choose import SOLVERS


@dataclass(frozen=True)
class PaperSettings:
    """The settings of the paper's method; the defaults are the paper's.

    Attributes
    ----------
    hidden : tuple of int
        Widths of the hidden layers.
    activation : {"relu", "tanh", "silu"}
        Activation of the hidden layers.
    rho : float
        Exponent of the baseline hazard; 1 is a constant baseline.
    phi_prior : tuple of float
        Shape and rate of the Gamma prior of phi.
    quadrature : {"trapezoid", "gauss-legendre"}
        Rule for the integrals over time.
    quadrature_points : int
        Grid points of the trapezoid, or Gauss–Legendre nodes per row.
    normaliser : {"auto", "half", "closed-form", "monte-carlo"}
        How Z is computed; auto takes one half where that is exact.
    mode : {"direct", "em"}
        How the mode is found.
    starts : int
        Number of random starts of that search; the best is kept.
    mode_tolerance : float
        Relative gain of an iteration below which that search stops.
    spread : {"mode", "prior"}
        What q(theta) starts with: all mass at the mode, or the prior's covariance (the paper's text).
    tolerance : float
        Relative change of the parameters below which the variational sweeps stop.
    max_sweeps : int
        Limit on the number of sweeps.
    accelerate : bool
        Whether to take shortcuts to a fixed point of the sweeps: between two of them the best mean is searched and the
        variances are extrapolated, and a problem of many quadrature nodes is first solved on few.
    solver : {"auto", "primal", "dual", "low-rank"}
        The linear algebra of the sweeps; auto takes the cheapest that fits into memory.

    Examples
    --------
    >>> from neuralsurv.inference.paper.settings import PaperSettings
    >>> PaperSettings(hidden=[16]).checked().hidden
    (16,)
    """

    hidden: tuple[int, ...] = (16, 16)
    activation: str = "relu"
    rho: float = 1.0
    phi_prior: tuple[float, float] = (1.0, 1.0)
    quadrature: str = "trapezoid"
    quadrature_points: int = 200
    normaliser: str = "auto"
    mode: str = "direct"
    starts: int = 2
    mode_tolerance: float = 1e-6
    spread: str = "mode"
    tolerance: float = 1e-6
    max_sweeps: int = 1000
    accelerate: bool = True
    solver: str = "auto"

    def checked(self) -> PaperSettings:
        """Return the settings with every value checked and converted to its type."""
        return replace(
            self,
            hidden=layer_widths(self.hidden),
            rho=positive_number("rho", self.rho),
            phi_prior=_shape_and_rate(self.phi_prior),
            quadrature=one_of("quadrature", self.quadrature, ("trapezoid", "gauss-legendre")),
            quadrature_points=whole_number("quadrature_points", self.quadrature_points, least=2),
            normaliser=one_of("normaliser", self.normaliser, ("auto", "half", "closed-form", "monte-carlo")),
            mode=one_of("mode", self.mode, ("direct", "em")),
            starts=whole_number("starts", self.starts),
            mode_tolerance=positive_number("mode_tolerance", self.mode_tolerance),
            spread=one_of("spread", self.spread, ("mode", "prior")),
            tolerance=positive_number("tolerance", self.tolerance),
            max_sweeps=whole_number("max_sweeps", self.max_sweeps),
            accelerate=flag("accelerate", self.accelerate),
            solver=one_of("solver", self.solver, ("auto", *SOLVERS)),
        )

    @property
    def rule(self) -> Rule:
        """The quadrature rule."""
        kind = Trapezoid if self.quadrature == "trapezoid" else GaussLegendre
        return kind(self.quadrature_points)


def _shape_and_rate(pair: Any) -> tuple[float, float]:
    if not hasattr(pair, "__getitem__") or len(pair) != 2:
        raise InputError(f"phi_prior={pair!r} must be a pair: the shape and the rate of a Gamma prior.")
    return positive_number("phi_prior", pair[0]), positive_number("phi_prior", pair[1])
