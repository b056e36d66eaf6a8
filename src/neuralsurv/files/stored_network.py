"""The network in a model file: read back and checked.

Of a user-supplied module a file holds the numbers, never the code: the module is passed again on loading. Its
numbers then come from the file, and it must have the same parameters and buffers, of the same shapes, and give the same
values at a few made-up inputs.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from neuralsurv.data.parts import Layout
from neuralsurv.errors import InputError, StorageError
from neuralsurv.files.format import Arrays, Fields, stored_array
from neuralsurv.model.additive import Additive
from neuralsurv.model.curves import KERNELS, Curves
from neuralsurv.model.module_checks import as_device
from neuralsurv.model.module_network import WAYS, ModuleNetwork
from neuralsurv.model.neighbourhoods import Neighbourhoods
from neuralsurv.model.network import MLP, Network
from neuralsurv.model.time_basis import TimeBasis

# Relative difference of two values of g beyond which the networks are not the same.
_SAME = 1e-6
_LARGEST_LOG = 1e6


@dataclass(frozen=True)
class NetworkReader:
    """Reads the networks in a file."""

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


def _read_curves(covariates: int, tensors: Arrays) -> Curves | None:
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
    return Curves(*(torch.from_numpy(part) for part in parts))


def _read_early(table: Fields) -> float:
    early = table.number("early") if "early" in table.names() else 0.0
    if not 0 <= early <= 1:
        raise StorageError("the model file is damaged: 'early' is out of range.")
    return early


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
