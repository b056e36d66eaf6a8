"""Which parameters each kind of fit uses. One that is given where it would do nothing is refused by name."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np

from neuralsurv.errors import InputError
from neuralsurv.inference.choices import DEFAULT, PAPER, DefaultChoices, PaperChoices

# The parameters of the estimator that `resolve` takes.
CHOICES = ("preset", *dict.fromkeys(field.name for kind in (PaperChoices, DefaultChoices) for field in fields(kind)))


@dataclass(frozen=True)
class Kind:
    """What tells one kind of fit from another.

    Attributes
    ----------
    rows : {"in memory", "streamed"}
        By `fit` or by `fit_stream`.
    preset : {"default", "paper"}
        The model.
    network : {"built-in", "own"}
        Whose network it is.
    inference : {"variational", "importance", "gibbs"}
        How the posterior is found.
    method : {"exact", "mini-batch", "auto"}
        How a streamed fit goes through the rows; ``"auto"`` while that is not decided. In memory it is exact.
    """

    rows: str
    preset: str
    network: str = "built-in"
    inference: str = "variational"
    method: str = "exact"


# What a fit must be for a parameter to do something: a value of each property of `Kind` that matters, or none.
# Every parameter of the constructor is here, and every field of the presets' choices. The paper's preset is for `fit`.
_ALWAYS: dict[str, str] = {}
_PAPER = {"preset": "paper"}
_DEFAULT = {"preset": "default"}
_IN_MEMORY = {"rows": "in memory"}
_BUILT_IN = {"network": "built-in"}
_OWN = {**_IN_MEMORY, "network": "own"}
_GIBBS = {**_IN_MEMORY, "inference": "gibbs"}
_SWEEPS = {"method": "exact"}
USES: dict[str, dict[str, str]] = {
    "preset": _ALWAYS,
    "hidden": _BUILT_IN,
    "activation": _BUILT_IN,
    "rho": _PAPER,
    "phi_prior": _PAPER,
    "quadrature": _PAPER,
    "quadrature_points": _ALWAYS,
    "normaliser": _PAPER,
    "mode": _PAPER,
    "starts": {**_PAPER, **_BUILT_IN},
    "mode_tolerance": _PAPER,
    "spread": _PAPER,
    "tolerance": _SWEEPS,
    "max_sweeps": _SWEEPS,
    "accelerate": _PAPER,
    "solver": _PAPER,
    "headroom": _DEFAULT,
    "neighbourhoods": {**_IN_MEMORY, **_DEFAULT, **_BUILT_IN},
    "average": {**_IN_MEMORY, **_DEFAULT},
    "inference": _IN_MEMORY,
    "chains": _GIBBS,
    "warmup": _GIBBS,
    "thin": _GIBBS,
    "network": _IN_MEMORY,
    "bayesian": _OWN,
    "device": _OWN,
    "epochs": {**_OWN, **_DEFAULT},
    "learning_rate": {**_OWN, **_DEFAULT},
    "standardise": _ALWAYS,
    "draws": _ALWAYS,
    "warm_start": _PAPER,
    "verbose": _ALWAYS,
    "random_state": _ALWAYS,
    # PaperChoices that a preset of the user's own can have, and the constructor does not.
    "bumps": _DEFAULT,
    "linear": _DEFAULT,
    "varying": _DEFAULT,
    "pairs": _DEFAULT,
    "per_covariate": _DEFAULT,
    "relinearise": {**_IN_MEMORY, **_DEFAULT},
    "curvature": _DEFAULT,
    "hyper_priors": _DEFAULT,
}
# The same for the arguments of `fit_stream` that not every streamed fit uses.
STREAM_USES: dict[str, dict[str, str]] = {
    "passes": {"method": "mini-batch"},
    "batch_size": {"method": "mini-batch"},
}
_WHY = {
    ("rows", "in memory"): "is for fit, which holds all rows in memory, and does nothing in fit_stream; leave it out",
    ("preset", "paper"): "is for preset='paper'; leave it out",
    ("preset", "default"): "is for the default preset; leave it out",
    ("network", "built-in"): "does nothing for a network of your own (network=…); leave it out",
    ("network", "own"): "only does something for a network of your own (network=…); leave it out",
    ("inference", "gibbs"): "is for inference='gibbs'; leave it out",
    ("method", "exact"): "is for sweeps over all rows, and this fit takes steps on samples of them; leave it out, or "
    "set method='exact'",
    ("method", "mini-batch"): "is for steps on samples of the rows, and this fit sweeps over all of them; leave it "
    "out, or set method='mini-batch'",
}


def kind_of(choices: PaperChoices | DefaultChoices, parameters: Mapping[str, Any], *, streamed: str = "") -> Kind:
    """Return the kind of a fit.

    Parameters
    ----------
    choices : PaperChoices or DefaultChoices
        The resolved preset.
    parameters : mapping
        Those of the estimator.
    streamed : str
        The method of a streamed fit; empty in memory.
    """
    preset = "default" if isinstance(choices, DefaultChoices) else "paper"
    if streamed:
        return Kind("streamed", preset, method=streamed)
    network = "built-in" if parameters["network"] is None else "own"
    return Kind("in memory", preset, network, parameters["inference"])


def refuse_unused(estimator: type, parameters: Mapping[str, Any], kind: Kind) -> None:
    """Refuse parameters of the estimator, and choices of a preset of the user's, that the fit would not use.

    Parameters
    ----------
    estimator : type
        Its class: the defaults of the constructor are what was not given.
    parameters : mapping
        All of its parameters.
    kind : Kind
        The kind of fit.
    """
    usual = {name: each.default for name, each in inspect.signature(estimator).parameters.items()}
    given = {name: value for name, value in parameters.items() if _differs(value, usual[name])}
    refuse(given, USES, kind)
    preset = parameters["preset"]
    if isinstance(preset, PaperChoices | DefaultChoices):
        named = asdict(PAPER if isinstance(preset, PaperChoices) else DEFAULT)
        own = {name: value for name, value in asdict(preset).items() if _differs(value, named[name])}
        refuse(own, USES, kind, " of the preset")


def refuse(given: Mapping[str, Any], uses: Mapping[str, dict[str, str]], kind: Kind, whose: str = "") -> None:
    """Refuse what is given and not used, with the first reason."""
    for name, value in given.items():
        for what, needed in uses.get(name, _ALWAYS).items():
            if getattr(kind, what) not in (needed, "auto"):
                # A network may print over pages.
                shown = f"{name}={value!r}" if name != "network" else f"network={type(value).__name__}(…)"
                raise InputError(f"{shown}{whose} {_WHY[what, needed]}.")


def _differs(value: Any, usual: Any) -> bool:
    same = value is usual or value == usual
    # An array, compared with a word, answers for each of its elements.
    return not (isinstance(same, bool | np.bool_) and same)
