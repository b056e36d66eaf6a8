"""From a user's module to a network: all requirements are checked before any work is done with it."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from neuralsurv.data.parts import Layout
from neuralsurv.errors import InputError
from neuralsurv.model.module_network import WAYS, ModuleNetwork
from neuralsurv.solvers.rows import row_slices

# Rows on which a module is tried.
_PROBES = 5
# Largest relative difference of two numbers that should be the same.
_SAME = 1e-8
# Rows of one step of the pass that sets the statistics of batch normalisation.
_ROWS_FOR_STATISTICS = 1024


def wrap_module(
    module: Any, layout: Layout, x: Tensor, *, bayesian: Any = "all", device: Any = "cpu", time: Tensor | None = None
) -> ModuleNetwork:
    """Return a module as a network over its Bayesian weights; raise InputError if it cannot be one.

    Parameters
    ----------
    module : nn.Module
        With ``forward(t, x)``: t of shape (P,), x as `layout` unpacks it, output of shape (P,) or (P, 1).
    layout : Layout
        How a row of `x` becomes the module's input.
    x : Tensor of shape (N, p)
        The training rows, on some of which the module is tried.
    bayesian : "all", str or sequence of str
        All weights that require a gradient, or those whose names have this prefix.
    device : str or torch.device
        Where the module is to run.
    time : Tensor of shape (N,), optional
        A time for each row, for the statistics of batch normalisation; zeros if not given.
    """
    if not isinstance(module, nn.Module):
        raise InputError(
            f"network is a {type(module).__name__}; give a torch.nn.Module whose forward(t, x) returns one number for "
            "each row."
        )
    place = as_device(device)
    if any(isinstance(p, nn.parameter.UninitializedParameter) for p in module.parameters()):
        raise InputError("the network has lazy layers without weights; call it once on some of your rows first.")
    own = copy.deepcopy(module).to(device=place, dtype=torch.float64).eval()
    trained = tuple(name for name, p in own.named_parameters() if p.requires_grad)
    if not trained:
        raise InputError(
            "the network has no weight that requires a gradient (requires_grad), so there is nothing to infer; leave "
            "at least its last layer free."
        )
    # Gradients are taken with respect to weights that are passed in; those of the copy are constants.
    own.requires_grad_(False)
    _check_batch_norm(own)
    names = chosen_names(trained, bayesian)
    network = ModuleNetwork(own, layout, names, trained, place)
    probe_time = torch.linspace(0, 1, min(_PROBES, len(x)), dtype=torch.float64)
    probe = x[: len(probe_time)]
    _check_output(network, probe_time, probe)
    _set_statistics(own, network, torch.zeros(len(x), dtype=torch.float64) if time is None else time, x)
    _check_rows_alone(network, probe_time, probe)
    return replace(
        network,
        symmetric=is_odd(network, probe_time, probe),
        differentiation=_differentiation(network, probe_time[:2], probe[:2]),
        dtype=module.get_parameter(trained[0]).dtype,
    )


def as_device(device: Any) -> torch.device:
    """Return a torch device; raise InputError if it is not available."""
    try:
        place = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise InputError(f"device={device!r} is not known to torch; use 'cpu' or 'cuda'.") from error
    if place.type == "cuda" and not torch.cuda.is_available():
        raise InputError(f"device={device!r} was asked for, but torch finds no CUDA device; use device='cpu'.")
    return place


def chosen_names(trained: tuple[str, ...], bayesian: Any) -> tuple[str, ...]:
    """Return the names of the Bayesian parameters: all, or those with one of the given prefixes."""
    if isinstance(bayesian, str) and bayesian == "all":
        return trained
    prefixes = [bayesian] if isinstance(bayesian, str) else bayesian
    if not isinstance(prefixes, Sequence) or not prefixes or not all(isinstance(one, str) for one in prefixes):
        raise InputError(f"bayesian={bayesian!r} must be 'all', a name of a part of the network, or a list of names.")
    for prefix in prefixes:
        if not any(_belongs(name, prefix) for name in trained):
            raise InputError(
                f"bayesian={bayesian!r}: no weight that requires a gradient is called {prefix!r}; there are "
                f"{', '.join(trained[:8])}{', …' if len(trained) > 8 else ''}."
            )
    return tuple(name for name in trained if any(_belongs(name, prefix) for prefix in prefixes))


def _belongs(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(prefix.rstrip(".") + ".")


def _check_batch_norm(module: nn.Module) -> None:
    for name, layer in module.named_modules():
        if isinstance(layer, _BatchNorm) and not layer.track_running_stats:
            raise InputError(
                f"the layer {name!r} normalises by the batch at hand (track_running_stats=False), so that a curve "
                "would depend on who else is predicted; let it track running statistics, or use LayerNorm or GroupNorm."
            )


def _try(network: ModuleNetwork, time: Tensor, x: Tensor) -> Tensor:
    try:
        with torch.no_grad():
            out = network.module(time.to(network.device), network.layout.unpack(x.to(network.device)))
    except Exception as error:
        raise InputError(
            f"the network failed on {len(time)} rows with {type(error).__name__}: {error}. Its forward(t, x) is called "
            f"with t of shape ({len(time)},) and x {_described(network.layout, len(time))}, in float64."
        ) from error
    if not isinstance(out, Tensor):
        raise InputError(f"the network returns a {type(out).__name__}; it must return one number for each row.")
    return out


def _described(layout: Layout, rows: int) -> str:
    shapes = [(rows, *(block.shape or (block.stop - block.start,))) for block in layout.parts]
    if layout.container == "dict":
        return "{" + ", ".join(f"{b.name!r}: {s}" for b, s in zip(layout.parts, shapes, strict=True)) + "}"
    return (
        f"a tuple of shapes {', '.join(map(str, shapes))}" if layout.container == "tuple" else f"of shape {shapes[0]}"
    )


def _check_output(network: ModuleNetwork, time: Tensor, x: Tensor) -> None:
    out = _try(network, time, x)
    if tuple(out.shape) not in ((len(time),), (len(time), 1)):
        raise InputError(
            f"the network returns shape {tuple(out.shape)} for {len(time)} rows; it must return one number for each: "
            f"({len(time)},) or ({len(time)}, 1)."
        )
    if not bool(torch.isfinite(out).all()):
        raise InputError(
            "the network returns NaN or infinite values for training rows; look at its weights and inputs."
        )


def _set_statistics(module: nn.Module, network: ModuleNetwork, time: Tensor, x: Tensor) -> None:
    """Let batch normalisation that has never seen data take its statistics from one pass over the training rows."""
    fresh = [
        layer
        for layer in module.modules()
        if isinstance(layer, _BatchNorm)
        and layer.num_batches_tracked is not None
        and int(layer.num_batches_tracked) == 0
    ]
    if not fresh:
        return
    before = [layer.momentum for layer in fresh]
    for layer in fresh:
        # Without momentum the statistics of all batches count the same.
        layer.momentum = None
        layer.train()
    with torch.no_grad():
        for part in row_slices(len(x), 1, _ROWS_FOR_STATISTICS):
            module(time[part].to(network.device), network.layout.unpack(x[part].to(network.device)))
    for layer, momentum in zip(fresh, before, strict=True):
        layer.momentum = momentum
        layer.eval()


def _check_rows_alone(network: ModuleNetwork, time: Tensor, x: Tensor) -> None:
    together = network.value(network.own, time, x)
    if not _close(together, network.value(network.own, time, x)):
        raise InputError(
            "the network returns different values for the same rows, even in evaluation mode; take the randomness out "
            "of its forward(t, x)."
        )
    alone = torch.cat([network.value(network.own, time[k : k + 1], x[k : k + 1]) for k in range(len(time))])
    if not _close(together, alone):
        raise InputError(
            "what the network returns for a row depends on the other rows of the batch, so that a curve would depend "
            "on who else is predicted; let forward(t, x) treat every row by itself."
        )


def _close(a: Tensor, b: Tensor) -> bool:
    return bool(((a - b).abs() <= _SAME * (1 + a.abs())).all())


def is_odd(network: ModuleNetwork, time: Tensor, x: Tensor) -> bool:
    """Return whether flipping the signs of some layer's weights flips g, whatever the others are.

    Then a prior that is symmetric about 0 in every weight is symmetric in g, and E[σ(g)] is one half. It is tried for
    every layer whose weights are all Bayesian, at the module's own weights and at two random draws.
    """
    generator = torch.Generator().manual_seed(0)
    places = [network.own, *(torch.randn(network.size, generator=generator, dtype=torch.float64) for _ in range(2))]
    values = [network.value(theta, time, x) for theta in places]
    owners = dict.fromkeys(name.rpartition(".")[0] for name in network.names)
    for owner in reversed(owners):
        sign = _signs(network, owner)
        if sign is not None and all(
            bool(value.any()) and _close(-value, network.value(sign * theta, time, x))
            for theta, value in zip(places, values, strict=True)
        ):
            return True
    return False


def _signs(network: ModuleNetwork, owner: str) -> Tensor | None:
    """Return −1 for the weights of one layer and 1 for the others; None if some of the layer are not Bayesian."""
    layer = network.module.get_submodule(owner)
    own = {f"{owner}.{name}" if owner else name for name, _ in layer.named_parameters(recurse=False)}
    if not own <= set(network.names):
        return None
    parts = [
        torch.full((shape.numel(),), -1.0 if name in own else 1.0, dtype=torch.float64)
        for name, shape in zip(network.names, network.shapes, strict=True)
    ]
    return torch.cat(parts)


def _differentiation(network: ModuleNetwork, time: Tensor, x: Tensor) -> str:
    """Return the fastest way to differentiate that works: recurrent layers, for one, cannot be batched over."""
    for way in WAYS[:-1]:
        try:
            replace(network, differentiation=way).jacobian(network.own, time, x)
        except RuntimeError:
            continue
        return way
    return WAYS[-1]
