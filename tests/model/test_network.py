"""The MLP against torch.nn and torch.autograd."""

import itertools

import pytest
import torch

from neuralsurv.errors import InputError
from neuralsurv.model.network import ACTIVATIONS, MLP, Network

HIDDEN = [(), (3,), (5, 4), (4, 3, 2)]
COVARIATES = 2
POINTS = 12
every_network = pytest.mark.parametrize(
    "network",
    [MLP(COVARIATES, hidden, activation) for hidden in HIDDEN for activation in ACTIVATIONS],
    ids=lambda network: f"{network.hidden}-{network.activation}",
)


def inputs(network: MLP, seed: int = 0, points: int = POINTS):
    generator = torch.Generator().manual_seed(seed)
    theta = torch.randn(network.size, generator=generator, dtype=torch.float64) / 2
    for _, bias in network.layers(theta):
        bias.abs_().add_(0.5)  # keeps most ReLUs of the small networks alive
    time = torch.rand(points, generator=generator, dtype=torch.float64)
    x = torch.randn(points, network.covariates, generator=generator, dtype=torch.float64)
    return theta, time, x


def torch_module(network: MLP, theta: torch.Tensor) -> torch.nn.Sequential:
    """Build the same network from torch's layers; the flat vector holds weight and bias of each layer in turn."""
    activation = {"relu": torch.nn.ReLU, "tanh": torch.nn.Tanh, "silu": torch.nn.SiLU}[network.activation]
    widths = [network.covariates + 1, *network.hidden]
    layers: list[torch.nn.Module] = []
    for before, after in itertools.pairwise(widths):
        layers += [torch.nn.Linear(before, after), activation()]
    module = torch.nn.Sequential(*layers, torch.nn.Linear(widths[-1], 1)).double()
    torch.nn.utils.vector_to_parameters(theta, module.parameters())
    return module


def autograd_jacobian(network: MLP, theta, time, x) -> torch.Tensor:
    module = torch_module(network, theta)
    rows = []
    for t, xs in zip(time, x, strict=True):
        g = module(torch.cat([t[None], xs]))[0]
        gradients = torch.autograd.grad(g, list(module.parameters()))
        rows.append(torch.cat([gradient.reshape(-1) for gradient in gradients]))
    return torch.stack(rows)


@every_network
def test_value_is_that_of_torch_layers(network):
    theta, time, x = inputs(network)
    with torch.no_grad():
        expected = torch_module(network, theta)(torch.cat([time[:, None], x], dim=1)).squeeze(1)
    torch.testing.assert_close(network.value(theta, time, x), expected, rtol=1e-12, atol=1e-13)


@every_network
def test_size_counts_weights_and_biases(network):
    widths = [network.covariates + 1, *network.hidden, 1]
    assert network.size == sum((a + 1) * b for a, b in itertools.pairwise(widths))


@every_network
def test_jacobian_rows_are_gradients(network):
    theta, time, x = inputs(network, seed=1)
    expected = autograd_jacobian(network, theta, time, x)
    assert int((expected != 0).sum()) > expected.numel() / 4, "too few gradients differ from 0 to tell anything"
    torch.testing.assert_close(network.jacobian(theta, time, x), expected, rtol=1e-12, atol=1e-13)


@every_network
def test_products_are_those_of_the_jacobian(network):
    theta, time, x = inputs(network, seed=2)
    generator = torch.Generator().manual_seed(3)
    v = torch.randn(network.size, generator=generator, dtype=torch.float64)
    u = torch.randn(POINTS, generator=generator, dtype=torch.float64)
    jacobian = network.jacobian(theta, time, x)
    torch.testing.assert_close(network.jvp(theta, time, x, v), jacobian @ v, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(network.vjp(theta, time, x, u), jacobian.T @ u, rtol=1e-12, atol=1e-12)
    g, pullback = network.bind(time, x)(theta)
    torch.testing.assert_close(g, network.value(theta, time, x), rtol=1e-13, atol=1e-14)
    torch.testing.assert_close(pullback(u), jacobian.T @ u, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(pullback(2 * u), 2 * pullback(u), rtol=1e-12, atol=0)


@every_network
def test_factors_hold_the_gram_matrix(network):
    """J Jᵀ is the sum over layers of (A Aᵀ + 1) ∘ B Bᵀ, without J."""
    theta, time, x = inputs(network, seed=4)
    g, factors = network.factors(theta, time, x)
    jacobian = network.jacobian(theta, time, x)
    gram = sum((a @ a.T + 1) * (b @ b.T) for a, b in factors)
    torch.testing.assert_close(gram, jacobian @ jacobian.T, rtol=1e-11, atol=1e-12)
    assert torch.equal(g, network.value(theta, time, x))


@every_network
def test_no_points_are_no_trouble(network):
    theta, time, x = inputs(network, points=0)
    assert network.value(theta, time, x).shape == (0,)
    assert network.jacobian(theta, time, x).shape == (0, network.size)
    assert torch.equal(network.vjp(theta, time, x, time), torch.zeros(network.size, dtype=torch.float64))


@every_network
def test_flipping_the_last_layer_flips_g(network):
    assert network.symmetric
    theta, time, x = inputs(network, seed=5)
    flipped = theta.clone()
    weight, bias = network.layers(flipped)[-1]
    weight *= -1
    bias *= -1
    g = network.value(theta, time, x)
    assert float(g.abs().min()) > 0
    torch.testing.assert_close(network.value(flipped, time, x), -g, rtol=1e-13, atol=0)


def test_no_covariates_leave_time_alone():
    network = MLP(covariates=0, hidden=())
    theta = torch.tensor([2.0, 0.5], dtype=torch.float64)
    time = torch.tensor([0.0, 1.0], dtype=torch.float64)
    g = network.value(theta, time, torch.zeros(2, 0, dtype=torch.float64))
    assert g.tolist() == [0.5, 2.5]


def test_time_comes_before_the_covariates():
    network = MLP(covariates=2, hidden=())
    theta = torch.tensor([1.0, 10.0, 100.0, 0.0], dtype=torch.float64)
    x = torch.tensor([[3.0, 5.0]], dtype=torch.float64)
    assert network.value(theta, torch.ones(1, dtype=torch.float64), x).tolist() == [531.0]


def test_slope_of_relu_at_its_corner_is_zero_as_in_torch():
    network = MLP(covariates=0, hidden=(1,))
    theta = torch.tensor([1.0, 0.0, 3.0, 0.0], dtype=torch.float64)
    time, x = torch.zeros(1, dtype=torch.float64), torch.zeros(1, 0, dtype=torch.float64)
    expected = autograd_jacobian(network, theta, time, x)
    assert torch.equal(network.jacobian(theta, time, x), expected)


def test_initial_is_seeded():
    network = MLP(COVARIATES)
    first, again, other = (network.initial(torch.Generator().manual_seed(seed)) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("hidden", [(), (16, 16), (500, 500, 500)])
def test_initial_keeps_g_moderate_whatever_the_width(hidden):
    network = MLP(covariates=10, hidden=hidden)
    generator = torch.Generator().manual_seed(0)
    time = torch.rand(200, generator=generator, dtype=torch.float64)
    x = torch.randn(200, 10, generator=generator, dtype=torch.float64)
    g = torch.cat([network.value(network.initial(generator), time, x) for _ in range(20)])
    assert 0.05 < float(g.square().mean().sqrt()) < 3


def test_initial_divides_by_the_root_of_the_fan_in():
    network = MLP(covariates=3, hidden=(8,))
    noise = torch.randn(network.size, generator=torch.Generator().manual_seed(7), dtype=torch.float64)
    theta = network.initial(torch.Generator().manual_seed(7))
    first = 8 * 5  # four inputs and a bias for each of eight units; then eight inputs and a bias for one
    torch.testing.assert_close(theta[:first], noise[:first] / 5**0.5, rtol=1e-14, atol=0)
    torch.testing.assert_close(theta[first:], noise[first:] / 3, rtol=1e-14, atol=0)


def test_unknown_activation_is_refused():
    with pytest.raises(InputError, match=r"activation 'gelu' is not known; use one of relu, tanh, silu\."):
        MLP(COVARIATES, activation="gelu")


@pytest.mark.parametrize("hidden", [(0,), (16, -1), (2.5,), ("16",)])
def test_impossible_width_is_refused(hidden):
    with pytest.raises(InputError, match=r"hidden=\(.*\) must hold whole numbers of at least 1, one for each hidden"):
        MLP(COVARIATES, hidden=hidden)


@every_network
@pytest.mark.parametrize("block", [1, 5, POINTS])
def test_blocks_of_points_change_nothing(network, block, monkeypatch):
    theta, time, x = inputs(network)
    u = torch.linspace(-1, 2, POINTS, dtype=torch.float64)
    whole, pullback = network.bind(time, x)(theta)
    monkeypatch.setattr("neuralsurv.model.network._POINTS_AT_ONCE", block)
    value, blocked = network.bind(time, x)(theta)
    torch.testing.assert_close(value, whole, rtol=1e-13, atol=1e-14)
    torch.testing.assert_close(blocked(u), pullback(u), rtol=1e-12, atol=1e-13)


@every_network
@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("block", [5, POINTS])
def test_several_weight_vectors_at_once_are_each_as_if_alone(network, count, block, monkeypatch):
    _, time, x = inputs(network)
    monkeypatch.setattr("neuralsurv.model.network._POINTS_AT_ONCE", block)
    generator = torch.Generator().manual_seed(0)
    thetas = [network.initial(generator) for _ in range(count)]
    u = torch.linspace(-1, 2, POINTS, dtype=torch.float64)
    together = network.bind_together(time, x)(thetas)
    assert len(together) == count
    for theta, (value, pullback) in zip(thetas, together, strict=True):
        torch.testing.assert_close(value, network.value(theta, time, x), rtol=1e-13, atol=1e-14)
        torch.testing.assert_close(pullback(u), network.vjp(theta, time, x, u), rtol=1e-12, atol=1e-13)


def test_the_unit_precision_is_the_fan_in_of_each_layer():
    precision = MLP(3, (2,), "tanh").unit_precision
    # 2 units with 4 inputs and a bias, then one with 2 inputs and a bias.
    assert precision.tolist() == [5.0] * (2 * 5) + [3.0] * 3


@pytest.mark.parametrize(("hidden", "words"), [((), "linear"), ((4,), "4 silu"), ((16, 8), "16-8 silu")])
def test_the_architecture_in_words(hidden, words):
    assert MLP(3, hidden, "silu").architecture == words


def test_where_the_first_layer_is():
    assert MLP(3, (5, 2)).first_layer == (0, 5, 4)
    assert MLP(3, ()).first_layer == (0, 1, 4)


def test_any_network_is_bound_for_several_weights_at_once():
    """What networks without a faster way inherit agrees with the faster way."""
    network = MLP(2, (3,), "tanh")
    time, x = torch.rand(6).double(), torch.randn(6, 2).double()
    thetas = [network.initial(torch.Generator().manual_seed(seed)) for seed in (0, 1, 2)]
    plain, fast = Network.bind_together(network, time, x)(thetas), network.bind_together(time, x)(thetas)
    for (value, back), (other, other_back) in zip(plain, fast, strict=True):
        torch.testing.assert_close(value, other, rtol=1e-13, atol=1e-13)
        torch.testing.assert_close(back(time), other_back(time), rtol=1e-12, atol=1e-13)
