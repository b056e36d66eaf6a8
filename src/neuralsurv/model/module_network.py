"""Any torch module as a network: g, its Jacobian and the products with it, for the weights that are Bayesian.

The module runs on its own device and everything that leaves it is in the memory of the computer: the algebra of the
posterior needs float64, in which most graphics cards are slow, and is small beside the differentiation of the module.
"""

from __future__ import annotations

import contextlib
import copy
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from neuralsurv.data.parts import Layout
from neuralsurv.errors import StorageError
from neuralsurv.model.network import Network, Pullback
from neuralsurv.solvers.interface import Description
from neuralsurv.solvers.rows import DenseRows, row_slices
from neuralsurv.solvers.streamed_rows import StreamedRows

# Points that go through the module together hold at most this many numbers, inputs and Jacobian rows counted apart.
_INPUT_NUMBERS = 2**20
_MOST_POINTS = 2048
_POINTS_BACKWARDS = 32
# A Jacobian of up to this many numbers (2 GiB) is kept in memory; a larger one is recomputed wherever it is needed.
MOST_NUMBERS_DENSE = 2**28

# Made-up inputs by whose values of g a module is recognised.
_PROBES = 3

# Ways to take gradients of many points, fastest first.
WAYS = ("together", "backwards", "singly")

Weights = dict[str, Tensor]


@contextlib.contextmanager
def _plain_kernels(recurrent: bool) -> Iterator[None]:
    """Keep torch from kernels that have no second derivative or cannot be batched over.

    Attention in one fused kernel, the short cut of transformer layers in evaluation mode, and the recurrent layers of
    cuDNN, which refuse to be differentiated in evaluation mode.
    """
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    cudnn = torch.backends.cudnn.flags(enabled=False) if recurrent else contextlib.nullcontext()
    try:
        with sdpa_kernel(SDPBackend.MATH), cudnn:
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


@dataclass(frozen=True, eq=False)
class ModuleNetwork(Network):
    """A module's output as g, as a function of the weights `names` in one flat vector.

    Made by :func:`neuralsurv.model.module_checks.wrap_module`, which checks all that is assumed here.

    Attributes
    ----------
    module : nn.Module
        A copy of the user's module, in evaluation mode and float64, on `device`. Buffers, and weights that are not in
        `names`, are constants.
    layout : Layout
        How a row of the matrix of covariates becomes the second argument of ``forward(t, x)``.
    names : tuple of str
        The parameters that make up theta, in order.
    trained : tuple of str
        The parameters that a search for the mode may move: those that require a gradient.
    device : torch.device
        Where the module runs.
    symmetric : bool
        Whether a symmetric prior of theta makes the prior of g symmetric about 0.
    differentiation : {"together", "backwards", "singly"}
        How gradients of many points are taken: all at once (vmap); one pass forwards and then all at once, for layers
        that torch cannot batch over otherwise; or one by one.
    dtype : torch.dtype
        Type of the user's weights, in which the module is trained.
    """

    module: nn.Module
    layout: Layout
    names: tuple[str, ...]
    trained: tuple[str, ...]
    device: torch.device
    symmetric: bool = False
    differentiation: str = "together"
    dtype: torch.dtype = torch.float64
    # Few: every pass through a module is expensive.
    clock_panels: ClassVar[int] = 24

    @property
    def covariates(self) -> int:
        """Number of columns of the matrix of covariates."""
        return self.layout.width

    @cached_property
    def shapes(self) -> tuple[torch.Size, ...]:
        """Shapes of the parameters."""
        return tuple(self.module.get_parameter(name).shape for name in self.names)

    @cached_property
    def size(self) -> int:
        """Number of weights m."""
        return sum(shape.numel() for shape in self.shapes)

    @cached_property
    def own(self) -> Tensor:
        """The weights that the module has, shape (m,)."""
        parts = [self.module.get_parameter(name).detach().reshape(-1) for name in self.names]
        return torch.cat(parts).cpu()

    @cached_property
    def unit_precision(self) -> Tensor:
        """Fan-in of the layer that each weight belongs to, shape (m,): a prior precision that keeps g of order 1."""
        parts = []
        for name, shape in zip(self.names, self.shapes, strict=True):
            owner = self.module.get_submodule(name.rpartition(".")[0])
            widest = max((p for p in owner.parameters(recurse=False) if p.ndim > 1), key=Tensor.numel, default=None)
            # Biases share the fan-in of the weights beside them; a gain or an embedding stands alone.
            matrix = shape if len(shape) > 1 else widest.shape if widest is not None else None
            fan_in = 1 if matrix is None or isinstance(owner, nn.Embedding) else matrix[1:].numel() + 1
            parts.append(torch.full((shape.numel(),), float(fan_in), dtype=torch.float64))
        return torch.cat(parts)

    def initial(self, generator: torch.Generator) -> Tensor:
        """Return the weights that the module has: the user initialises or pre-trains it."""
        return self.own.clone()

    def with_weights(self, theta: Tensor) -> ModuleNetwork:
        """Return the network of a module that has the weights `theta`."""
        module = copy.deepcopy(self.module)
        with torch.no_grad():
            for name, value in self.weights(theta).items():
                module.get_parameter(name).copy_(value)
        return replace(self, module=module)

    def over(self, names: tuple[str, ...]) -> ModuleNetwork:
        """Return the same network as a function of other parameters of the module, taken as not symmetric."""
        return replace(self, names=names, symmetric=False)

    def weights(self, theta: Tensor) -> Weights:
        """Cut a flat vector into the parameters by name, on the device."""
        parts = torch.split(theta.to(self.device), [shape.numel() for shape in self.shapes])
        return {name: part.reshape(shape) for name, part, shape in zip(self.names, parts, self.shapes, strict=True)}

    def _flat(self, parts: list[Tensor | None]) -> Tensor:
        """Join gradients of the parameters into a flat vector; one that g does not depend on has none."""
        filled = [
            torch.zeros(shape, dtype=torch.float64, device=self.device) if part is None else part
            for part, shape in zip(parts, self.shapes, strict=True)
        ]
        return torch.cat([part.reshape(-1) for part in filled])

    @cached_property
    def _recurrent(self) -> bool:
        return self.device.type == "cuda" and any(isinstance(part, nn.RNNBase) for part in self.module.modules())

    def call(self, weights: Weights, time: Tensor, x: Tensor) -> Tensor:
        """Return g at points that are on the device, shape (P,)."""
        with _plain_kernels(self._recurrent):
            out: Tensor = functional_call(self.module, weights, (time, self.layout.unpack(x)))
        return out.reshape(len(time))

    def _blocks(self, time: Tensor, x: Tensor, most: int = _MOST_POINTS) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """Yield blocks of points, on the device."""
        step = max(1, min(most, _INPUT_NUMBERS // x.shape[1]))
        for part in row_slices(len(time), 1, step):
            yield part, time[part].to(self.device), x[part].to(self.device)

    def value(self, theta: Tensor, time: Tensor, x: Tensor) -> Tensor:
        """Return g at P points."""
        out = theta.new_empty(len(time))
        weights = self.weights(theta)
        with torch.no_grad():
            for part, at, rows in self._blocks(time, x):
                out[part] = self.call(weights, at, rows).to(out.device)
        return out

    def bind(self, time: Tensor, x: Tensor) -> Callable[[Tensor], tuple[Tensor, Pullback]]:
        """Return the map from theta to g at these points and its pullback, which goes through the module once more.

        What a module stores for its derivative is too much to keep for all points at once.
        """

        def evaluate(theta: Tensor) -> tuple[Tensor, Pullback]:
            return self.value(theta, time, x), lambda u: self.vjp(theta, time, x, u)

        return evaluate

    def value_and_rows(self, theta: Tensor, time: Tensor, x: Tensor) -> tuple[Tensor, DenseRows | StreamedRows]:
        """Return g and the rows of the Jacobian: kept if they are few, else recomputed at every use."""
        value = self.value(theta, time, x)
        if len(time) * self.size > MOST_NUMBERS_DENSE:
            return value, StreamedRows(self, theta, time, x)
        return value, DenseRows(self.jacobian(theta, time, x))

    def jacobian(self, theta: Tensor, time: Tensor, x: Tensor) -> Tensor:
        """Return the rows of the Jacobian, shape (P, m), in blocks of points."""
        out = theta.new_empty(len(time), self.size)
        weights = self.weights(theta)
        # A gradient taken backwards goes through the whole block for each of its points.
        widest = _MOST_POINTS if self.differentiation == "together" else _POINTS_BACKWARDS
        rows_of = {"together": self._rows_together, "backwards": self._rows_backwards, "singly": self._rows_singly}
        for part, at, rows in self._blocks(time, x, most=max(1, min(widest, 4 * _INPUT_NUMBERS // self.size))):
            out[part] = rows_of[self.differentiation](weights, at, rows).to(out.device)
        return out

    def _rows_together(self, weights: Weights, time: Tensor, x: Tensor) -> Tensor:
        def single(weights: Weights, at: Tensor, row: Tensor) -> Tensor:
            return self.call(weights, at[None], row[None])[0]

        with warnings.catch_warnings():
            # An operation that torch batches by a loop is still right, and the user cannot change it.
            warnings.filterwarnings("ignore", message="There is a performance drop")
            parts = vmap(grad(single), in_dims=(None, 0, 0))(weights, time, x)
        return torch.cat([parts[name].reshape(len(time), -1) for name in self.names], 1)

    def _rows_backwards(self, weights: Weights, time: Tensor, x: Tensor) -> Tensor:
        leaves = self._leaves(weights)
        with torch.enable_grad():
            g = self.call(leaves, time, x)
        one_each = torch.eye(len(time), dtype=g.dtype, device=g.device)
        parts = torch.autograd.grad(g, list(leaves.values()), one_each, is_grads_batched=True, allow_unused=True)
        filled = [
            torch.zeros(len(time), shape.numel(), dtype=g.dtype, device=g.device) if part is None else part
            for part, shape in zip(parts, self.shapes, strict=True)
        ]
        return torch.cat([part.reshape(len(time), -1) for part in filled], 1)

    def _rows_singly(self, weights: Weights, time: Tensor, x: Tensor) -> Tensor:
        leaves = self._leaves(weights)
        rows = []
        for k in range(len(time)):
            with torch.enable_grad():
                g = self.call(leaves, time[k : k + 1], x[k : k + 1]).sum()
            rows.append(self._flat(list(torch.autograd.grad(g, list(leaves.values()), allow_unused=True))))
        return torch.stack(rows)

    @staticmethod
    def _leaves(weights: Weights) -> Weights:
        return {name: value.detach().requires_grad_() for name, value in weights.items()}

    def vjp(self, theta: Tensor, time: Tensor, x: Tensor, u: Tensor) -> Tensor:
        """Return Jᵀ·u without forming J."""
        leaves = self._leaves(self.weights(theta))
        total = torch.zeros(self.size, dtype=torch.float64, device=self.device)
        with torch.enable_grad():
            for part, at, rows in self._blocks(time, x):
                g = self.call(leaves, at, rows)
                back = torch.autograd.grad(g, list(leaves.values()), u[part].to(g.device), allow_unused=True)
                total += self._flat(list(back))
        return total.to(theta.device)

    def jvp(self, theta: Tensor, time: Tensor, x: Tensor, v: Tensor) -> Tensor:
        """Return J·v without forming J: u -> Jᵀu is linear in u, and its own derivative along v is J·v."""
        leaves = self._leaves(self.weights(theta))
        along = v.to(self.device)
        out = theta.new_zeros(len(time))
        with torch.enable_grad():
            for part, at, rows in self._blocks(time, x):
                g = self.call(leaves, at, rows)
                u = torch.zeros_like(g, requires_grad=True)
                back = torch.autograd.grad(g, list(leaves.values()), u, create_graph=True, allow_unused=True)
                product = self._flat(list(back)) @ along
                out[part] = torch.autograd.grad(product, u)[0].to(out.device)
        return out

    @property
    def architecture(self) -> str:
        """The name of the module's class."""
        return type(self.module).__name__

    @property
    def bayesian_share(self) -> str:
        """How many weights of the module are Bayesian, in words."""
        counts = {name: parameter.numel() for name, parameter in self.module.named_parameters()}
        every, trained = sum(counts.values()), sum(counts[name] for name in self.trained)
        known = "" if trained == self.size else f", {trained - self.size:,} only trained, as if known exactly"
        return f"{self.size:,} Bayesian of {every:,}{known}"

    def fingerprint(self) -> Tensor | None:
        """Return g at a few made-up inputs, or None where the module cannot take them.

        Covariates are normal numbers, and zeros for whole ones, which may be places in a list.
        """
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(_PROBES, self.layout.width, generator=generator, dtype=torch.float64)
        for block in self.layout.parts:
            if block.whole:
                x[:, block.start : block.stop] = 0
        try:
            values = self.value(self.own, torch.linspace(0, 1, _PROBES, dtype=torch.float64), x)
        except Exception:
            return None
        return values if bool(torch.isfinite(values).all()) else None

    def describe(self) -> Description:
        """Return the names and numbers of the module's parameters and buffers; its code is not part of it."""
        state = {name: value.detach().cpu().to(torch.float64) for name, value in self.module.state_dict().items()}
        for name, value in state.items():
            if not bool(torch.isfinite(value).all()):
                raise StorageError(
                    f"{name!r} of the network holds values that are NaN or infinite and cannot be saved; register it "
                    "with persistent=False if the module can recompute it."
                )
        arrays = {f"module_{number}": value for number, value in enumerate(state.values())}
        values = self.fingerprint()
        if values is not None:
            arrays["module_values"] = values
        table = {
            "module": type(self.module).__name__,
            "state": list(state),
            "bayesian": list(self.names),
            "trained": list(self.trained),
            "symmetric": self.symmetric,
            "differentiation": self.differentiation,
        }
        return Description(table, arrays)
