"""A posterior and its network in a model file: written as header values and arrays, read back and checked."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from neuralsurv.data.outcome_advice import MOST_CODES
from neuralsurv.data.parts import Layout
from neuralsurv.errors import InputError, StorageError
from neuralsurv.files.format import Arrays, Fields, stored_array
from neuralsurv.files.packed_gaussian import pack, unpack
from neuralsurv.model.additive import Additive
from neuralsurv.model.covariate_curves import KERNELS, CovariateCurves
from neuralsurv.model.hazard import ClosedForm, Constant, MonteCarlo, Normaliser
from neuralsurv.model.module_checks import as_device
from neuralsurv.model.module_network import WAYS, ModuleNetwork
from neuralsurv.model.neighbourhoods import Neighbourhoods
from neuralsurv.model.network import MLP, Network
from neuralsurv.model.prior import Gamma, PointMass, WeightPrior
from neuralsurv.model.time_basis import TimeBasis
from neuralsurv.posterior.competing import posterior_kind
from neuralsurv.posterior.gaussian import Posterior
from neuralsurv.posterior.mixture import MixedPosterior
from neuralsurv.posterior.samples import DrawnWeights, SampledPosterior
from neuralsurv.solvers.gaussian_mixture import MixtureGaussian
from neuralsurv.solvers.interface import Gaussian
from neuralsurv.solvers.primal import PrimalGaussian
from neuralsurv.solvers.subspace import SubspaceGaussian

# No model has more parts of a mixture, or modes of a posterior, than this.
MOST_PARTS = 10_000
# Relative difference of two values of g beyond which the networks are not the same.
_SAME = 1e-6
_LARGEST_LOG = 1e6


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
        if network.causes > 1 and not isinstance(normaliser, Constant):
            raise StorageError("the model file is damaged: several causes go with a constant normaliser only.")
        return posterior_kind(network)(phi, theta, theta_star, network, normaliser, rho)
    if network.causes > 1:
        raise StorageError("the model file is damaged: exact draws have one cause.")
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


@dataclass(frozen=True)
class NetworkReader:
    """Reads the networks in a file.

    Of a user-supplied module a file holds the numbers, never the code: the module is passed again on loading, and must
    have the same parameters and buffers, of the same shapes, and give the same values at a few made-up inputs.
    """

    tensors: Arrays
    layout: Layout  # where the parts of X are among the encoded columns
    module: Any  # the user's own module, if the model has one
    device: Any  # where it is to run

    def read(self, table: Fields) -> Network:
        """Return the network that a table of the header describes; its keys tell the kind."""
        return self._additive(table) if "time" in table.names() else self._inner(table, self.layout.width)

    def _inner(self, table: Fields, covariates: int) -> MLP | ModuleNetwork:
        """Return a network that may be part of an additive one, which cannot itself be nested."""
        return self._module(table) if "module" in table.names() else self._mlp(table, covariates)

    def _mlp(self, table: Fields, covariates: int) -> MLP:
        if self.module is not None:
            raise StorageError("the model has the built-in network; open it without network=.")
        hidden = table.items("hidden")
        if len(hidden) > 1000 or not all(type(width) is int and 1 <= width <= 10**7 for width in hidden):
            raise StorageError("the model file is damaged: 'hidden' is out of range.")
        try:
            network = MLP(table.whole("covariates", 10**7), tuple(hidden), table.text("activation"))
        except InputError as error:
            raise StorageError(f"the model file is damaged: {error}") from error
        _check_covariates(network.covariates, covariates)
        return network

    def _additive(self, table: Fields) -> Additive:
        time = table.table("time")
        basis = TimeBasis(
            time.positive("shift"),
            time.number("center"),
            time.positive("spread"),
            time.numbers("bumps"),
            time.positive("width"),
        )
        # Scaled times end at 1, so a shift is less; with a larger one, integrals over time would never end.
        if basis.shift > 1:
            raise StorageError("the model file is damaged: the shift of 'time' is out of range.")
        # Log times, and what is measured on their scale: larger numbers would overflow in a prediction.
        if max(map(abs, (basis.center, *basis.bumps, table.number("offset")))) > _LARGEST_LOG:
            raise StorageError("the model file is damaged: a number of 'time' or 'offset' is out of range.")
        own = table.whole("covariates", 10**7)
        inner = None if table.raw("inner") is None else self._inner(table.table("inner"), own)
        origin = stored_array(self.tensors, "origin", (0 if inner is None else inner.size,))
        _check_covariates(own, self.layout.tabular)
        return Additive(
            own,
            basis,
            table.number("offset"),
            inner,
            torch.from_numpy(origin),
            linear=table.flag("linear"),
            varying=table.flag("varying"),
            pairs="pairs" in table.names() and table.flag("pairs"),
            near=_read_neighbourhoods(own, self.tensors),
            curves=_read_curves(own, self.tensors),
            early=_read_early(table),
            levels=_read_levels(table),
        )

    def _module(self, table: Fields) -> ModuleNetwork:
        kind = table.text("module")
        if self.module is None:
            raise StorageError(
                f"the model has a network of your own, a {kind}, and a file holds no code; pass it again: "
                f"load(path, network={kind}(…))."
            )
        if not isinstance(self.module, nn.Module):
            raise StorageError(
                f"network is a {type(self.module).__name__}; give the {kind} that the model was fitted with."
            )
        try:
            place = as_device(self.device)
        except InputError as error:
            raise StorageError(str(error)) from error
        own = copy.deepcopy(self.module).to(device=place, dtype=torch.float64).eval().requires_grad_(False)
        _fill(own, table.texts("state"), self.tensors, kind)
        names, trained = table.texts("bayesian"), table.texts("trained")
        known = dict(own.named_parameters())
        lost = [name for name in (*names, *trained) if name not in known]
        if lost or not names:
            raise StorageError(f"the model file is damaged: {(*lost, 'bayesian')[0]!r} is no weight of the network.")
        way = table.text("differentiation")
        if way not in WAYS:
            raise StorageError(f"the model file is damaged: differentiation {way!r} is not known.")
        network = ModuleNetwork(
            own,
            self.layout,
            names,
            trained,
            place,
            symmetric=table.flag("symmetric"),
            differentiation=way,
            dtype=next(p.dtype for p in self.module.parameters()),
        )
        _compare(network, self.tensors, kind)
        return network


def _check_covariates(found: int, wanted: int) -> None:
    if found != wanted:
        raise StorageError("the model file is damaged: the network does not fit the covariates.")


def _read_neighbourhoods(covariates: int, tensors: Arrays) -> Neighbourhoods | None:
    if not any(name.startswith("near_") for name in tensors):
        return None
    values = stored_array(tensors, "near_values", (covariates, None))
    mix = stored_array(tensors, "near_mix", (None, None))
    ranks = stored_array(tensors, "near_ranks", values.shape)
    centres = stored_array(tensors, "near_centres", (len(mix), covariates))
    relevance = stored_array(tensors, "near_relevance", (covariates,))
    mean = stored_array(tensors, "near_mean", (mix.shape[1],))
    parts = (values, ranks, centres, relevance, mix, mean)
    rising = values.shape[1] > 1 and bool((np.diff(values) >= 0).all())
    if not rising or not (relevance > 0).all() or not mix.size:
        raise StorageError("the model file is damaged: values or relevances of the neighbourhoods are out of order.")
    return Neighbourhoods(*(torch.from_numpy(part) for part in parts))


def _read_curves(covariates: int, tensors: Arrays) -> CovariateCurves | None:
    if not any(name.startswith("curves_") for name in tensors):
        return None
    values = stored_array(tensors, "curves_values", (None, None))
    ranks = stored_array(tensors, "curves_ranks", values.shape)
    centres = stored_array(tensors, "curves_centres", (len(values), None))
    mix = stored_array(tensors, "curves_mix", (KERNELS * centres.size, None))
    mean = stored_array(tensors, "curves_mean", (mix.shape[1],))
    which = stored_array(tensors, "curves_which", (len(values),))
    known = bool(np.isin(which, np.arange(covariates)).all())
    rising = values.shape[1] > 1 and bool((np.diff(values) >= 0).all())
    if not known or not rising or not mix.size:
        raise StorageError("the model file is damaged: covariates or values of the curves are out of order.")
    parts = (which.astype(np.int64), values, ranks, centres, mix, mean)
    return CovariateCurves(*(torch.from_numpy(part) for part in parts))


def _read_early(table: Fields) -> float:
    early = table.number("early") if "early" in table.names() else 0.0
    if not 0 <= early <= 1:
        raise StorageError("the model file is damaged: 'early' is out of range.")
    return early


def _read_levels(table: Fields) -> tuple[float, ...]:
    if "levels" not in table.names():
        return ()
    levels = table.numbers("levels")
    if not 2 <= len(levels) <= MOST_CODES or max(map(abs, levels)) > _LARGEST_LOG or table.raw("inner") is not None:
        raise StorageError("the model file is damaged: 'levels' of the causes are out of range.")
    return levels


def _fill(module: nn.Module, names: tuple[str, ...], tensors: Arrays, kind: str) -> None:
    state = module.state_dict()
    for name in dict.fromkeys([*names, *state]):
        if name not in state or name not in names:
            holder = "the file" if name in names else "the network that was given"
            raise StorageError(f"the networks differ: only {holder} has {name!r}. Give the {kind} as it was fitted.")
    for number, name in enumerate(names):
        array = tensors.get(f"module_{number}")
        if array is None:
            raise StorageError(f"the model file is damaged: {name!r} of the network is missing.")
        if array.shape != tuple(state[name].shape):
            raise StorageError(
                f"the networks differ: {name!r} has shape {array.shape} in the file and {tuple(state[name].shape)} in "
                f"the network that was given. Give the {kind} as it was fitted."
            )
        with torch.no_grad():
            state[name].copy_(torch.from_numpy(array))


def _compare(network: ModuleNetwork, tensors: Arrays, kind: str) -> None:
    if "module_values" not in tensors:
        return
    wanted = torch.from_numpy(tensors["module_values"])
    found = network.fingerprint()
    if (
        found is None
        or found.shape != wanted.shape
        or bool(((found - wanted).abs() > _SAME * (1 + wanted.abs())).any())
    ):
        raise StorageError(
            f"the network that was given has the weights of the one in the file, but computes other values: its "
            f"code differs. Give the {kind} as it was fitted."
        )
