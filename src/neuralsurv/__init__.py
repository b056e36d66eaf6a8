"""Bayesian deep survival analysis: individual survival curves, and how far to trust them."""

from neuralsurv.estimator import NeuralSurv
from neuralsurv.model_file import load

__version__ = "0.1.0.dev0"

__all__ = ["NeuralSurv", "__version__", "load"]
