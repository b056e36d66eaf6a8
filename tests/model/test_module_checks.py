"""What is asked of a module: every refusal, by its sentence."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from modules import CASES, Perceptron
from neuralsurv.data.features import Encoding
from neuralsurv.data.parts import Layout, PartSlice, table_layout
from neuralsurv.errors import InputError
from neuralsurv.model.module_checks import wrap_module

ROWS = torch.randn(6, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
TABLE = table_layout(3)


class Wrapped(nn.Module):
    """A linear network whose output goes through a function."""

    def __init__(self, function) -> None:
        super().__init__()
        self.linear, self.function = nn.Linear(3, 1), function

    def forward(self, t: Tensor, x: Tensor):
        return self.function(self.linear(x))


@pytest.mark.parametrize(
    ("module", "words"),
    [
        (lambda t, x: t, r"network is a function; give a torch\.nn\.Module whose forward\(t, x\)"),
        (nn.LazyLinear(1), "lazy layers without weights; call it once on some of your rows"),
        (Perceptron(3, (2,)).requires_grad_(False), r"no weight that requires a gradient \(requires_grad\)"),
        (
            Perceptron(4, (2,)),
            r"failed on 5 rows with RuntimeError: .* t of shape \(5,\) and x of shape \(5, 3\), in float64",
        ),
        (Wrapped(lambda g: (g, g)), "returns a tuple; it must return one number for each row"),
        (Wrapped(lambda g: g.repeat(1, 2)), r"returns shape \(5, 2\) for 5 rows; .* \(5,\) or \(5, 1\)"),
        (Wrapped(lambda g: g / 0), "returns NaN or infinite values for training rows"),
        (Wrapped(lambda g: g + torch.rand(1)), "different values for the same rows, even in evaluation mode"),
        (Wrapped(lambda g: g - g.mean()), "depends on the other rows of the batch"),
        (
            nn.Sequential(nn.BatchNorm1d(3, track_running_stats=False), nn.Linear(3, 1)),
            r"the layer '0' normalises by the batch at hand \(track_running_stats=False\)",
        ),
    ],
)
def test_refusals(module, words):
    with pytest.raises(InputError, match=words):
        wrap_module(module, TABLE, ROWS)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"bayesian": "hed"}, "no weight that requires a gradient is called 'hed'; there are layers.0.weight"),
        ({"bayesian": []}, r"bayesian=\[\] must be 'all', a name of a part of the network, or a list of names"),
        ({"bayesian": 3}, "bayesian=3 must be 'all'"),
        ({"bayesian": ["layers", 1]}, "must be 'all'"),
        ({"device": "gpu"}, "device='gpu' is not known to torch; use 'cpu' or 'cuda'"),
    ],
)
def test_refused_settings(settings, words):
    with pytest.raises(InputError, match=words):
        wrap_module(Perceptron(3, (2,)), TABLE, ROWS, **settings)


def test_cuda_without_a_card(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(InputError, match="device='cuda' was asked for, but torch finds no CUDA device"):
        wrap_module(Perceptron(3, (2,)), TABLE, ROWS, device="cuda")


@pytest.mark.parametrize(
    ("layout", "words"),
    [
        (
            Layout("dict", (PartSlice("a", 0, 1), PartSlice("b", 1, 3, (2, 1)))),
            r"x \{'a': \(5, 1\), 'b': \(5, 2, 1\)\}, in float64",
        ),
        (
            Layout("tuple", (PartSlice("0", 0, 1), PartSlice("1", 1, 3))),
            r"x a tuple of shapes \(5, 1\), \(5, 2\), in float64",
        ),
    ],
)
def test_a_failure_says_what_the_network_was_given(layout, words):
    with pytest.raises(InputError, match=words):
        wrap_module(Perceptron(4, (2,)), layout, ROWS)


def test_layers_that_torch_cannot_batch_over_are_differentiated_singly():
    class Odd(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.clone()

        @staticmethod
        def backward(ctx, slope):
            # Looking at a number is what neither way of batching allows.
            return slope * (1.0 if float(slope.sum()) < 1e300 else 2.0)

    network = wrap_module(Wrapped(Odd.apply), TABLE, ROWS)
    assert network.differentiation == "singly"
    expected = torch.cat([ROWS, torch.ones(6, 1, dtype=torch.float64)], 1)
    assert torch.allclose(network.jacobian(network.own, torch.zeros(6).double(), ROWS), expected)


def test_a_single_row_is_enough_to_try_a_network():
    case = CASES[5]
    X = case.inputs(6)
    encoding = Encoding.fit(X, np.ones(6))
    x = torch.from_numpy(encoding.transform(X))
    assert wrap_module(case.make(), encoding.layout, x[:1]).size == 40
