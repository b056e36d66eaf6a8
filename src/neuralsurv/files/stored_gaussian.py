"""The distribution of the weights in a model file: read back and checked."""

from __future__ import annotations

import numpy as np
import torch

from neuralsurv.errors import InputError, StorageError
from neuralsurv.files.format import Arrays, Fields, stored_array
from neuralsurv.solvers.gaussian_mixture import MixtureGaussian
from neuralsurv.solvers.interface import Gaussian
from neuralsurv.solvers.primal import PrimalGaussian
from neuralsurv.solvers.subspace import SubspaceGaussian

# No model has more parts of a mixture, or modes of a posterior, than this.
MOST_PARTS = 10_000


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
