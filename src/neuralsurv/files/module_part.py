"""What of a network of the user's goes into a model file: its numbers, never its code.

Whoever opens the file gives the module again. Its numbers then come from the file, and it has to have the same
parameters and buffers, of the same shapes, and to give the same values at a few made-up inputs.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from neuralsurv.data.parts import Layout
from neuralsurv.errors import InputError, StorageError
from neuralsurv.files.format import Fields
from neuralsurv.model.module_checks import as_device
from neuralsurv.model.module_network import WAYS, ModuleNetwork

Arrays = dict[str, np.ndarray]

_PROBES = 3
# Relative difference of two values of g beyond which the networks are not the same.
_SAME = 1e-6


def _probe(layout: Layout) -> tuple[Tensor, Tensor]:
    """Return made-up times and rows: normal numbers, and zeros for whole ones, which may be places in a list."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(_PROBES, layout.width, generator=generator, dtype=torch.float64)
    for block in layout.parts:
        if block.whole:
            x[:, block.start : block.stop] = 0
    return torch.linspace(0, 1, _PROBES, dtype=torch.float64), x


def _values(network: ModuleNetwork) -> Tensor | None:
    """Return g at the made-up inputs, or None where the module cannot take them."""
    try:
        values = network.value(network.own, *_probe(network.layout))
    except Exception:
        return None
    return values if bool(torch.isfinite(values).all()) else None


def module_table(network: ModuleNetwork, arrays: Arrays) -> dict[str, Any]:
    """Return what the header of a file holds of a module, and put its numbers into `arrays`."""
    state = network.module.state_dict()
    for number, (name, value) in enumerate(state.items()):
        array = value.detach().cpu().to(torch.float64).numpy()
        if not np.isfinite(array).all():
            raise StorageError(
                f"{name!r} of the network holds values that are NaN or infinite and cannot be saved; register it with "
                "persistent=False if the module can make it anew."
            )
        arrays[f"module_{number}"] = array
    values = _values(network)
    if values is not None:
        arrays["module_values"] = values.numpy()
    return {
        "module": type(network.module).__name__,
        "state": list(state),
        "bayesian": list(network.names),
        "trained": list(network.trained),
        "symmetric": network.symmetric,
        "differentiation": network.differentiation,
    }


def read_module(table: Fields, tensors: Arrays, layout: Layout, module: Any, device: Any) -> ModuleNetwork:
    """Return the network of a file, with the module that the user gives and the numbers of the file."""
    kind = table.text("module")
    if module is None:
        raise StorageError(
            f"the model has a network of its own, a {kind}, and a file holds no code; give it again: "
            f"load(path, network={kind}(…))."
        )
    if not isinstance(module, nn.Module):
        raise StorageError(f"network is a {type(module).__name__}; give the {kind} that the model was fitted with.")
    try:
        place = as_device(device)
    except InputError as error:
        raise StorageError(str(error)) from error
    own = copy.deepcopy(module).to(device=place, dtype=torch.float64).eval().requires_grad_(False)
    _fill(own, table.texts("state"), tensors, kind)
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
        layout,
        names,
        trained,
        place,
        symmetric=table.flag("symmetric"),
        differentiation=way,
        dtype=next(p.dtype for p in module.parameters()),
    )
    _compare(network, tensors, kind)
    return network


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
    found = _values(network)
    if (
        found is None
        or found.shape != wanted.shape
        or bool(((found - wanted).abs() > _SAME * (1 + wanted.abs())).any())
    ):
        raise StorageError(
            f"the network that was given has the weights of the one in the file, but does not compute the same: its "
            f"code differs. Give the {kind} as it was fitted."
        )
