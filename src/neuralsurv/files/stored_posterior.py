"""A posterior in a model file: written as header values and arrays, read back and checked."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from neuralsurv.data.parts import Layout
from neuralsurv.errors import InputError, StorageError
from neuralsurv.files.format import Arrays, Fields, stored_array
from neuralsurv.files.packed_gaussian import pack, unpack
from neuralsurv.files.stored_network import NetworkReader
from neuralsurv.model.hazard import ClosedForm, Constant, MonteCarlo, Normaliser
from neuralsurv.model.network import Network
from neuralsurv.model.prior import Gamma, PointMass, WeightPrior
from neuralsurv.posterior.gaussian import Posterior
from neuralsurv.posterior.mixture import MixedPosterior
from neuralsurv.posterior.samples import DrawnWeights, SampledPosterior
from neuralsurv.solvers.gaussian_mixture import MixtureGaussian
from neuralsurv.solvers.interface import Gaussian
from neuralsurv.solvers.primal import PrimalGaussian
from neuralsurv.solvers.subspace import SubspaceGaussian

# No model has more parts of a mixture, or modes of a posterior, than this.
MOST_PARTS = 10_000


def posterior_parts(posterior: Posterior) -> tuple[dict[str, Any], Arrays]:
    """Return the header values and the arrays of a posterior.

    The first mode is in the header itself, further ones in a list there, with a prefix to the names of their arrays.
    """
    (values, arrays), *others = (_mode_parts(mode) for mode in posterior.modes)
    for number, (_, more) in enumerate(others):
        arrays |= {_prefix(number) + name: array for name, array in more.items()}
    return values | ({"modes": [each for each, _ in others]} if others else {}), arrays


def _mode_parts(posterior: Posterior) -> tuple[dict[str, Any], Arrays]:
    values, tensors = posterior.describe()
    return values, pack({name: tensor.contiguous().numpy() for name, tensor in tensors.items()}, posterior.network)


def _prefix(number: int) -> str:
    """Return the prefix of the arrays of a further mode."""
    return f"mode{number + 2}_"


def read_posterior(
    header: Fields, tensors: Arrays, layout: Layout, module: Any = None, device: Any = "cpu"
) -> Posterior:
    """Return the posterior in a file; a user's own `module` is to run on `device`."""
    first = _read_mode(header, tensors, layout, module, device)
    if header.raw("modes") is None:
        return first
    others = header.items("modes")
    if not 1 <= len(others) <= MOST_PARTS:
        raise StorageError(f"the model file is damaged: a mixture of {len(others) + 1} modes.")
    parts = [first]
    for number, values in enumerate(others):
        prefix = _prefix(number)
        own = {name.removeprefix(prefix): array for name, array in tensors.items() if name.startswith(prefix)}
        parts.append(_read_mode(Fields(values, f"mode {number + 2}"), own, layout, module, device))
    try:
        return MixedPosterior.of(tuple(parts))
    except InputError as error:
        raise StorageError(f"the model file is damaged: {error}") from error


def _read_mode(header: Fields, tensors: Arrays, layout: Layout, module: Any, device: Any) -> Posterior:
    network = NetworkReader(tensors, layout, module, device).read(header.table("network"))
    phi = read_phi(header.table("phi"))
    theta_star = torch.from_numpy(stored_array(tensors, "theta_star", (network.size,)))
    normaliser, rho = _read_normaliser(header, network, tensors), header.positive("rho")
    if "theta_draws" not in tensors:
        theta = read_gaussian(network.size, header, unpack(tensors, network))
        return Posterior(phi, theta, theta_star, network, normaliser, rho)
    weights = stored_array(tensors, "theta_draws", (None, network.size))
    phi_draws = stored_array(tensors, "phi_draws", (len(weights),))
    if not len(weights) or not (phi_draws > 0).all():
        raise StorageError("the model file is damaged: 'phi_draws' are none, or not positive.")
    drawn = DrawnWeights(torch.from_numpy(weights))
    return SampledPosterior(phi, drawn, theta_star, network, normaliser, rho, torch.from_numpy(phi_draws))


def read_phi(table: Fields) -> Gamma | PointMass:
    """Return phi, or its prior, from plain numbers."""
    if "held" in table.names():
        return PointMass(table.positive("held"))
    return Gamma(table.positive("shape"), table.positive("rate"))


def _read_normaliser(header: Fields, network: Network, tensors: Arrays) -> Normaliser:
    name = header.text("normaliser")
    if name == "half":
        return Constant(0.5)
    if name == "constant":
        return Constant(header.positive("normaliser_value"))
    prior = WeightPrior(torch.from_numpy(stored_array(tensors, "prior_precision", (network.size,))))
    if not bool((prior.precision > 0).all()):
        raise StorageError("the model file is damaged: 'prior_precision' is not positive.")
    if name == "closed-form":
        return ClosedForm(network, prior)
    if name == "monte-carlo":
        return MonteCarlo(network, prior, seed=header.whole("normaliser_seed", 2**63))
    raise StorageError(f"the model file is damaged: the normaliser {name!r} is not known.")


def read_gaussian(size: int, header: Fields, tensors: Arrays) -> Gaussian:
    """Return the Gaussian, or the mixture of Gaussians, of `size` weights that a file holds."""
    if "theta_basis" not in tensors:
        factor = _read_factor(tensors, "theta_factor", size)
        return PrimalGaussian(torch.from_numpy(stored_array(tensors, "theta_mean", (size,))), factor)
    basis = torch.from_numpy(stored_array(tensors, "theta_basis", (size, None)))
    # Checked before the product below, which has a row and a column for each of them.
    if basis.shape[1] > size:
        raise StorageError(f"the model file is damaged: 'theta_basis' has {basis.shape[1]} columns of {size} numbers.")
    if not torch.allclose(basis.T @ basis, torch.eye(basis.shape[1], dtype=basis.dtype), atol=1e-5):
        raise StorageError("the model file is damaged: the columns of 'theta_basis' are not orthonormal.")
    if "mixture" not in header.names():
        return _read_subspace(basis, tensors, "")
    if len(header.items("mixture")) > MOST_PARTS:
        raise StorageError(f"the model file is damaged: a mixture of {len(header.items('mixture'))} parts.")
    weights = header.numbers("mixture")
    parts = tuple(_read_subspace(basis, tensors, f"_{number}") for number in range(len(weights)))
    try:
        return MixtureGaussian(weights, parts)
    except InputError as error:
        raise StorageError(f"the model file is damaged: {error}") from error


def _read_subspace(basis: torch.Tensor, tensors: Arrays, place: str) -> SubspaceGaussian:
    size, rank = basis.shape
    precision = stored_array(tensors, f"theta_precision{place}", (size,))
    if not (precision > 0).all():
        raise StorageError(f"the model file is damaged: 'theta_precision{place}' is not positive.")
    mean = torch.from_numpy(stored_array(tensors, f"theta_inner_mean{place}", (rank,)))
    factor = _read_factor(tensors, f"theta_inner_factor{place}", rank)
    return SubspaceGaussian(torch.from_numpy(precision), basis, mean, factor)


def _read_factor(tensors: Arrays, name: str, size: int) -> torch.Tensor:
    factor = stored_array(tensors, name, (size, size))
    if not (np.diagonal(factor) > 0).all() or np.triu(factor, 1).any():
        raise StorageError(f"the model file is damaged: {name!r} is not a Cholesky factor.")
    return torch.from_numpy(factor)
