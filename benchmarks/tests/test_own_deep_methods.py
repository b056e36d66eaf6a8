"""DySurv, Sumo-Net and DQS: the losses by hand, the curves, and what each variant does."""

import dataclasses
import math
from functools import cache

import numpy as np
import pytest
import torch
from lifelines.utils import concordance_index
from torch import nn

from neuralsurv.errors import InputError
from neuralsurv_bench.methods import dqs, dysurv, sumonet
from neuralsurv_bench.methods.dqs import BinnedCurves, RowTensors, binned_score, train_network, with_validation
from neuralsurv_bench.methods.dysurv import HazardCurves, Recipe, hazard_loss, total_loss
from neuralsurv_bench.methods.interface import Fitted, Method, Rows, Settings, Split, Variant
from neuralsurv_bench.methods.sumonet import SumoCurves, SumoNet

METHODS = {method.name: method for module in (dqs, dysurv, sumonet) for method in module.METHODS}
EVERY = [(name, variant) for name, method in METHODS.items() for variant in method.variants]
TIMES = np.linspace(0.0, 6.0, 40)


def strong_signal(n: int, seed: int, columns: int = 5) -> Rows:
    """Return rows whose first two covariates decide much of a time whose unit is about one; a fifth is censored."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, columns))
    time = rng.weibull(1.5, n) * np.exp(-1.2 * x[:, 0] + 0.8 * x[:, 1])
    censoring = rng.uniform(0.5, 6.0, n)
    return Rows(x, np.minimum(time, censoring), time <= censoring)


def empty(columns: int = 5) -> Rows:
    return Rows(np.empty((0, columns)), np.empty(0), np.empty(0, dtype=bool))


def split(unit: float = 1.0) -> Split:
    parts = (strong_signal(80, 1), strong_signal(20, 2), strong_signal(60, 3))
    return Split(*(Rows(part.x, unit * part.time, part.event) for part in parts), tuple("abcde"))


@cache
def fitted(name: str, variant: Variant, seed: int = 0, unit: float = 1.0) -> Fitted:
    return METHODS[name].fit(split(unit), Settings(variant=variant, seed=seed))


def curves(model: Fitted, x: np.ndarray, times: np.ndarray = TIMES) -> np.ndarray:
    survival = model.survival(x, times)
    assert survival is not None
    return survival


def test_each_method_has_both_variants() -> None:
    assert set(METHODS) == {"DySurv", "Sumo-Net", "DQS"}
    for method in METHODS.values():
        assert isinstance(method, Method)
        assert method.family == "deep"
        assert set(method.variants) == {"as-published", "fair"}


@pytest.mark.parametrize(("name", "variant"), EVERY)
def test_curves_are_survival_curves(name: str, variant: Variant) -> None:
    survival = curves(fitted(name, variant), split().test.x)
    assert survival.shape == (60, len(TIMES))
    assert survival.dtype == np.float64
    assert survival.min() >= 0
    assert survival.max() <= 1
    assert (np.diff(survival, axis=1) <= 0).all()
    assert np.ptp(survival, axis=0).max() > 1e-3  # people differ
    assert fitted(name, variant).risk(split().test.x) is None


@pytest.mark.parametrize("name", METHODS)
def test_fair_curves_start_at_one_and_go_on_beyond_the_last_training_time(name: str) -> None:
    survival = curves(fitted(name, "fair"), split().test.x, np.array([0.0, 1e-9, 1.0, 1e4]))
    np.testing.assert_array_equal(survival[:, 0], 1.0)
    np.testing.assert_allclose(survival[:, 1], 1.0, atol=1e-6)
    assert np.isfinite(survival).all()


@pytest.mark.parametrize("name", METHODS)
def test_fair_learns_a_strong_signal(name: str) -> None:
    test = split().test
    expected_time = curves(fitted(name, "fair"), test.x).mean(axis=1)
    assert concordance_index(test.time, expected_time, test.event) > 0.7


@pytest.mark.parametrize("name", METHODS)
def test_fair_curve_of_a_row_does_not_depend_on_the_rows_beside_it(name: str) -> None:
    x = split().test.x
    together = curves(fitted(name, "fair"), x)
    np.testing.assert_allclose(curves(fitted(name, "fair"), x[::-1]), together[::-1], rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(curves(fitted(name, "fair"), x[7:8]), together[7:8], rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(("name", "variant"), EVERY)
def test_same_seed_same_curves(name: str, variant: Variant) -> None:
    x = split().test.x
    torch.manual_seed(99)
    again = METHODS[name].fit(split(), Settings(variant=variant))
    first = curves(fitted(name, variant), x)
    np.testing.assert_array_equal(curves(again, x), first)
    np.testing.assert_array_equal(curves(again, x), first)  # a prediction leaves nothing behind that changes the next


@pytest.mark.parametrize("name", METHODS)
def test_another_seed_gives_other_curves(name: str) -> None:
    x = split().test.x
    other = METHODS[name].fit(split(), Settings(variant="as-published", seed=1))
    assert np.abs(curves(other, x) - curves(fitted(name, "as-published"), x)).max() > 1e-3


@pytest.mark.parametrize("name", METHODS)
def test_fair_curves_do_not_depend_on_the_unit_of_time(name: str) -> None:
    x = split().test.x
    in_days = curves(fitted(name, "fair", unit=64.0), x, 64.0 * TIMES)
    np.testing.assert_allclose(in_days, curves(fitted(name, "fair"), x), atol=1e-6)


@pytest.mark.parametrize("name", METHODS)
def test_prediction_leaves_random_state_and_threads_alone(name: str) -> None:
    model, state, threads = fitted(name, "as-published"), torch.get_rng_state(), torch.get_num_threads()
    curves(model, split().test.x)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_num_threads() == threads


def test_widths_are_those_asked_for() -> None:
    wide = Settings(hidden=(7, 9))
    binned = dqs.METHODS[0].fit(split(), wide)
    assert isinstance(binned, BinnedCurves)
    assert [layer.out_features for layer in binned.network if isinstance(layer, nn.Linear)] == [7, 9, 5]
    rising = sumonet.METHODS[0].fit(split(), wide)
    assert isinstance(rising, SumoCurves)
    shapes = {name: tuple(weight.shape) for name, weight in rising.network.named_parameters()}
    assert shapes["covariates.0.layers.0.weight"] == (7, 5)
    assert shapes["covariates.1.layers.0.weight"] == (9, 7)
    assert shapes["of_time.weight"] == (4, 1)
    assert shapes["of_covariates.weight"] == (3, 9)
    assert shapes["rising.0.weight"] == (9, 7)
    assert shapes["last.weight"] == (1, 9)


# --- DQS ---


def constant_network(outputs: np.ndarray) -> nn.Sequential:
    """Return a network of two covariates whose outputs are always these."""
    layer = nn.Linear(2, len(outputs)).double()
    with torch.no_grad():
        layer.weight.zero_()
        layer.bias.copy_(torch.as_tensor(outputs))
    return nn.Sequential(layer)


def test_dqs_score_by_hand() -> None:
    probability = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)
    logits = probability.log().repeat(3, 1).requires_grad_()
    time = torch.tensor([1.5, 0.5, 3.0], dtype=torch.float64)
    event = torch.tensor([True, False, False])
    edges = torch.tensor([0.0, 1.0, 2.0, 4.0], dtype=torch.float64)
    score = binned_score(logits, time, event, edges)
    # Censored at 0.5: F is 0.1 there and 0.2 at the end of the bin. Censored in the last bin: it must happen there.
    weight = (0.2 - 0.1) / (1 - 0.1)
    expected = [
        -math.log(0.3 + 1e-6),
        -(weight * math.log(0.2 + 1e-6) + (1 - weight) * math.log(0.8 + 1e-6)),
        -math.log(0.5 + 1e-6),
    ]
    np.testing.assert_allclose(score.detach().numpy(), expected, rtol=1e-10)
    # d log p_k / d logit_j = [j = k] - p_j, and the weight of the censored row is held fixed.
    score.sum().backward()
    p = np.array([0.2, 0.3, 0.5])
    of_first = -weight * (np.eye(3)[0] - p) - (1 - weight) * (np.array([0, 0.3, 0.5]) / 0.8 - p)
    assert logits.grad is not None
    np.testing.assert_allclose(logits.grad[0], p - np.eye(3)[1], atol=1e-5)
    np.testing.assert_allclose(logits.grad[1], of_first, atol=1e-5)


def test_dqs_curve_by_hand() -> None:
    network = constant_network(np.log([0.2, 0.3, 0.5]))
    model = BinnedCurves(network, np.array([0.0, 1.0, 2.0, 4.0]), training_mode=False, seed=0)
    survival = model.survival(np.zeros((2, 2)), np.array([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0]))
    np.testing.assert_allclose(survival, np.tile([1, 0.9, 0.8, 0.65, 0.5, 0.25, 0, 0], (2, 1)), atol=1e-12)


def test_dqs_edges() -> None:
    rows = Rows(np.zeros((3, 1)), np.array([1.0, 7.0, 3.0]), np.ones(3, dtype=bool))
    np.testing.assert_allclose(dqs.bin_edges(rows, beyond=False), [0, 2, 4, 6, 8])
    np.testing.assert_allclose(dqs.bin_edges(rows, beyond=True), [0, 1.75, 3.5, 5.25, 7, 14])


def test_dqs_fair_lets_people_outlive_the_study() -> None:
    rng = np.random.default_rng(5)
    x, time = rng.standard_normal((100, 3)), rng.exponential(20.0, 100)
    train = Rows(x, np.minimum(time, 5.0), time <= 5.0)  # about four in five outlive the study
    data = Split(train, empty(3), train, ("a", "b", "c"))
    at_the_end = np.array([4.999])
    fair = curves(dqs.METHODS[0].fit(data, Settings()), x, at_the_end).mean()
    published = curves(dqs.METHODS[0].fit(data, Settings(variant="as-published")), x, at_the_end).mean()
    assert abs(fair - 1 + train.event.mean()) < 0.1
    assert published < 0.6


def test_dqs_as_published_predicts_in_training_mode() -> None:
    x, model = split().test.x, fitted("DQS", "as-published")
    together, first_half = curves(model, x), curves(model, x[:30])
    assert np.abs(together[:30] - first_half).max() > 1e-2  # batch norm and dropout see other rows
    assert isinstance(model, BinnedCurves)
    in_order = BinnedCurves(model.network, model.edges, training_mode=False, seed=0)
    np.testing.assert_allclose(curves(in_order, x)[:30], curves(in_order, x[:30]), atol=1e-12)


def test_dqs_as_published_refuses_a_single_row() -> None:
    with pytest.raises(InputError, match="1 row has no variance: give at least 2 rows"):
        fitted("DQS", "as-published").survival(np.zeros((1, 5)), TIMES)


# --- Sumo-Net ---


def wild_network() -> SumoNet:
    """Return a network whose raw weights are partly negative."""
    torch.manual_seed(3)
    network = SumoNet(4, (6, 6)).double().eval()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return network


def test_sumonet_density_is_the_derivative_of_f() -> None:
    network, step = wild_network(), 1e-6
    x = torch.randn(8, 4, dtype=torch.float64)
    time = torch.linspace(0.05, 0.95, 8, dtype=torch.float64)
    event = torch.tensor([True, False] * 4)
    with torch.no_grad():
        features = network.covariates(x)
        ahead, behind = (torch.sigmoid(network(features, time + shift)) for shift in (step, -step))
        distribution = torch.sigmoid(network(features, time))
    density = (ahead - behind) / (2 * step)
    assert density.min() > 1e-3
    expected = torch.where(event, -torch.log(density + 1e-6), -torch.log(1 - distribution))
    loss = network.negative_log_likelihood(x, time, event)
    np.testing.assert_allclose(loss.detach(), expected, rtol=1e-6)
    with torch.no_grad():  # the rows to stop by are judged without gradients of weights
        np.testing.assert_allclose(network.negative_log_likelihood(x, time, event), loss.detach(), rtol=1e-12)


def test_sumonet_loss_has_the_gradient_of_its_weights() -> None:
    network = wild_network()
    x, time = torch.randn(5, 4, dtype=torch.float64), torch.rand(5, dtype=torch.float64)
    event = torch.tensor([True, True, True, False, False])
    weight = network.of_time.weight
    network.negative_log_likelihood(x, time, event).sum().backward()
    assert weight.grad is not None
    entry = int(torch.argmax(weight.detach()))
    values = []
    for shift in (1e-6, -1e-6):
        with torch.no_grad():
            weight[entry, 0] += shift
            values.append(float(network.negative_log_likelihood(x, time, event).sum()))
            weight[entry, 0] -= shift
    assert (values[0] - values[1]) / 2e-6 == pytest.approx(float(weight.grad[entry, 0]), rel=1e-5)


def test_sumonet_never_falls_in_time() -> None:
    network = wild_network()
    assert any((weight < 0).any() for name, weight in network.named_parameters() if name.startswith("rising"))
    x = torch.randn(20, 4, dtype=torch.float64)
    with torch.no_grad():
        height = network(network.covariates(x)[:, None, :], torch.linspace(0, 3, 50, dtype=torch.float64))
    assert height.shape == (20, 50)
    assert (height.diff(dim=1) >= -1e-12).all()
    assert (height[:, -1] > height[:, 0]).any()


def test_sumonet_fair_divides_by_survival_at_zero() -> None:
    network, x = wild_network(), np.random.default_rng(0).standard_normal((6, 4))
    raw = SumoCurves(network, 2.0, given_positive=False, shuffle_seed=None)
    fair = dataclasses.replace(raw, given_positive=True)
    times = np.array([0.0, 0.5, 1.5])
    assert (raw.survival(x, times)[:, 0] < 0.999).all()
    np.testing.assert_allclose(fair.survival(x, times), raw.survival(x, times) / raw.survival(x, times)[:, :1])
    # Time is scaled: 1.5 of 2 is 0.75 for the network.
    with torch.no_grad():
        height = network(network.covariates(torch.as_tensor(x)), torch.tensor(0.75, dtype=torch.float64))
    np.testing.assert_allclose(raw.survival(x, times)[:, 2], 1 - torch.sigmoid(height).numpy(), rtol=1e-10)


def test_sumonet_as_published_shuffles_the_rows() -> None:
    x, model = split().test.x, fitted("Sumo-Net", "as-published")
    assert isinstance(model, SumoCurves)
    in_order = curves(dataclasses.replace(model, shuffle_seed=None), x)
    shuffled = curves(model, x)
    order = np.random.default_rng(0).permutation(60)
    np.testing.assert_array_equal(shuffled, in_order[order])
    assert (order != np.arange(60)).mean() > 0.9


def test_sumonet_predicts_the_same_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    x, model = split().test.x, fitted("Sumo-Net", "fair")
    whole = curves(model, x)
    monkeypatch.setattr(sumonet, "POINTS_AT_ONCE", 100)
    np.testing.assert_allclose(curves(model, x), whole, rtol=1e-12)


# --- DySurv ---


def test_dysurv_likelihood_by_hand() -> None:
    hazard = torch.tensor([0.1, 0.2, 0.4], dtype=torch.float64)
    logits = torch.logit(hazard).repeat(5, 1)
    edges = torch.tensor([0.0, 1.0, 2.0, 3.0], dtype=torch.float64)
    time = torch.tensor([2.0, 2.5, 0.3, 2.5, 9.0], dtype=torch.float64)
    event = torch.tensor([True, True, False, False, True])
    # An event at an edge belongs to the interval that ends there; a censored row has survived those before its own.
    expected = [
        -math.log(0.9) - math.log(0.2),
        -math.log(0.9 * 0.8) - math.log(0.4),
        0.0,
        -math.log(0.9 * 0.8),
        -math.log(0.9 * 0.8) - math.log(0.4),
    ]
    np.testing.assert_allclose(hazard_loss(logits, time, event, edges), expected, atol=1e-12)
    weighted = [-math.log(0.9) - 50 * math.log(0.2), -math.log(0.9 * 0.8) - 50 * math.log(0.4)]
    np.testing.assert_allclose(hazard_loss(logits, time, event, edges, 50.0)[:2], weighted, rtol=1e-12)


def test_dysurv_divergence_is_that_of_torch() -> None:
    mean, log_variance = torch.randn(3, 4, dtype=torch.float64), torch.randn(3, 4, dtype=torch.float64)
    code = torch.distributions.Normal(mean, (log_variance / 2).exp())
    standard = torch.distributions.Normal(torch.zeros_like(mean), torch.ones_like(mean))
    expected = torch.distributions.kl_divergence(code, standard).sum(dim=1)
    np.testing.assert_allclose(dysurv.divergence(mean, log_variance), expected, rtol=1e-12)


def test_dysurv_total_loss_adds_up() -> None:
    torch.manual_seed(0)
    network, rows = dysurv.DySurv(5).double().eval(), RowTensors.of(split().train)
    edges = torch.linspace(0.0, 6.0, 11, dtype=torch.float64)

    def loss(likelihood: float, reconstruction: float, divergence: float) -> float:
        weights = Recipe(likelihood, reconstruction, divergence, event_weight=1.0, rate=1.0, patience=1)
        return float(total_loss(network, rows, edges, weights).detach())

    with torch.no_grad():
        mean, log_variance = network.encode(rows.x)
        error = ((network.decoder(mean) - rows.x) ** 2).mean()
    assert loss(0, 1, 0) == pytest.approx(float(error))
    assert loss(0, 0, 1) == pytest.approx(float(dysurv.divergence(mean, log_variance).mean().detach()))
    with torch.no_grad():
        likelihood = hazard_loss(network.hazards(mean), rows.time, rows.event, edges).mean()
    assert loss(1, 0, 0) == pytest.approx(float(likelihood))
    parts = loss(1, 0, 0) / 30 + loss(0, 1, 0) / 3 + loss(0, 0, 1) / 30
    assert float(total_loss(network, rows, edges, dysurv.ORIGINAL).detach()) == pytest.approx(parts)
    assert dysurv.PUBLISHED_BENCHMARK.event_weight == 50
    weighted = hazard_loss(network.hazards(mean), rows.time, rows.event, edges, 50.0).mean()
    published = total_loss(network, rows, edges, dysurv.PUBLISHED_BENCHMARK)
    assert float(published.detach()) == pytest.approx(float(weighted.detach()))
    # In training the code is noisy.
    network.train()
    assert loss(0, 1, 0) != loss(0, 1, 0)


def test_dysurv_curve_by_hand() -> None:
    network = dysurv.DySurv(2).double()
    hazard = np.linspace(0.05, 0.5, 10)
    network.hazards = constant_network(np.log(hazard / (1 - hazard)))
    network.hazards[0] = nn.Sequential(nn.Linear(20, 2).double(), network.hazards[0])
    edges = np.arange(11.0)
    model = HazardCurves(network, edges, interpolate=True, seed=0)
    at_edges = np.append(1.0, np.cumprod(1 - hazard))
    x = np.random.default_rng(0).standard_normal((3, 2))
    np.testing.assert_allclose(model.survival(x, edges), np.tile(at_edges, (3, 1)), rtol=1e-10)
    halfway = (at_edges[4] + at_edges[5]) / 2
    np.testing.assert_allclose(model.survival(x, np.array([4.5])), np.full((3, 1), halfway), rtol=1e-10)
    steps = dataclasses.replace(model, interpolate=False)
    np.testing.assert_allclose(steps.survival(x, np.array([0.5, 4.5, 12.0]))[0], at_edges[[0, 4, 10]], rtol=1e-10)


def test_dysurv_averages_curves_over_codes() -> None:
    x, model = split().test.x, fitted("DySurv", "fair")
    assert isinstance(model, HazardCurves)
    noise = torch.randn(100, 20, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    with torch.no_grad():
        mean, log_variance = model.network.encode(torch.as_tensor(x))
        hazard = torch.sigmoid(model.network.hazards(mean[:, None] + (log_variance[:, None] / 2).exp() * noise))
        expected = (1 - hazard).cumprod(dim=2).mean(dim=1)
    np.testing.assert_allclose(curves(model, x, model.edges[1:]), expected, rtol=1e-8)


def test_dysurv_as_published_kills_people_too_early() -> None:
    test = split().test
    alive = (test.time > 1.0).mean()
    at = np.array([1.0])
    fair, published = (curves(fitted("DySurv", variant), test.x, at).mean() for variant in ("fair", "as-published"))
    assert published < alive - 0.2
    assert abs(fair - alive) < 0.2


# --- training ---


def test_rows_to_stop_by() -> None:
    given = split()
    assert with_validation(given, 0) == (given.train, given.validation)
    whole = dataclasses.replace(given, validation=empty())
    train, validation = with_validation(whole, 0)
    assert (len(train), len(validation)) == (64, 16)
    assert validation.event.mean() == pytest.approx(given.train.event.mean(), abs=0.05)
    np.testing.assert_array_equal(np.sort((train + validation).time), np.sort(given.train.time))
    np.testing.assert_array_equal(with_validation(whole, 0)[1].time, validation.time)
    assert not np.array_equal(with_validation(whole, 1)[1].time, validation.time)
    without_events = dataclasses.replace(given.validation, event=np.zeros(20, dtype=bool))
    assert len(with_validation(dataclasses.replace(given, validation=without_events), 0)[1]) == 16


class Weight(nn.Module):
    """One number, which the losses below pull about."""

    def __init__(self) -> None:
        super().__init__()
        self.value = nn.Parameter(torch.zeros((), dtype=torch.float64))


def test_training_keeps_the_best_weights_and_stops() -> None:
    weight, seen = Weight(), []

    def loss(rows: RowTensors) -> torch.Tensor:
        if weight.training:
            return (weight.value - 1.0) ** 2
        seen.append(float(weight.value))
        return (weight.value - 0.5) ** 2

    data = split()
    best = train_network(weight, loss, data.train, data.validation, rate=0.01, patience=7)
    distance = np.abs(np.array(seen) - 0.5)
    assert best == np.argmin(distance) + 1
    assert len(seen) == best + 7
    assert float(weight.value.detach()) == seen[best - 1]
    assert not weight.training


def test_training_slows_down_on_a_plateau() -> None:
    weight, seen = Weight(), [0.0]

    def loss(rows: RowTensors) -> torch.Tensor:
        if weight.training:
            return weight.value
        seen.append(float(weight.value))
        return torch.zeros(())

    data = split()
    train_network(weight, loss, data.train, data.validation, rate=0.01, patience=90, slowest_rate=0.007)
    steps = -np.diff(seen)  # the gradient is always 1, so a step of Adam is its rate
    np.testing.assert_allclose(steps[:5], 0.01, rtol=1e-6)
    np.testing.assert_allclose(steps[13], 0.009, rtol=1e-6)
    np.testing.assert_allclose(steps[-5:], 0.007, rtol=1e-6)


def test_batches_are_of_equal_size_and_hold_every_row_once() -> None:
    weight, sizes, seen = Weight(), [], []

    def loss(rows: RowTensors) -> torch.Tensor:
        if weight.training:
            sizes.append(len(rows.time))
            seen.extend(rows.time.tolist())
        return weight.value

    train = strong_signal(257, 4)
    train_network(weight, loss, train, split().validation, rate=0.01, epochs=1)
    assert sizes == [129, 128]
    np.testing.assert_array_equal(np.sort(seen), np.sort(train.time))
    assert not np.array_equal(seen, train.time)  # shuffled
