"""Named sets of choices. A parameter that the user leaves at None takes the preset's value."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from neuralsurv.errors import InputError


@dataclass(frozen=True)
class Choices:
    """Everything that has to be chosen before a fit.

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
        Grid points of the trapezoid, or nodes a row of Gauss–Legendre.
    normaliser : {"auto", "half", "closed-form", "monte-carlo"}
        How Z is computed; auto takes one half where that is exact.
    mode : {"direct", "em"}
        How the mode is found.
    starts : int
        Number of random starts of that search; the best is kept.
    spread : {"mode", "prior"}
        What q(theta) starts with: all mass at the mode, or the prior's covariance (the paper's text).
    tolerance : float
        Relative change of the parameters below which the variational sweeps stop.
    max_sweeps : int
        Limit on the number of sweeps.
    """

    hidden: tuple[int, ...]
    activation: str
    rho: float
    phi_prior: tuple[float, float]
    quadrature: str
    quadrature_points: int
    normaliser: str
    mode: str
    starts: int
    spread: str
    tolerance: float
    max_sweeps: int


PAPER = Choices(
    hidden=(16, 16),
    activation="relu",
    rho=1.0,
    phi_prior=(1.0, 1.0),
    quadrature="trapezoid",
    quadrature_points=200,
    normaliser="auto",
    mode="direct",
    starts=2,
    spread="mode",
    tolerance=1e-6,
    max_sweeps=1000,
)

PRESETS = {"paper": PAPER}


def resolve(preset: str, **given: Any) -> Choices:
    """Return the choices of `preset` with every given value that is not None in its place, checked.

    Examples
    --------
    >>> from neuralsurv.presets import resolve
    >>> resolve("paper", hidden=(16,)).quadrature
    'trapezoid'
    """
    if preset not in PRESETS:
        raise InputError(f"preset {preset!r} is not known; use one of {', '.join(PRESETS)}.")
    known = {field.name for field in fields(Choices)}
    choices = replace(PRESETS[preset], **{k: v for k, v in given.items() if v is not None and k in known})
    choices = replace(choices, hidden=tuple(choices.hidden))
    _one_of("quadrature", choices.quadrature, ("trapezoid", "gauss-legendre"))
    _one_of("normaliser", choices.normaliser, ("auto", "half", "closed-form", "monte-carlo"))
    _one_of("mode", choices.mode, ("direct", "em"))
    _one_of("spread", choices.spread, ("mode", "prior"))
    _positive("rho", choices.rho)
    _positive("tolerance", choices.tolerance)
    if len(choices.phi_prior) != 2:
        raise InputError(f"phi_prior={choices.phi_prior!r} must be a pair: the shape and the rate of a Gamma prior.")
    for value in choices.phi_prior:
        _positive("phi_prior", value)
    for name in ("starts", "max_sweeps", "quadrature_points"):
        if int(getattr(choices, name)) < (2 if name == "quadrature_points" else 1):
            raise InputError(f"{name}={getattr(choices, name)!r} is too small.")
    return choices


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise InputError(f"{name}={value!r} is not known; use one of {', '.join(allowed)}.")


def _positive(name: str, value: float) -> None:
    if not 0 < float(value) < float("inf"):
        raise InputError(f"{name}={value!r} must be a positive number.")
