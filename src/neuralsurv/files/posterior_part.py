"""What of a posterior goes into a model file, and back: network, normaliser, phi, the Gaussian of the weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np
import torch

from neuralsurv.data.parts import Layout
from neuralsurv.errors import InputError, StorageError
from neuralsurv.files.format import Fields
from neuralsurv.files.module_part import module_table, read_module
from neuralsurv.files.packed_gaussian import pack, unpack
from neuralsurv.model.additive import Additive
from neuralsurv.model.hazard import ClosedForm, Constant, MonteCarlo, Normaliser
from neuralsurv.model.module_network import ModuleNetwork
from neuralsurv.model.neighbourhoods import Neighbourhoods
from neuralsurv.model.network import MLP, Network
from neuralsurv.model.prior import Gamma, Held, WeightPrior
from neuralsurv.model.time_basis import TimeBasis
from neuralsurv.posterior.gaussian import Posterior
from neuralsurv.posterior.mixture import MixedPosterior
from neuralsurv.posterior.samples import DrawnWeights, SampledPosterior
from neuralsurv.solvers.interface import Gaussian
from neuralsurv.solvers.mixture import MixtureGaussian
from neuralsurv.solvers.primal import PrimalGaussian
from neuralsurv.solvers.subspace import SubspaceGaussian

Arrays = dict[str, np.ndarray]

_MOST_PARTS = 10_000
_NEAR = tuple(field.name for field in fields(Neighbourhoods))
_LARGEST_LOG = 1e6


def posterior_parts(posterior: Posterior) -> tuple[dict[str, Any], Arrays]:
    """Return what the header and the tensors of a file hold of a posterior."""
    if isinstance(posterior, MixedPosterior):
        about, arrays = posterior_parts(posterior.parts[0])
        others = [posterior_parts(part) for part in posterior.parts[1:]]
        for number, (_, theirs) in enumerate(others):
            arrays |= {_of_mode(number) + name: array for name, array in theirs.items()}
        return about | {"modes": [told for told, _ in others]}, arrays
    network, gaussian = posterior.network, posterior.theta
    about = {"phi": phi_table(posterior.phi), "rho": posterior.rho}
    arrays = {"theta_star": posterior.theta_star.numpy()}
    if isinstance(network, MLP | ModuleNetwork):
        about["network"] = _network_table(network, arrays)
    elif isinstance(network, Additive):
        basis = network.basis
        about["network"] = {
            "covariates": network.covariates,
            "offset": network.offset,
            "linear": network.linear,
            "varying": network.varying,
            "pairs": network.pairs,
            "inner": None if network.inner is None else _network_table(network.inner, arrays),
            "time": {
                "shift": basis.shift,
                "center": basis.center,
                "spread": basis.spread,
                "width": basis.width,
                "bumps": list(basis.bumps),
            },
        }
        arrays["origin"] = network.origin.numpy()
        if network.near is not None:
            arrays |= {f"near_{name}": getattr(network.near, name).contiguous().numpy() for name in _NEAR}
    else:
        raise StorageError(f"a model with a {type(network).__name__} cannot be saved.")
    if isinstance(posterior, SampledPosterior):
        assert isinstance(gaussian, DrawnWeights)
        arrays |= {"theta_draws": gaussian.draws.numpy(), "phi_draws": posterior.phi_draws.numpy()}
    else:
        _add_gaussian(gaussian, about, arrays)
    _add_normaliser(posterior.normaliser, about, arrays)
    return about, pack(arrays, network)


def read_posterior(
    header: Fields, tensors: Arrays, layout: Layout, module: Any = None, device: Any = "cpu"
) -> Posterior:
    """Return the posterior that a file holds, of a network that takes covariates so laid out.

    Parameters
    ----------
    header, tensors : Fields, dict of ndarray
        What the file holds.
    layout : Layout
        Where the parts of X are among the encoded columns.
    module, device : nn.Module or None, str
        The network of the user's, if the model has one, and where it is to run.
    """
    if header.raw("modes") is not None:
        return _mixed(header, tensors, layout, module, device)
    return _one_mode(header, tensors, layout, module, device)


def _of_mode(number: int) -> str:
    """Return what the names of the tensors of a further mode begin with."""
    return f"mode{number + 2}_"


def _mixed(header: Fields, tensors: Arrays, layout: Layout, module: Any, device: Any) -> MixedPosterior:
    """Return a mixture: the header itself says the first of its parts, and its list the others."""
    others = header.items("modes")
    if not 1 <= len(others) <= _MOST_PARTS:
        raise StorageError(f"the model file is damaged: a mixture of {len(others) + 1} modes.")
    parts = [_one_mode(header, tensors, layout, module, device)]
    for number, told in enumerate(others):
        prefix = _of_mode(number)
        own = {name.removeprefix(prefix): array for name, array in tensors.items() if name.startswith(prefix)}
        parts.append(_one_mode(Fields(told, f"mode {number + 2}"), own, layout, module, device))
    try:
        return MixedPosterior.of(tuple(parts))
    except InputError as error:
        raise StorageError(f"the model file is damaged: {error}") from error


def _one_mode(header: Fields, tensors: Arrays, layout: Layout, module: Any, device: Any) -> Posterior:
    table = header.table("network")

    def inner(table: Fields) -> MLP | ModuleNetwork:
        if "module" in table.names():
            return read_module(table, tensors, layout, module, device)
        if module is not None:
            raise StorageError("the model has the built-in network; open it without network=.")
        return _mlp(table)

    network = _network(table, tensors, inner)
    wanted = layout.tabular if isinstance(network, Additive) else layout.width
    if network.covariates != wanted:
        raise StorageError("the model file is damaged: the network does not fit the covariates.")
    phi = read_phi(header.table("phi"))
    theta_star = torch.from_numpy(stored_tensor(tensors, "theta_star", (network.size,)))
    normaliser, rho = _normaliser(header, network, tensors), header.positive("rho")
    if "theta_draws" not in tensors:
        theta = _gaussian(network.size, header, unpack(tensors, network))
        return Posterior(phi, theta, theta_star, network, normaliser, rho)
    weights = stored_tensor(tensors, "theta_draws", (None, network.size))
    phi_draws = stored_tensor(tensors, "phi_draws", (len(weights),))
    if not len(weights) or not (phi_draws > 0).all():
        raise StorageError("the model file is damaged: 'phi_draws' are none, or not positive.")
    drawn = DrawnWeights(torch.from_numpy(weights))
    return SampledPosterior(phi, drawn, theta_star, network, normaliser, rho, torch.from_numpy(phi_draws))


def phi_table(phi: Gamma | Held) -> dict[str, float]:
    """Return phi, or its prior, as plain numbers."""
    return {"held": phi.mean} if isinstance(phi, Held) else {"shape": phi.shape, "rate": phi.rate}


def read_phi(table: Fields) -> Gamma | Held:
    """Return phi, or its prior, from plain numbers."""
    if "held" in table.names():
        return Held(table.positive("held"))
    return Gamma(table.positive("shape"), table.positive("rate"))


def stored_tensor(tensors: Arrays, name: str, shape: tuple[int | None, ...]) -> np.ndarray:
    """Return an array of a file if it is there and has the shape; None stands for any length."""
    array = tensors.get(name)
    fits = array is not None and len(array.shape) == len(shape)
    if array is None or not fits or any(b not in (None, a) for a, b in zip(array.shape, shape, strict=True)):
        raise StorageError(f"the model file is damaged: {name!r} is missing or has the wrong shape.")
    return array


def _network_table(network: MLP | ModuleNetwork, arrays: Arrays) -> dict[str, Any]:
    if isinstance(network, ModuleNetwork):
        return module_table(network, arrays)
    return {"covariates": network.covariates, "hidden": list(network.hidden), "activation": network.activation}


def _mlp(table: Fields) -> MLP:
    hidden = table.items("hidden")
    if len(hidden) > 1000 or not all(type(width) is int and 1 <= width <= 10**7 for width in hidden):
        raise StorageError("the model file is damaged: 'hidden' is out of range.")
    try:
        return MLP(table.whole("covariates", 10**7), tuple(hidden), table.text("activation"))
    except InputError as error:
        raise StorageError(f"the model file is damaged: {error}") from error


def _network(
    table: Fields, tensors: Arrays, read_inner: Callable[[Fields], MLP | ModuleNetwork]
) -> MLP | ModuleNetwork | Additive:
    if "time" not in table.names():
        return read_inner(table)
    time = table.table("time")
    basis = TimeBasis(
        time.positive("shift"),
        time.number("center"),
        time.positive("spread"),
        time.numbers("bumps"),
        time.positive("width"),
    )
    # Scaled times end at 1, so a shift is less; integrals over time would take steps without end with a larger one.
    if basis.shift > 1:
        raise StorageError("the model file is damaged: the shift of 'time' is out of range.")
    # Logarithms of times, and what is measured in them: a file that says otherwise would overflow in a prediction.
    if max(map(abs, (basis.center, *basis.bumps, table.number("offset")))) > _LARGEST_LOG:
        raise StorageError("the model file is damaged: a number of 'time' or 'offset' is out of range.")
    inner = None if table.raw("inner") is None else read_inner(table.table("inner"))
    covariates = table.whole("covariates", 10**7)
    if isinstance(inner, MLP) and inner.covariates != covariates:
        raise StorageError("the model file is damaged: the inner network does not fit the covariates.")
    origin = stored_tensor(tensors, "origin", (0 if inner is None else inner.size,))
    return Additive(
        covariates,
        basis,
        table.number("offset"),
        inner,
        torch.from_numpy(origin),
        linear=table.flag("linear"),
        varying=table.flag("varying"),
        pairs="pairs" in table.names() and table.flag("pairs"),
        near=_neighbourhoods(covariates, tensors),
    )


def _neighbourhoods(covariates: int, tensors: Arrays) -> Neighbourhoods | None:
    if not any(name.startswith("near_") for name in tensors):
        return None
    values = stored_tensor(tensors, "near_values", (covariates, None))
    mix = stored_tensor(tensors, "near_mix", (None, None))
    ranks = stored_tensor(tensors, "near_ranks", values.shape)
    centres = stored_tensor(tensors, "near_centres", (len(mix), covariates))
    relevance = stored_tensor(tensors, "near_relevance", (covariates,))
    mean = stored_tensor(tensors, "near_mean", (mix.shape[1],))
    parts = (values, ranks, centres, relevance, mix, mean)
    rising = values.shape[1] > 1 and bool((np.diff(values) >= 0).all())
    if not rising or not (relevance > 0).all() or not mix.size:
        raise StorageError("the model file is damaged: values or relevances of the neighbourhoods are out of order.")
    return Neighbourhoods(*(torch.from_numpy(part) for part in parts))


def _add_gaussian(gaussian: Gaussian, about: dict[str, Any], arrays: Arrays) -> None:
    if isinstance(gaussian, PrimalGaussian):
        arrays |= {"theta_mean": gaussian.mean.numpy(), "theta_factor": gaussian.factor.numpy()}
        return
    parts = gaussian.parts if isinstance(gaussian, MixtureGaussian) else (gaussian,)
    first = parts[0]
    if not all(isinstance(part, SubspaceGaussian) for part in parts) or not isinstance(first, SubspaceGaussian):
        raise StorageError(f"a model with a {type(gaussian).__name__} cannot be saved.")
    arrays["theta_basis"] = first.basis.contiguous().numpy()
    if isinstance(gaussian, MixtureGaussian):
        about["mixture"] = list(gaussian.weights)
    for number, part in enumerate(parts):
        assert isinstance(part, SubspaceGaussian)
        if part.basis is not first.basis:
            raise StorageError("a mixture whose parts have different bases cannot be saved.")
        place = f"_{number}" if isinstance(gaussian, MixtureGaussian) else ""
        arrays[f"theta_precision{place}"] = part.precision.numpy()
        arrays[f"theta_inner_mean{place}"] = part.inner_mean.numpy()
        arrays[f"theta_inner_factor{place}"] = part.inner_factor.numpy()


def _factor(tensors: Arrays, name: str, size: int) -> torch.Tensor:
    factor = stored_tensor(tensors, name, (size, size))
    if not (np.diagonal(factor) > 0).all() or np.triu(factor, 1).any():
        raise StorageError(f"the model file is damaged: {name!r} is not a Cholesky factor.")
    return torch.from_numpy(factor)


def _gaussian(size: int, header: Fields, tensors: Arrays) -> Gaussian:
    if "theta_basis" not in tensors:
        factor = _factor(tensors, "theta_factor", size)
        return PrimalGaussian(torch.from_numpy(stored_tensor(tensors, "theta_mean", (size,))), factor)
    basis = torch.from_numpy(stored_tensor(tensors, "theta_basis", (size, None)))
    # Before the product, which has a row and a column for each of them.
    if basis.shape[1] > size:
        raise StorageError(f"the model file is damaged: 'theta_basis' has {basis.shape[1]} columns of {size} numbers.")
    if not torch.allclose(basis.T @ basis, torch.eye(basis.shape[1], dtype=basis.dtype), atol=1e-5):
        raise StorageError("the model file is damaged: the columns of 'theta_basis' are not orthonormal.")
    if "mixture" not in header.names():
        return _subspace(basis, tensors, "")
    if len(header.items("mixture")) > _MOST_PARTS:
        raise StorageError(f"the model file is damaged: a mixture of {len(header.items('mixture'))} parts.")
    weights = header.numbers("mixture")
    parts = tuple(_subspace(basis, tensors, f"_{number}") for number in range(len(weights)))
    try:
        return MixtureGaussian(weights, parts)
    except InputError as error:
        raise StorageError(f"the model file is damaged: {error}") from error


def _subspace(basis: torch.Tensor, tensors: Arrays, place: str) -> SubspaceGaussian:
    size, rank = basis.shape
    precision = stored_tensor(tensors, f"theta_precision{place}", (size,))
    if not (precision > 0).all():
        raise StorageError(f"the model file is damaged: 'theta_precision{place}' is not positive.")
    mean = torch.from_numpy(stored_tensor(tensors, f"theta_inner_mean{place}", (rank,)))
    factor = _factor(tensors, f"theta_inner_factor{place}", rank)
    return SubspaceGaussian(torch.from_numpy(precision), basis, mean, factor)


def _add_normaliser(normaliser: Normaliser, about: dict[str, Any], arrays: Arrays) -> None:
    names: dict[type, str] = {
        Constant: "constant",
        ClosedForm: "closed-form",
        MonteCarlo: "monte-carlo",
    }
    if type(normaliser) not in names:
        raise StorageError(f"a model with the normaliser {type(normaliser).__name__} cannot be saved.")
    about["normaliser"] = names[type(normaliser)]
    if isinstance(normaliser, Constant):
        about["normaliser_value"] = normaliser.value
    if isinstance(normaliser, MonteCarlo):
        about["normaliser_seed"] = normaliser.seed
    if isinstance(normaliser, ClosedForm | MonteCarlo):
        arrays["prior_precision"] = normaliser.prior.precision.numpy()


def _normaliser(header: Fields, network: Network, tensors: Arrays) -> Normaliser:
    name = header.text("normaliser")
    if name == "half":
        return Constant(0.5)
    if name == "constant":
        return Constant(header.positive("normaliser_value"))
    prior = WeightPrior(torch.from_numpy(stored_tensor(tensors, "prior_precision", (network.size,))))
    if not bool((prior.precision > 0).all()):
        raise StorageError("the model file is damaged: 'prior_precision' is not positive.")
    if name == "closed-form":
        return ClosedForm(network, prior)
    if name == "monte-carlo":
        return MonteCarlo(network, prior, seed=header.whole("normaliser_seed", 2**63))
    raise StorageError(f"the model file is damaged: the normaliser {name!r} is not known.")
