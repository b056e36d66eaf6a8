"""Named sets of choices. A parameter that the user leaves at None takes the preset's value."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from operator import index
from typing import Any

import numpy as np

from neuralsurv.errors import InputError
from neuralsurv.solvers.choose import SOLVERS


@dataclass(frozen=True)
class PaperChoices:
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
    mode_tolerance: float
    spread: str
    tolerance: float
    max_sweeps: int
    accelerate: bool
    solver: str


PAPER = PaperChoices(
    hidden=(16, 16),
    activation="relu",
    rho=1.0,
    phi_prior=(1.0, 1.0),
    quadrature="trapezoid",
    quadrature_points=200,
    normaliser="auto",
    mode="direct",
    starts=2,
    mode_tolerance=1e-6,
    spread="mode",
    tolerance=1e-6,
    max_sweeps=1000,
    accelerate=True,
    solver="auto",
)


@dataclass(frozen=True)
class DefaultChoices:
    """Everything that has to be chosen before a fit of the default preset.

    Attributes
    ----------
    hidden : tuple of int
        Widths of the hidden layers of the network beside the linear path; ``()`` for none.
    activation : {"relu", "tanh", "silu"}
        Activation of the hidden layers.
    bumps : int
        Bumps of the time basis; 0 for a trend in log time alone.
    headroom : float
        Ceiling of the hazard over the crude rate of events.
    quadrature_points : int
        Nodes a row of the rule for the integrals over time.
    linear : bool
        Whether there is a linear path beside the network.
    varying : bool
        Whether the effect of a covariate may change with log time.
    pairs : bool
        Whether there are products of two covariates; with 64 covariates or more there are none.
    per_covariate : bool
        Whether every covariate of the linear path has a scale of its own.
    relinearise : int
        How often, at most, the network is linearised anew at the posterior mean; each must raise the score.
    curvature : {"exact", "fisher", "polya-gamma"}
        Curvature of a point: minus the expected second derivative, the information of the point process, or that of
        the bound that the paper uses.
    hyper_priors : bool
        Whether the scales of the prior have hyper-priors; without them the bare ELBO chooses.
    average : bool
        Whether the posterior is averaged over scales of the prior, or taken at the best ones; with more than 1,000
        rows it is always at the best.
    tolerance : float
        Gain in nats below which the ascent for one setting stops.
    max_sweeps : int
        Limit on its steps.
    epochs : int
        Most passes over the rows in the training of a network of the user's, before it is linearised; 0 for none.
    learning_rate : float
        Rate of that training.
    neighbourhoods : int
        With 2,000 to 50,000 different rows and at most 64 encoded covariates, so many units that respond to a
        neighbourhood take the place of hidden layers and products; 0 for none.
    """

    hidden: tuple[int, ...]
    activation: str
    bumps: int
    headroom: float
    quadrature_points: int
    linear: bool
    varying: bool
    pairs: bool
    per_covariate: bool
    relinearise: int
    curvature: str
    hyper_priors: bool
    average: bool
    tolerance: float
    max_sweeps: int
    epochs: int = 50
    learning_rate: float = 2e-3
    neighbourhoods: int = 400


DEFAULT = DefaultChoices(
    hidden=(64,),
    activation="silu",
    bumps=6,
    headroom=30.0,
    quadrature_points=12,
    linear=True,
    varying=True,
    pairs=True,
    per_covariate=False,
    relinearise=0,
    curvature="exact",
    hyper_priors=True,
    average=True,
    tolerance=1e-3,
    max_sweeps=100,
)

PRESETS: dict[str, PaperChoices | DefaultChoices] = {"default": DEFAULT, "paper": PAPER}


def resolve(preset: str | PaperChoices | DefaultChoices, **given: Any) -> PaperChoices | DefaultChoices:
    """Return the choices of `preset` with every given value that is not None in its place, checked.

    Parameters
    ----------
    preset : str, PaperChoices or DefaultChoices
        A name, or choices of your own.
    given
        PaperChoices by name; None stands for the preset's.

    Examples
    --------
    >>> from neuralsurv.inference.choices import resolve
    >>> resolve("paper", hidden=(16,)).quadrature
    'trapezoid'
    """
    if isinstance(preset, PaperChoices | DefaultChoices):
        base: PaperChoices | DefaultChoices = preset
        name = "given"
    elif isinstance(preset, str) and preset in PRESETS:
        base, name = PRESETS[preset], repr(preset)
    else:
        raise InputError(f"preset {preset!r} is not known; use one of {', '.join(PRESETS)}.")
    known = [field.name for field in fields(base)]
    named = {key: value for key, value in given.items() if value is not None}
    if isinstance(base, DefaultChoices) and {"hidden", "activation"} & set(named):
        # Who asks for hidden layers wants them with any number of rows.
        named.setdefault("neighbourhoods", 0)
    for key, value in named.items():
        if key not in known:
            raise InputError(
                f"{key}={value!r} is not a choice of the preset {name}, whose choices are {', '.join(known)}."
            )
    chosen = replace(base, **named)
    return _checked(chosen) if isinstance(chosen, PaperChoices) else _checked_default(chosen)


def _checked(choices: PaperChoices) -> PaperChoices:
    _one_of("quadrature", choices.quadrature, ("trapezoid", "gauss-legendre"))
    _one_of("normaliser", choices.normaliser, ("auto", "half", "closed-form", "monte-carlo"))
    _one_of("mode", choices.mode, ("direct", "em"))
    _one_of("spread", choices.spread, ("mode", "prior"))
    _one_of("solver", choices.solver, ("auto", *SOLVERS))
    return replace(
        choices,
        hidden=_widths(choices.hidden),
        rho=_positive("rho", choices.rho),
        phi_prior=_shape_and_rate(choices.phi_prior),
        quadrature_points=_whole("quadrature_points", choices.quadrature_points, least=2),
        starts=_whole("starts", choices.starts),
        mode_tolerance=_positive("mode_tolerance", choices.mode_tolerance),
        tolerance=_positive("tolerance", choices.tolerance),
        max_sweeps=_whole("max_sweeps", choices.max_sweeps),
        accelerate=_flag("accelerate", choices.accelerate),
    )


def _checked_default(choices: DefaultChoices) -> DefaultChoices:
    _one_of("curvature", choices.curvature, ("exact", "fisher", "polya-gamma"))
    headroom = _positive("headroom", choices.headroom)
    if headroom <= 1:
        raise InputError(f"headroom={headroom:g} must exceed 1: the ceiling of the hazard lies above its average.")
    return replace(
        choices,
        hidden=_widths(choices.hidden),
        bumps=_whole("bumps", choices.bumps, least=0),
        headroom=headroom,
        quadrature_points=_whole("quadrature_points", choices.quadrature_points, least=2),
        linear=_flag("linear", choices.linear),
        varying=_flag("varying", choices.varying),
        pairs=_flag("pairs", choices.pairs),
        per_covariate=_flag("per_covariate", choices.per_covariate),
        relinearise=_whole("relinearise", choices.relinearise, least=0),
        hyper_priors=_flag("hyper_priors", choices.hyper_priors),
        average=_flag("average", choices.average),
        tolerance=_positive("tolerance", choices.tolerance),
        max_sweeps=_whole("max_sweeps", choices.max_sweeps),
        epochs=_whole("epochs", choices.epochs, least=0),
        learning_rate=_positive("learning_rate", choices.learning_rate),
        neighbourhoods=_whole("neighbourhoods", choices.neighbourhoods, least=0),
    )


def _one_of(name: str, value: Any, allowed: tuple[str, ...]) -> None:
    if not isinstance(value, str) or value not in allowed:
        raise InputError(f"{name}={value!r} is not known; use one of {', '.join(allowed)}.")


def _positive(name: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not 0 < number < math.inf:
        raise InputError(f"{name}={value!r} must be a positive number.")
    return number


def _whole(name: str, value: Any, least: int = 1) -> int:
    try:
        number = index(value)
    except TypeError:
        number = least - 1
    if number < least:
        raise InputError(f"{name}={value!r} must be a whole number of at least {least}.")
    return number


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool | np.bool_):
        raise InputError(f"{name}={value!r} must be True or False.")
    return bool(value)


def _widths(hidden: Any) -> tuple[int, ...]:
    try:
        return tuple(_whole("hidden", width) for width in hidden)
    except (TypeError, InputError) as error:
        raise InputError(
            f"hidden={hidden!r} must hold whole numbers of at least 1, one for each hidden layer: (16,) for a single "
            "layer."
        ) from error


def _shape_and_rate(pair: Any) -> tuple[float, float]:
    if not isinstance(pair, Sequence | np.ndarray) or len(pair) != 2:
        raise InputError(f"phi_prior={pair!r} must be a pair: the shape and the rate of a Gamma prior.")
    return _positive("phi_prior", pair[0]), _positive("phi_prior", pair[1])
