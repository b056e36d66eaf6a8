r"""Compression of the Gaussian over the weights of a large network, for a model file.

The directions V (m×r) are by far the largest part of a file. A row of the Jacobian is, for the weights of the first
layer, an outer product with the inputs of one training row, so that V there is :math:`X^\top C` with as many columns of
X as there are different training rows: few where a table is wide. Directions of the linear path have no entry there at
all. The prior's precision has one value a group, and a Cholesky factor is half zeros. What is left out is exactly zero
or repeated, and X and C give V back to its last digits; a Gaussian that is small is stored as it is.
"""

from __future__ import annotations

import math

import numpy as np

from neuralsurv.errors import StorageError
from neuralsurv.files.format import Arrays
from neuralsurv.memory import require
from neuralsurv.model.network import Network

BASIS, PRECISION, FACTOR = "theta_basis", "theta_precision", "theta_inner_factor"
_REST, _CORE, _INPUTS, _COLUMNS = (f"{BASIS}_{part}" for part in ("rest", "core", "inputs", "columns"))
_RUNS, _LOWER = "_runs", "_lower"
# Gaussians of fewer numbers than this (8 MB) are stored as they are.
_WORTH_PACKING = 2**20
# Singular values below this share of the largest are rounding; entries of V, at most 1, may change by this much.
_NOISE = 1e-13
_CLOSE = 1e-12
_FIRST_WIDTH = 64
_ADVICE = "Use a machine with more memory, or fit with fewer columns or a smaller network."


def pack(arrays: Arrays, network: Network) -> Arrays:
    """Return the arrays that `stored_posterior.posterior_parts` makes, with a large Gaussian compressed."""
    own = {name: array for name, array in arrays.items() if name.startswith((BASIS, PRECISION, FACTOR))}
    if sum(array.size for array in own.values()) < _WORTH_PACKING:
        return arrays
    packed = {name: array for name, array in arrays.items() if name not in own}
    for name, array in own.items():
        if name == BASIS:
            packed |= _pack_basis(array, network)
        elif name.startswith(FACTOR):
            packed[name + _LOWER] = array[np.tril_indices(len(array))]
        else:
            starts = np.flatnonzero(np.diff(array, prepend=np.nan))
            runs = np.stack([array[starts], np.diff(starts, append=len(array))])
            packed |= {name + _RUNS: runs} if runs.size < array.size // 2 else {name: array}
    return packed


def unpack(tensors: Arrays, network: Network) -> Arrays:
    """Return the arrays that :func:`pack` was given, checked; arrays that were not packed are returned unchanged."""
    packed = [name for name in tensors if name.startswith("theta_") and name.endswith((_RUNS, _LOWER))]
    if not packed and _CORE not in tensors:
        return tensors
    found = {name: array for name, array in tensors.items() if name not in packed and not name.startswith(BASIS + "_")}
    rank = tensors[_REST].shape[-1] if _REST in tensors and tensors[_REST].ndim == 2 else 0
    lengths = {name: rank**2 if name.endswith(_LOWER) else network.size for name in packed}
    require(8.0 * (network.size * rank + sum(lengths.values())), "opening this model file", _ADVICE)
    if _CORE in tensors:
        found[BASIS] = _unpack_basis(tensors, network)
    for name in packed:
        whole = _unpack_lower if name.endswith(_LOWER) else _unpack_runs
        found[name.removesuffix(_LOWER).removesuffix(_RUNS)] = whole(tensors[name], name, network.size)
    return found


def _pack_basis(basis: np.ndarray, network: Network) -> Arrays:
    place = network.first_layer
    if place is None:
        return {BASIS: basis}
    start, units, inputs = place
    stop = start + units * inputs
    columns = np.flatnonzero(basis[start:stop].any(0))
    block = basis[start:stop, columns].reshape(units, inputs, -1).transpose(1, 0, 2)
    packed = {_REST: np.concatenate([basis[:start], basis[stop:]]), _COLUMNS: columns.astype(np.float64)}
    factors = _factored(block.reshape(inputs, -1))
    if factors is None:
        return {**packed, _CORE: np.ascontiguousarray(block)}
    return {**packed, _INPUTS: factors[0], _CORE: factors[1].reshape(-1, units, len(columns))}


def _factored(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Return a matrix as a product of two, or None where they would not have half as many numbers."""
    rows, columns = matrix.shape
    most = matrix.size // (2 * (rows + columns)) if matrix.size else 0
    generator, width = np.random.default_rng(0), _FIRST_WIDTH
    while most:
        width = min(width, most)
        left, values, _ = np.linalg.svd(matrix @ generator.normal(size=(columns, width + 8)), full_matrices=False)
        rank = int((values > _NOISE * values[0]).sum())
        if rank <= width:
            left = np.ascontiguousarray(left[:, :rank])
            right = left.T @ matrix
            return (left, right) if np.abs(matrix - left @ right).max() <= _CLOSE else None
        if width == most:
            return None
        width *= 2
    return None


def _unpack_basis(tensors: Arrays, network: Network) -> np.ndarray:
    place, core = network.first_layer, tensors[_CORE]
    rest, columns = tensors.get(_REST, np.empty(0)), tensors.get(_COLUMNS, np.empty(0))
    if place is None or core.ndim != 3 or rest.ndim != 2 or columns.ndim != 1:
        raise _damaged(BASIS)
    start, units, inputs = place
    left = tensors.get(_INPUTS)
    shapes = (
        core.shape[1:] == (units, len(columns)),
        core.shape[0] == inputs if left is None else left.shape == (inputs, core.shape[0]),
        len(rest) == network.size - units * inputs,
        np.isin(columns, np.arange(rest.shape[1])).all() and (np.diff(columns) > 0).all(),
    )
    if not all(shapes):
        raise _damaged(BASIS)
    block = core if left is None else (left @ core.reshape(len(core), -1)).reshape(inputs, units, -1)
    basis = np.zeros((network.size, rest.shape[1]))
    basis[:start], basis[start + units * inputs :] = rest[:start], rest[start:]
    basis[start : start + units * inputs, columns.astype(int)] = block.transpose(1, 0, 2).reshape(units * inputs, -1)
    return basis


def _unpack_runs(runs: np.ndarray, name: str, size: int) -> np.ndarray:
    if runs.ndim != 2 or len(runs) != 2 or (runs[1] % 1 != 0).any() or (runs[1] < 1).any() or runs[1].sum() != size:
        raise _damaged(name)
    return np.repeat(runs[0], runs[1].astype(int))


def _unpack_lower(lower: np.ndarray, name: str, size: int) -> np.ndarray:
    rank = (math.isqrt(8 * lower.size + 1) - 1) // 2
    if lower.ndim != 1 or rank * (rank + 1) // 2 != lower.size:
        raise _damaged(name)
    factor = np.zeros((rank, rank))
    factor[np.tril_indices(rank)] = lower
    return factor


def _damaged(name: str) -> StorageError:
    return StorageError(f"the model file is damaged: the parts of {name!r} do not fit each other.")
