"""Bayesian deep survival analysis: individual survival curves, and how far to trust them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from neuralsurv import metrics
    from neuralsurv.estimator.model_file import load
    from neuralsurv.estimator.neuralsurv import NeuralSurv
    from neuralsurv.estimator.own_network import OwnNetwork
    from neuralsurv.estimator.paper import PaperNeuralSurv

__version__ = "0.1.0.dev0"

__all__ = ["NeuralSurv", "OwnNetwork", "PaperNeuralSurv", "__version__", "load", "metrics"]

# Imported when first used: torch, pandas and scikit-learn take seconds that a command line or a worker may not need.
_HOMES = {
    "NeuralSurv": "neuralsurv.estimator.neuralsurv",
    "OwnNetwork": "neuralsurv.estimator.own_network",
    "PaperNeuralSurv": "neuralsurv.estimator.paper",
    "load": "neuralsurv.estimator.model_file",
}


def __getattr__(name: str) -> Any:
    """Import a public object when it is first asked for."""
    if name == "metrics":
        return import_module("neuralsurv.metrics")
    if name not in _HOMES:
        raise AttributeError(f"module 'neuralsurv' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(__all__)
