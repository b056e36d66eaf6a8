"""A user-supplied network, and how it is trained."""

from __future__ import annotations

from typing import Any

from sklearn.base import BaseEstimator

from neuralsurv.data.cohort import Cohort
from neuralsurv.data.parts import Layout
from neuralsurv.inference.default.module_training import ModuleTraining
from neuralsurv.model.module_checks import wrap_module
from neuralsurv.model.module_network import ModuleNetwork


class OwnNetwork(BaseEstimator):
    """A PyTorch network for :class:`NeuralSurv`, and how it is trained.

    It has scikit-learn's ``get_params`` and ``set_params``, so ``network__epochs`` can be searched over.

    Parameters
    ----------
    module : torch.nn.Module
        With ``forward(t, x)``: times t of shape (P,) and x the covariates of P rows (a tensor, or a tuple or dict of
        them where X was one), returning P numbers. It is copied, never changed.
    bayesian : "all", str or list of str
        Which weights have a posterior: all with ``requires_grad``, or those of the named parts. The others are only
        trained, as if they were known exactly: **bands are then too narrow**.
    device : str
        Where the network runs: "cpu" or "cuda".
    epochs : int
        Largest number of training epochs, before the network is linearised; 0 for none.
    learning_rate : float
        Learning rate of Adam.

    Examples
    --------
    >>> import torch
    >>> from neuralsurv import NeuralSurv, OwnNetwork
    >>> from neuralsurv.data.simulate import lognormal_cohort
    >>> class Net(torch.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.layers = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
    ...
    ...     def forward(self, t, x):
    ...         return self.layers(torch.cat([t[:, None], x[:, :2]], dim=1)).squeeze(1)
    >>> cohort = lognormal_cohort(40, seed=1)
    >>> model = NeuralSurv(network=OwnNetwork(Net(), epochs=5), random_state=0).fit(cohort.x, cohort.y)
    >>> model.predict_survival(cohort.x.head(2), times=[10]).mean.shape
    (2, 1)
    """

    def __init__(
        self, module: Any, *, bayesian: Any = "all", device: str = "cpu", epochs: int = 50, learning_rate: float = 2e-3
    ) -> None:
        self.module = module
        self.bayesian = bayesian
        self.device = device
        self.epochs = epochs
        self.learning_rate = learning_rate

    @property
    def training(self) -> ModuleTraining:
        """The settings of the training, checked."""
        return ModuleTraining(self.epochs, self.learning_rate).checked()

    def wrapped(self, layout: Layout, cohort: Cohort) -> ModuleNetwork:
        """Return a copy of the module as a network for the rows of a cohort, or say why it cannot be one."""
        return wrap_module(self.module, layout, cohort.x, bayesian=self.bayesian, device=self.device, time=cohort.time)


def own_network(network: Any) -> OwnNetwork | None:
    """Return the `network` argument as an OwnNetwork; a bare module gets the default settings."""
    return network if network is None or isinstance(network, OwnNetwork) else OwnNetwork(network)
