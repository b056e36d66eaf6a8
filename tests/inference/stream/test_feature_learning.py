"""Feature learning: gradients, unbiased samples, the mode of a problem that has one, and going on."""

import math
from contextlib import contextmanager

import pytest
import torch

from inference.problems import problem_of, simulated
from inference.streamed_problems import COHORT, Kept, KilledError, pack
from neuralsurv.errors import NotFiniteError
from neuralsurv.inference.paper import mode
from neuralsurv.inference.stream import feature_learning as learning
from neuralsurv.inference.stream.feature_learning import FeatureTraining, Objective, _Adam, learn_features
from neuralsurv.inference.stream.processes import ProcessGroup
from neuralsurv.inference.stream.snapshots import SnapshotStore
from neuralsurv.model.hazard import Constant
from neuralsurv.model.network import MLP
from neuralsurv.model.quadrature import GaussLegendre, RandomLog

RULE = GaussLegendre(8)
MANY = simulated(4000, covariates=20, seed=6)
# Twice the rate of the events of these rows.
HIGH = 60.0


@pytest.fixture(scope="module")
def rows():
    packed = pack(COHORT)
    yield packed
    packed.close()


def objective(network, phi=1.7, rule=lambda number, block: RULE):
    return Objective(network, Constant(0.5), rule, torch.full((network.size,), 2.0, dtype=torch.float64), phi)


def train(rows, network, passes, *, rate=0.05, phi=1.7, checkpoint=None, report=lambda *_: None):
    """Train in two steps a pass, too few for noise."""
    start = network.initial(torch.Generator().manual_seed(0))
    training = FeatureTraining(passes, 2, rate, seed=0)
    return learn_features(
        objective(network, phi),
        rows,
        ProcessGroup(),
        start,
        len(COHORT.time),
        training,
        checkpoint or SnapshotStore(),
        report,
    )


@pytest.fixture(scope="module")
def many():
    """Enough rows for noise: 80 blocks of 50."""
    packed = pack(MANY, chunk=50)
    yield packed
    packed.close()


def train_many(many, network, passes, *, blocks=1, rate=0.05, checkpoint=None):
    start = network.initial(torch.Generator().manual_seed(0))
    training = FeatureTraining(passes, blocks, rate, seed=0)
    return learn_features(
        objective(network, HIGH), many, ProcessGroup(), start, 4000, training, checkpoint or SnapshotStore()
    )


@contextmanager
def without_noise():
    """No pass has enough batches for noise."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(learning, "_FEWEST_BATCHES", 10**9)
        yield


def test_the_gradient_of_a_batch_is_that_of_its_value():
    network = MLP(3, (4,), "tanh")
    theta = network.initial(torch.Generator().manual_seed(1))
    given = objective(network)
    sums = given.batch(COHORT, RULE, theta)
    for place in (0, 7, 20):
        ends = []
        for sign in (1, -1):
            moved = theta.clone()
            moved[place] += sign * 1e-5
            value = given.batch(COHORT, RULE, moved)
            ends.append(float(value[0] + 1.7 * value[1]))
        assert float(sums[2 + place]) == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-5, abs=1e-6)


def test_with_a_linear_g_training_ends_at_the_mode_that_the_direct_search_finds(rows):
    # With phi held where the joint mode has it, the weights of the mode are the same.
    network = MLP(3, (), "tanh")
    precision = torch.full((network.size,), 2.0, dtype=torch.float64)
    problem = problem_of(COHORT, network, rule=RULE, precision=precision)
    expected = mode.direct(problem, torch.zeros(network.size, dtype=torch.float64), tolerance=1e-10)
    found = train(rows, network, 400, phi=expected.phi)
    torch.testing.assert_close(found, expected.theta, rtol=0.05, atol=0.02)
    assert mode.objective(problem, found) == pytest.approx(expected.objective, abs=0.1)


def test_steps_lower_the_objective_and_are_reported(rows):
    values = []
    train(rows, MLP(3, (4,), "tanh"), 30, report=lambda step, total, value: values.append((step, total, value)))
    steps = FeatureTraining(30, 2, 0.05, 0).steps(rows.blocks)
    assert [value[:2] for value in values] == [(k + 1, steps) for k in range(steps)]
    assert values[-1][2] < values[0][2] - 0.1


def test_random_nodes_are_right_on_average():
    entry, time = torch.full((4000,), 0.2, dtype=torch.float64), torch.full((4000,), 0.9, dtype=torch.float64)
    nodes = RandomLog(3, 0.1, (5,)).nodes(entry, time, 1.0)
    each = (nodes.weight * nodes.time.square()).reshape(4000, 3).sum(1)
    exact = (0.9**3 - 0.2**3) / 3
    # Means of 4,000 independent rows, at the false-alarm rate of all random tests.
    from false_alarm import z_bound

    assert abs(float(each.mean()) - exact) < z_bound() * float(each.std()) / math.sqrt(4000)
    again = RandomLog(3, 0.1, (5,)).nodes(entry, time, 1.0)
    assert torch.equal(nodes.time, again.time)
    assert not torch.equal(nodes.time, RandomLog(3, 0.1, (6,)).nodes(entry, time, 1.0).time)


def test_training_that_is_killed_and_goes_on_ends_with_the_same_bits(rows):
    network = MLP(3, (4,), "tanh")
    expected = train(rows, network, 4)
    dying = Kept(dies_after=5)
    with pytest.raises(KilledError):
        train(rows, network, 4, checkpoint=dying)
    assert torch.equal(train(rows, network, 4, checkpoint=Kept(dying.snapshots[-1])), expected)


def test_noise_has_the_variance_that_the_rows_leave(many):
    """Adam's squares tell the information: it is that of the gradients of single rows, added up."""
    network, kept = MLP(20, (), "tanh"), Kept()
    given = objective(network, HIGH)
    train_many(many, network, 30, checkpoint=kept)
    found = kept.snapshots[-1]
    theta, square, step = found.tensors["theta"], found.tensors["square"], int(found.tensors["step"])
    each = [given.batch(MANY.take(torch.tensor([k])), RULE, theta)[2:] for k in range(4000)]
    information = torch.stack(each).var(0) * 4000
    drawn = torch.stack(
        [_Adam(step, theta, theta, square, 0.0).drawn(given.precision, 4000, 50, seed) for seed in range(2000)]
    )
    # 80 batches tell a variance up to a sixth of it, and 2,000 draws up to a thirtieth.
    ratio = (drawn - theta).square().mean(0) * (given.precision + information)
    assert 0.5 < float(ratio.min()) < float(ratio.max()) < 1.6
    assert 0.9 < float(ratio.mean()) < 1.1


def test_noise_keeps_a_wide_network_from_learning_the_rows_by_heart(many):
    network = MLP(20, (32,), "tanh")
    given = objective(network, HIGH)
    fresh = simulated(4000, covariates=20, seed=7)

    def loss(theta):
        event, exposure = given.batch(fresh, RULE, theta)[:2]
        return float(event + HIGH * exposure)

    noisy = train_many(many, network, 20, rate=0.02)
    with without_noise():
        plain = train_many(many, network, 20, rate=0.02)
    assert loss(noisy) < loss(plain) - 200


@pytest.mark.parametrize(("blocks", "batches"), [(11, 7), (10, 8)])
def test_with_few_batches_a_pass_there_is_no_noise(many, blocks, batches):
    network = MLP(20, (4,), "tanh")
    assert FeatureTraining(1, blocks, 0.05, 0).steps(many.blocks) == batches
    found = train_many(many, network, 3, blocks=blocks)
    with without_noise():
        plain = train_many(many, network, 3, blocks=blocks)
    assert torch.equal(found, plain) == (batches < 8)


def test_noisy_training_that_is_killed_and_goes_on_ends_with_the_same_bits(many):
    network = MLP(20, (4,), "tanh")
    expected = train_many(many, network, 2)
    with without_noise():
        assert not torch.equal(expected, train_many(many, network, 2))
    dying = Kept(dies_after=100)
    with pytest.raises(KilledError):
        train_many(many, network, 2, checkpoint=dying)
    assert torch.equal(train_many(many, network, 2, checkpoint=Kept(dying.snapshots[-1])), expected)


def test_an_objective_that_is_not_a_number_is_named(rows):
    with pytest.raises(NotFiniteError, match="the objective became nan in step 1"):
        train(rows, MLP(3, (), "tanh"), 1, phi=math.nan)
