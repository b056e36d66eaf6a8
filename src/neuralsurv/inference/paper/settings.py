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

    Every field is a parameter of :class:`neuralsurv.PaperNeuralSurv` and described there.

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
