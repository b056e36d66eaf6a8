import pytest
import torch

from neuralsurv.model import rows as rows_module
from neuralsurv.model.function_network import FunctionNetwork
from neuralsurv.model.network import MLP

MLP_TWIN = MLP(covariates=3, hidden=(5, 4), activation="tanh")


def written_out(theta, time, x):
    """The same network for one point, in plain operations."""
    current = torch.cat([time[None], x])
    (w1, b1), (w2, b2), (w3, b3) = MLP_TWIN.layers(theta)
    return (w3 @ torch.tanh(w2 @ torch.tanh(w1 @ current + b1) + b2) + b3)[0]


NETWORK = FunctionNetwork(written_out, MLP_TWIN.size)


def normal(*shape, seed):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.fixture
def point():
    return normal(MLP_TWIN.size, seed=0), normal(9, seed=1), normal(9, 3, seed=2)


def close(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-12)


def test_everything_is_that_of_the_closed_form(point):
    theta, time, x = point
    v, u = normal(MLP_TWIN.size, seed=3), normal(9, seed=4)
    close(NETWORK.value(theta, time, x), MLP_TWIN.value(theta, time, x))
    close(NETWORK.jacobian(theta, time, x), MLP_TWIN.jacobian(theta, time, x))
    close(NETWORK.jvp(theta, time, x, v), MLP_TWIN.jvp(theta, time, x, v))
    close(NETWORK.vjp(theta, time, x, u), MLP_TWIN.vjp(theta, time, x, u))
    (value, pullback), (wanted, wanted_pullback) = NETWORK.bind(time, x)(theta), MLP_TWIN.bind(time, x)(theta)
    close(value, wanted)
    close(pullback(u), wanted_pullback(u))
    value, rows = NETWORK.value_and_rows(theta, time, x)
    close(value, wanted)
    close(rows.dense(), MLP_TWIN.jacobian(theta, time, x))


@pytest.mark.parametrize("numbers", [1, 150])
def test_blocks_change_nothing(point, numbers, monkeypatch):
    expected = NETWORK.jacobian(*point)
    monkeypatch.setattr(rows_module, "BLOCK_NUMBERS", numbers)
    close(NETWORK.jacobian(*point), expected)


def test_no_points():
    theta = normal(MLP_TWIN.size, seed=0)
    nobody, nothing = torch.zeros(0, dtype=torch.float64), torch.zeros(0, 3, dtype=torch.float64)
    assert NETWORK.value(theta, nobody, nothing).shape == (0,)
    assert NETWORK.jacobian(theta, nobody, nothing).shape == (0, MLP_TWIN.size)


def test_starts_are_seeded():
    one, again = (NETWORK.initial(torch.Generator().manual_seed(5)) for _ in range(2))
    assert torch.equal(one, again)
    assert 0.3 < float(one.std()) < 0.7
