"""Training of a module before it is linearised: against plain gradient descent, and that it knows when to stop."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from neuralsurv.data.cohort import Cohort
from neuralsurv.data.parts import table_layout
from neuralsurv.errors import NotFiniteError
from neuralsurv.inference.default import module_training as feature_learning
from neuralsurv.inference.default.module_training import ModuleTraining, train
from neuralsurv.inference.default.settings import DefaultSettings
from neuralsurv.inference.default.structure import build_network, build_prior, prior_spread, train_module
from neuralsurv.model.hazard import Constant
from neuralsurv.model.likelihood import AdditiveLikelihood
from neuralsurv.model.module_checks import wrap_module
from neuralsurv.model.points import build_points
from neuralsurv.model.quadrature import ShiftedLog

ROWS = 80


class Bumpy(nn.Module):
    """A network without the linear path's help: it sees the absolute value of a covariate."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.head = nn.Linear(3, 8), nn.Linear(8, 1)

    def forward(self, t: Tensor, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.hidden(torch.cat([t[:, None], x], 1))))


def cohort(effect: float, rows: int = ROWS, dtype=torch.float32, bayesian="all", **choices):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, 2))
    time = rng.exponential(np.exp(-effect * np.abs(x[:, 0]))).clip(1e-3)
    one = torch.ones(rows, dtype=torch.float64)
    given = Cohort.of(time / time.max(), rng.random(rows) < 0.8, 0 * one, one, x)
    chosen = DefaultSettings(**choices)
    torch.manual_seed(0)
    module = wrap_module(Bumpy().to(dtype), table_layout(2), given.x, bayesian=bayesian)
    network = build_network(given.event_time, given.event_weight, 2, chosen, 0, module)
    points = build_points(given, ShiftedLog(6, network.basis.shift), 1.0)
    likelihood = AdditiveLikelihood(points, given.x, network, Constant(1 / 30), 1.0)
    return likelihood, len(given.event_time) / given.exposure, module, chosen


def loss(likelihood, phi, theta, precision=None) -> float:
    """Minus the log of the joint density, from the pieces of the likelihood and nothing of the trainer."""
    events = likelihood.points.events
    g = likelihood.network.value(theta, likelihood.points.time, likelihood.point_x)
    value = -float(likelihood.event_weight @ torch.nn.functional.logsigmoid(g[:events]))
    value += phi * float(likelihood.baseline @ torch.sigmoid(g[events:]))
    return value if precision is None else value + float(precision @ theta.square()) / 2


def test_the_loss_that_is_minimised_is_minus_the_log_density_of_data_and_weights():
    likelihood, phi, module, choices = cohort(1.0, dtype=torch.float64)
    prior = build_prior(likelihood.network, choices)
    precision = prior.at(prior.medians).precision
    trainer = feature_learning._Trainer(likelihood, module, phi, precision, torch.float64)
    theta = 0.1 * torch.randn(likelihood.network.size, generator=torch.Generator().manual_seed(1)).double()
    cut = likelihood.network.linear_size
    with torch.no_grad():
        trainer.lead.copy_(theta[:cut])
        place = 0
        for parameter in trainer.parameters:
            part = theta[cut + place : cut + place + parameter.numel()]
            parameter.add_(part.reshape(parameter.shape))
            place += parameter.numel()
        everything = torch.arange(len(likelihood.points))
        assert math.isclose(float(trainer.loss(everything)), loss(likelihood, phi, theta), rel_tol=1e-10)
        both = float(trainer.loss(everything) + trainer.penalty())
    assert math.isclose(both, loss(likelihood, phi, theta, precision), rel_tol=1e-10)
    assert torch.allclose(trainer.weights() - likelihood.network.origin, theta[cut:])


def test_rows_keep_their_points_together():
    likelihood = cohort(1.0)[0]
    rows = feature_learning._RowPoints.of(likelihood)
    some = torch.tensor([7, 3])
    expected = torch.nonzero(torch.isin(likelihood.points.row, some)).squeeze(1)
    assert sorted(rows.points(some).tolist()) == expected.tolist()


def test_training_lowers_the_loss_of_rows_kept_aside_where_there_is_something_to_learn():
    likelihood, phi, module, choices = cohort(2.0, rows=300)
    training = ModuleTraining(30, 0.01)
    trained, _, epochs = train_module(likelihood, phi, module, training, choices, 0, False)
    assert epochs > 0
    assert not torch.equal(trained.network.origin, module.own)
    assert torch.equal(trained.network.origin, trained.network.inner.own)


def settings(likelihood, choices):
    prior = build_prior(likelihood.network, choices)
    return prior.at(prior.medians).precision


def test_the_weights_of_the_best_epoch_are_kept():
    likelihood, phi, module, choices = cohort(2.0, rows=200)
    precision = settings(likelihood, choices)
    common = {"seed": 0, "dtype": torch.float32}
    long = train(likelihood, module, phi, precision, ModuleTraining(12, 0.01), **common)
    assert long.epochs == int(np.argmin(long.held_out))
    again = train(likelihood, module, phi, precision, ModuleTraining(12, 0.01), **common)
    assert torch.equal(long.weights, again.weights)


def test_a_module_that_training_only_harms_stays_as_it_was(monkeypatch):
    likelihood, phi, module, choices = cohort(0.0, rows=60)
    monkeypatch.setattr(feature_learning, "_PATIENCE", 2)
    learned = train(
        likelihood, module, phi, settings(likelihood, choices), ModuleTraining(9, 1.0), seed=0, dtype=torch.float32
    )
    assert learned.epochs == 0
    assert torch.equal(learned.weights, likelihood.network.origin)
    assert len(learned.held_out) == 3


@pytest.mark.parametrize(("rows", "epochs"), [(19, 5), (60, 0)])
def test_nothing_is_learned_from_a_handful_of_rows_or_without_epochs(rows, epochs):
    likelihood, phi, module, choices = cohort(1.0, rows=rows)
    learned = train(
        likelihood,
        module,
        phi,
        settings(likelihood, choices),
        ModuleTraining(epochs, 0.01),
        seed=0,
        dtype=torch.float32,
    )
    assert (learned.epochs, learned.held_out) == (0, ())


def test_a_loss_that_runs_away_is_an_error():
    likelihood, phi, module, choices = cohort(1.0)
    with pytest.raises(NotFiniteError, match="reached a loss of nan in epoch 1; lower learning_rate, or scale"):
        train(
            likelihood, module, phi, settings(likelihood, choices), ModuleTraining(5, 1e30), seed=0, dtype=torch.float32
        )


def test_weights_that_are_not_bayesian_are_trained_too():
    likelihood, phi, module, choices = cohort(2.0, rows=300, bayesian="head")
    training = ModuleTraining(20, 0.01)
    trained = train_module(likelihood, phi, module, training, choices, 0, False)[0]
    inner = trained.network.inner
    assert inner.names == ("head.weight", "head.bias")
    assert not torch.equal(inner.module.hidden.weight, module.module.hidden.weight)
    assert len(trained.network.origin) == 9


def test_at_scale_one_the_part_of_the_module_has_a_prior_sd_of_one():
    likelihood, _, module, choices = cohort(1.0)
    spread = prior_spread(likelihood, module)
    prior = build_prior(likelihood.network, choices, spread)
    cut = likelihood.network.linear_size
    points, network = likelihood.points, likelihood.network
    rows = network.jacobian(torch.zeros(network.size).double(), points.time, likelihood.point_x)[points.events :, cut:]
    variance = (rows.square() / prior.unit[cut:]).sum(1)
    weight = points.weight[points.events :]
    # The spread is found from some of the nodes.
    assert math.isclose(float(weight @ variance / weight.sum()), 1.0, rel_tol=0.15)
