"""A module as a network: values, Jacobian and products against finite differences, the built-in MLP and dense twins."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from modules import CASES, Case, Perceptron, TabularTransformer
from neuralsurv.data.features import Encoding
from neuralsurv.data.parts import table_layout
from neuralsurv.model.module_checks import wrap_module
from neuralsurv.model.module_network import ModuleNetwork
from neuralsurv.model.network import MLP
from neuralsurv.solvers.rows import DenseRows, JoinedRows
from neuralsurv.solvers.streamed_rows import StreamedRows

COUNT = 9


def wrapped(case: Case, **settings) -> tuple[ModuleNetwork, Tensor, Tensor]:
    X = case.inputs(COUNT)
    encoding = Encoding.fit(X, np.ones(COUNT))
    x = torch.from_numpy(encoding.transform(X))
    return wrap_module(case.make(), encoding.layout, x, **settings), torch.linspace(0, 1, COUNT).double(), x


def normal(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
class TestEveryKind:
    def test_the_jacobian_is_that_of_finite_differences(self, case):
        network, time, x = wrapped(case)
        step = 1e-6
        columns = [
            (network.value(network.own + way, time, x) - network.value(network.own - way, time, x)) / (2 * step)
            for way in step * torch.eye(network.size, dtype=torch.float64)
        ]
        assert torch.allclose(network.jacobian(network.own, time, x), torch.stack(columns, 1), atol=1e-8)

    def test_products_are_those_of_the_jacobian(self, case):
        network, time, x = wrapped(case)
        theta = network.own + 0.1 * normal(network.size)
        rows, v, u = network.jacobian(theta, time, x), normal(network.size, seed=2), normal(COUNT, seed=3)
        assert torch.allclose(network.jvp(theta, time, x, v), rows @ v, atol=1e-12)
        assert torch.allclose(network.vjp(theta, time, x, u), rows.T @ u, atol=1e-12)
        value, pullback = network.bind(time, x)(theta)
        assert torch.allclose(value, network.value(theta, time, x), atol=1e-14)
        assert torch.allclose(pullback(u), rows.T @ u, atol=1e-12)

    def test_gradients_do_not_depend_on_how_they_are_taken(self, case):
        from dataclasses import replace

        network, time, x = wrapped(case)
        assert network.differentiation == case.differentiation
        singly = replace(network, differentiation="singly").jacobian(network.own, time, x)
        backwards = replace(network, differentiation="backwards").jacobian(network.own, time, x)
        assert torch.allclose(network.jacobian(network.own, time, x), singly, atol=1e-13)
        assert torch.allclose(backwards, singly, atol=1e-13)

    def test_streamed_rows_are_the_dense_ones(self, case):
        network, time, x = wrapped(case)
        streamed, dense = StreamedRows(network, network.own, time, x), DenseRows(network.jacobian(network.own, time, x))
        check_rows(streamed, dense)

    def test_joined_rows_are_the_dense_ones(self, case):
        network, time, x = wrapped(case)
        lead, tail = normal(COUNT, 2), network.jacobian(network.own, time, x)
        joined = JoinedRows(DenseRows(lead), StreamedRows(network, network.own, time, x))
        check_rows(joined, DenseRows(torch.cat([lead, tail], 1)))

    def test_the_users_module_is_left_alone(self, case):
        module = case.make().train()
        before = {name: value.clone() for name, value in module.state_dict().items()}
        X = case.inputs(COUNT)
        encoding = Encoding.fit(X, np.ones(COUNT))
        network = wrap_module(module, encoding.layout, torch.from_numpy(encoding.transform(X)))
        network.with_weights(network.own + 1)
        assert module.training
        assert all(p.dtype == torch.float32 for p in module.parameters())
        assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())


def check_rows(rows, dense) -> None:
    scale, v, u = 0.5 + normal(rows.shape[1], seed=5).abs(), normal(rows.shape[1], seed=6), normal(COUNT, seed=7)
    assert rows.shape == dense.shape
    assert torch.allclose(rows.dense(), dense.dense(), atol=1e-13)
    assert torch.allclose(rows.times(v), dense.times(v), atol=1e-11)
    assert torch.allclose(rows.transposed_times(u), dense.transposed_times(u), atol=1e-11)
    assert torch.allclose(rows.squared_norms(scale), dense.squared_norms(scale), atol=1e-11)
    for some in (torch.tensor([4]), slice(2, 6)):
        assert torch.allclose(rows.take(some).dense(), dense.take(some).dense(), atol=1e-13)
        expected = dense.gram(dense.take(some), scale)
        assert torch.allclose(rows.gram(rows.take(some), scale), expected, atol=1e-11)


class TestThePerceptron:
    """The built-in MLP, written as a module, is the built-in MLP."""

    def pair(self) -> tuple[MLP, ModuleNetwork, Tensor, Tensor]:
        torch.manual_seed(1)
        x = normal(COUNT, 3)
        module = wrap_module(Perceptron(3, (5, 4)), table_layout(3), x)
        return MLP(3, (5, 4), "tanh"), module, torch.linspace(0, 1, COUNT).double(), x

    def test_values_and_rows_agree(self):
        built_in, module, time, x = self.pair()
        assert built_in.size == module.size
        theta = normal(module.size)
        assert torch.allclose(built_in.value(theta, time, x), module.value(theta, time, x), atol=1e-13)
        assert torch.allclose(built_in.jacobian(theta, time, x), module.jacobian(theta, time, x), atol=1e-13)

    def test_it_is_seen_to_be_symmetric(self):
        assert self.pair()[1].symmetric

    def test_the_prior_precision_is_the_fan_in(self):
        built_in, module, _, _ = self.pair()
        expected = torch.empty(module.size, dtype=torch.float64)
        for weight, bias in built_in.layers(expected):
            weight.fill_(weight.shape[1] + 1)
            bias.fill_(weight.shape[1] + 1)
        assert torch.equal(module.unit_precision, expected)


class Shifted(nn.Module):
    def __init__(self, inner: nn.Module, shift: float) -> None:
        super().__init__()
        self.inner, self.shift = inner, shift

    def forward(self, t: Tensor, x: Tensor) -> Tensor:
        return self.inner(t, x) + self.shift


@pytest.mark.parametrize(
    ("bayesian", "shift", "symmetric"),
    [
        ("all", 0.0, True),
        ("all", 0.1, False),
        ("inner.layers.2", 0.0, True),
        ("inner.layers.0", 0.0, False),
        (["inner.layers.0", "inner.layers.2.weight"], 0.0, False),
    ],
)
def test_symmetry_needs_a_last_layer_that_is_all_bayesian_and_nothing_after_it(bayesian, shift, symmetric):
    network = wrap_module(Shifted(Perceptron(3, (4,)), shift), table_layout(3), normal(COUNT, 3), bayesian=bayesian)
    assert network.symmetric is symmetric


def test_only_the_named_weights_make_up_theta_and_the_others_are_held():
    case = CASES[1]
    network, time, x = wrapped(case, bayesian=["head", "norm.weight"])
    assert network.names == ("head.weight", "head.bias", "norm.weight")
    assert network.size == 4 + 1 + 4
    whole = network.over(network.trained)
    own = dict(zip(whole.names, torch.split(whole.own, [s.numel() for s in whole.shapes]), strict=True))
    assert torch.equal(network.own, torch.cat([own[name] for name in network.names]))
    assert torch.allclose(network.value(network.own, time, x), whole.value(whole.own, time, x), atol=1e-14)


def test_a_prefix_stops_at_a_dot():
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head, self.header = nn.Linear(3, 1), nn.Linear(3, 1)

        def forward(self, t: Tensor, x: Tensor) -> Tensor:
            return self.head(x) + self.header(x)

    assert wrap_module(Two(), table_layout(3), normal(4, 3), bayesian="head").names == ("head.weight", "head.bias")


def test_frozen_weights_are_not_bayesian_and_tied_ones_count_once():
    network = wrapped(CASES[4])[0]
    assert network.names == ("head.weight", "head.bias")

    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 1)
            self.b.weight = self.a.weight

        def forward(self, t: Tensor, x: Tensor) -> Tensor:
            return self.c(self.b(torch.tanh(self.a(x))))

    tied = wrap_module(Tied(), table_layout(3), normal(COUNT, 3))
    assert tied.size == 9 + 3 + 3 + 4
    time, x, step = torch.zeros(COUNT).double(), normal(COUNT, 3), 1e-6
    way = normal(tied.size, seed=8)
    slope = (tied.value(tied.own + step * way, time, x) - tied.value(tied.own - step * way, time, x)) / (2 * step)
    assert torch.allclose(tied.jacobian(tied.own, time, x) @ way, slope, atol=1e-8)


class TestBatchNormAndDropout:
    def test_dropout_is_off_and_statistics_that_were_never_set_come_from_the_rows(self):
        case = CASES[0]
        X = case.inputs(200)
        encoding = Encoding.fit(X, np.ones(200))
        x = torch.from_numpy(encoding.transform(X))
        module = case.make().train()
        network = wrap_module(module, encoding.layout, x)
        norm = network.module.body[1]
        convolved = network.module.body[0](torch.from_numpy(X)).transpose(0, 1).flatten(1)
        assert torch.allclose(norm.running_mean, convolved.mean(1), atol=1e-12)
        assert torch.allclose(norm.running_var, convolved.var(1), atol=1e-12)
        assert not network.module.training
        assert int(module.body[1].num_batches_tracked) == 0

    def test_statistics_that_were_set_are_frozen(self):
        case = CASES[0]
        module = case.make()
        module(torch.zeros(8), torch.randn(8, 1, 4, 4))
        X = case.inputs(COUNT)
        encoding = Encoding.fit(X, np.ones(COUNT))
        network = wrap_module(module, encoding.layout, torch.from_numpy(encoding.transform(X)))
        assert torch.allclose(network.module.body[1].running_mean, module.body[1].running_mean.double())
        assert int(network.module.body[1].num_batches_tracked) == 1


def test_a_large_jacobian_is_not_held(monkeypatch):
    network, time, x = wrapped(CASES[1])
    monkeypatch.setattr("neuralsurv.model.module_network.MOST_NUMBERS_DENSE", network.size * COUNT - 1)
    value, rows = network.value_and_rows(network.own, time, x)
    assert isinstance(rows, StreamedRows)
    assert torch.equal(value, network.value(network.own, time, x))


def test_points_beyond_one_block_come_out_in_order(monkeypatch):
    network, time, x = wrapped(CASES[3])
    whole = network.value(network.own, time, x), network.jacobian(network.own, time, x)
    monkeypatch.setattr("neuralsurv.model.module_network._INPUT_NUMBERS", 2 * x.shape[1])
    assert torch.allclose(network.value(network.own, time, x), whole[0], atol=1e-13)
    assert torch.allclose(network.jacobian(network.own, time, x), whole[1], atol=1e-13)
    u = normal(COUNT)
    assert torch.allclose(network.vjp(network.own, time, x, u), whole[1].T @ u, atol=1e-12)


def test_the_switches_of_torch_are_as_they_were():
    before = torch.backends.mha.get_fastpath_enabled()
    torch.manual_seed(0)
    wrap_module(TabularTransformer(), table_layout(3), normal(COUNT, 3))
    assert torch.backends.mha.get_fastpath_enabled() is before
    assert torch.backends.cuda.flash_sdp_enabled()


class HomeFromMeta(TorchFunctionMode):
    """Lets results come back from the meta device, which has shapes and no numbers, as zeros."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        leaves = function is Tensor.to and args[0].device.type == "meta"
        if leaves and torch.device(args[1]) == torch.device("cpu"):
            return torch.zeros(args[0].shape, dtype=args[0].dtype)
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("way", ["together", "backwards", "singly"])
def test_everything_follows_the_device(way):
    """No graphics card is needed: tensors of the meta device cannot meet those of another."""
    case = CASES[1]
    network, time, x = wrapped(case)
    places = []

    class Spy(nn.Module):
        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, t: Tensor, x: Tensor) -> Tensor:
            places.extend([t.device.type, x.device.type, next(self.parameters()).device.type])
            return self.inner(t, x)

    module = Spy(case.make()).double().to("meta")
    names = tuple(name for name, _ in module.named_parameters())
    there = ModuleNetwork(module, network.layout, names, names, torch.device("meta"), differentiation=way)
    with HomeFromMeta():
        results = {
            "value": there.value(network.own, time, x),
            "jacobian": there.jacobian(network.own, time, x),
            "vjp": there.vjp(network.own, time, x, time),
            "jvp": there.jvp(network.own, time, x, network.own),
        }
    assert set(places) == {"meta"}
    assert {name: result.device.type for name, result in results.items()} == dict.fromkeys(results, "cpu")
