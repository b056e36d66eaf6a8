import pytest
import torch

from inference.problems import FrozenNetwork, double, intricate, problem_of, simulated
from neuralsurv.model.linearise import linearise, linearise_network
from neuralsurv.model.network import MLP

GENERATOR_SEED = 4
TIME = torch.linspace(0, 1.2, 7, dtype=torch.float64)
X = torch.randn(7, 2, generator=torch.Generator().manual_seed(GENERATOR_SEED), dtype=torch.float64)


def weights(network, seed=0):
    return torch.randn(network.size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("activation", ["relu", "tanh", "silu"])
@pytest.mark.parametrize("hidden", [(), (4,), (5, 3)])
def test_equal_to_g_where_it_was_made(activation, hidden):
    network = MLP(2, hidden, activation)
    star = weights(network)
    linearised = linearise_network(network, star, TIME, X)
    found = linearised.offset + linearised.rows.dense() @ star
    assert torch.allclose(found, network.value(star, TIME, X), rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("activation", ["relu", "tanh", "silu"])
@pytest.mark.parametrize("hidden", [(), (4,), (5, 3)])
def test_slope_is_that_of_g(activation, hidden):
    network = MLP(2, hidden, activation)
    star = weights(network)
    slope = torch.autograd.functional.jacobian(lambda theta: network.value(theta, TIME, X), star)
    assert torch.allclose(linearise_network(network, star, TIME, X).rows.dense(), slope, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("activation", ["tanh", "silu"])
def test_error_is_of_second_order(activation):
    network = MLP(2, (5, 3), activation)
    star, direction = weights(network), weights(network, seed=1)
    linearised = linearise_network(network, star, TIME, X)

    def error(step):
        theta = star + step * direction
        return (linearised.offset + linearised.rows.dense() @ theta - network.value(theta, TIME, X)).norm()

    # A tenth of the step leaves a hundredth of the error, up to the third order: 1e-3 of it at this step.
    assert float(error(1e-4) / error(1e-3)) == pytest.approx(1e-2, rel=0.02)


@pytest.mark.parametrize("seed", range(3))
def test_linear_network_is_its_own_linearisation_everywhere(seed):
    network = MLP(2, ())
    linearised = linearise_network(network, weights(network, seed), TIME, X)
    elsewhere = 10 * weights(network, seed=100 + seed)
    found = linearised.offset + linearised.rows.dense() @ elsewhere
    assert torch.allclose(found, network.value(elsewhere, TIME, X), rtol=1e-13, atol=1e-13)
    assert torch.allclose(linearised.offset, torch.zeros(7, dtype=torch.float64), atol=1e-13)


def test_points_of_a_problem_are_linearised_in_their_order():
    problem = intricate()
    star = weights(problem.network)
    found = linearise(problem, star)
    assert found.rows.dense().shape == (len(problem.points), problem.network.size)
    for point in (0, problem.points.events, len(problem.points) - 1):
        row = int(problem.points.row[point])
        one = linearise_network(problem.network, star, problem.points.time[point][None], problem.x[row][None])
        assert torch.allclose(found.offset[point], one.offset[0], rtol=1e-12)
        assert torch.allclose(found.rows.dense()[point], one.rows.dense()[0], rtol=1e-12)


def test_frozen_network_has_its_value_as_offset_and_no_slope():
    problem = problem_of(simulated(5), FrozenNetwork((0.3,)))
    found = linearise(problem, double([2.0]))
    assert bool((found.offset == 0.3).all())
    assert bool((found.rows.dense() == 0).all())
