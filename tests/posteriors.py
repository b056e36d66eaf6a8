"""Small posteriors made by hand, so that what is predicted from them can be worked out another way, without a fit."""

from __future__ import annotations

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from neuralsurv.data.features import Encoding
from neuralsurv.model.hazard import ClosedForm, Constant, MonteCarlo, Normaliser
from neuralsurv.model.linearise import linearise_network
from neuralsurv.model.network import MLP
from neuralsurv.model.prior import Gamma, WeightPrior
from neuralsurv.posterior.gaussian import Posterior
from neuralsurv.prediction.predictor import Predictor
from neuralsurv.solvers.primal import PrimalGaussian

NAMES = ("age", "dose")


def normaliser_of(kind: str, network: MLP, star: Tensor) -> Normaliser:
    """Return a normaliser; the last two differ from point to point (the closed form because it is taken at `star`)."""
    prior = WeightPrior.isotropic(network.size)
    kinds: dict[str, Normaliser] = {
        "half": Constant(0.5),
        "closed-form": ClosedForm(network, prior, star),
        "monte-carlo": MonteCarlo(network, prior, draws=8, seed=3),
    }
    return kinds[kind]


def g_moments(posterior: Posterior, time: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and variance of g at P points, `time` (P,) and `x` (P, d), of a posterior around one mode."""
    linearised = linearise_network(posterior.network, posterior.theta_star, time, x)
    mean = linearised.offset + linearised.rows.times(posterior.theta.mean)
    return mean, posterior.theta.variance(linearised.rows.dense())


def small_posterior(
    activation: str = "tanh",
    *,
    rho: float = 1.0,
    normaliser: str = "half",
    hidden: tuple[int, ...] = (3,),
    phi: tuple[float, float] = (6.0, 2.0),
    precision: float = 8.0,
    seed: int = 0,
) -> Posterior:
    """Return a posterior of a network on time and two covariates, with correlated weights.

    Parameters
    ----------
    phi : tuple of float
        Shape and rate of q(phi).
    precision : float
        The larger, the narrower q(theta).
    """
    generator = torch.Generator().manual_seed(seed)
    network = MLP(len(NAMES), hidden, activation)
    star = torch.randn(network.size, generator=generator, dtype=torch.float64)
    mean = star + 0.2 * torch.randn(network.size, generator=generator, dtype=torch.float64)
    noise = torch.randn(network.size, network.size, generator=generator, dtype=torch.float64)
    factor = torch.linalg.cholesky(noise @ noise.T + precision * torch.eye(network.size, dtype=torch.float64))
    z = normaliser_of(normaliser, network, star)
    return Posterior(Gamma(*phi), PrimalGaussian(mean, factor), star, network, z, rho)


def covariates(people: int, seed: int = 1) -> pd.DataFrame:
    """Return covariates of some people."""
    return pd.DataFrame(np.random.default_rng(seed).standard_normal((people, len(NAMES))), columns=list(NAMES))


def small_predictor(
    activation: str = "tanh", *, time_scale: float = 40.0, count: int = 60, seed: int = 5, **options: object
) -> Predictor:
    """Return a predictor whose covariates are used as they are; the other options are those of the posterior."""
    posterior = small_posterior(activation, **options)  # type: ignore[arg-type]
    return predictor_of(posterior, time_scale=time_scale, count=count, seed=seed)


def predictor_of(posterior: Posterior, *, time_scale: float = 40.0, count: int = 60, seed: int = 5) -> Predictor:
    """Return a predictor for a posterior on the two covariates."""
    encoding = Encoding.fit(covariates(9), np.ones(9), standardise=False)
    return Predictor(posterior, encoding, time_scale, count, seed, verbose=False)


def kinks(posterior: Posterior, x: np.ndarray, until: float) -> list[float]:
    """Return the times in (0, until) at which a unit of the only hidden layer changes sign, for one person."""
    assert isinstance(posterior.network, MLP)
    weight, bias = posterior.network.layers(posterior.theta_star)[0]
    at = -(weight[:, 1:].numpy() @ x + bias.numpy()) / weight[:, 0].numpy()
    return sorted(float(t) for t in at if 0 < t < until)


def by_hand_g(posterior: Posterior, theta: np.ndarray, time: float, x: np.ndarray) -> float:
    """Return h + J theta at one point for a network with one hidden layer, written out in numpy."""
    network = posterior.network
    assert isinstance(network, MLP)
    assert len(network.hidden) == 1
    function, slope = {
        "tanh": (np.tanh, lambda z: 1 - np.tanh(z) ** 2),
        "relu": (lambda z: np.maximum(z, 0), lambda z: (z > 0).astype(float)),
    }[network.activation]
    (w1, b1), (w2, b2) = ([part.numpy() for part in layer] for layer in network.layers(posterior.theta_star))
    change = torch.from_numpy(theta) - posterior.theta_star
    (dw1, db1), (dw2, db2) = ([part.numpy() for part in layer] for layer in network.layers(change))
    point = np.concatenate([[time], x])
    before = w1 @ point + b1
    moved = (w2 + dw2) @ function(before) + b2 + db2 + (w2 * slope(before)) @ (dw1 @ point + db1)
    return float(moved[0])
