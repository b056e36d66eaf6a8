"""The additive network against its formula written out for one point, and its derivatives against torch.func."""

import itertools
import math
from dataclasses import fields

import pytest
import torch
from torch import Tensor

from false_alarm import z_bound
from neuralsurv.model.additive import Additive, Term, sparse_draw
from neuralsurv.model.covariate_curves import CovariateCurves
from neuralsurv.model.neighbourhoods import Neighbourhoods
from neuralsurv.model.network import MLP
from neuralsurv.model.time_basis import TimeBasis

BASIS = TimeBasis(shift=0.1, center=-1.0, spread=0.8, bumps=(-1.0, 0.2, 1.1), width=0.7)
POINTS, COVARIATES = 9, 2
PARTS = {"none": None, "linear": (), "one layer": (5,), "two layers": (4, 3)}
every_network = pytest.mark.parametrize("hidden", PARTS.values(), ids=PARTS)


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def network_of(
    hidden: tuple[int, ...] | None,
    activation: str = "tanh",
    covariates: int = COVARIATES,
    varying: bool = False,
    pairs: bool = False,
) -> Additive:
    inner = None if hidden is None else MLP(covariates, hidden, activation)
    origin = torch.zeros(0, dtype=torch.float64) if inner is None else normal(inner.size, seed=7)
    return Additive(covariates, BASIS, -2.5, inner, origin, varying=varying, pairs=pairs)


def points(covariates: int = COVARIATES) -> tuple[Tensor, Tensor]:
    return normal(POINTS, seed=1).abs(), normal(POINTS, covariates, seed=2)


def written_out(network: Additive, theta: Tensor, time: Tensor, x: Tensor) -> Tensor:
    """The formula of the module for one point, term by term."""
    d, bumps = network.covariates, len(BASIS.bumps)
    products = list(itertools.combinations(range(d), 2)) if network.pairs else []
    sizes = [d, 1, bumps, d * network.varying, len(products), 1, len(network.origin)]
    w, trend, c, v, u, bias, delta = theta.split(sizes)
    clock = (torch.log(time + BASIS.shift) - BASIS.center) / BASIS.spread
    g = network.offset + bias[0] + (w * x).sum() + trend[0] * clock
    if network.varying:
        g = g + (v * x).sum() * clock
    for weight, (one, other) in zip(u, products, strict=True):
        g = g + weight * x[one] * x[other]
    for weight, at in zip(c, BASIS.bumps, strict=True):
        g = g + weight * torch.exp(-((clock - at) ** 2) / (2 * BASIS.width**2))

    def f(weights: Tensor) -> Tensor:
        current = torch.cat([clock[None], x])
        assert network.inner is not None
        *hidden, last = network.inner.layers(weights)
        for matrix, shift in hidden:
            current = torch.tanh(matrix @ current + shift)
        return (last[0] @ current + last[1])[0]

    return g if network.inner is None else g + f(network.origin + delta) - f(network.origin)


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-12)


@every_network
@pytest.mark.parametrize("varying", [False, True])
@pytest.mark.parametrize("pairs", [False, True])
def test_value_is_the_formula(hidden, varying, pairs):
    network = network_of(hidden, varying=varying, pairs=pairs)
    theta, (time, x) = normal(network.size, seed=3), points()
    expected = torch.stack([written_out(network, theta, t, row) for t, row in zip(time, x, strict=True)])
    close(network.value(theta, time, x), expected)


@every_network
@pytest.mark.parametrize("varying", [False, True])
@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("at", ["zero", "elsewhere"])
def test_jacobian_is_that_of_autograd(hidden, at, varying, pairs):
    network = network_of(hidden, varying=varying, pairs=pairs)
    theta = torch.zeros(network.size, dtype=torch.float64) if at == "zero" else normal(network.size, seed=3)
    time, x = points()
    expected = torch.func.jacrev(lambda weights: network.value(weights, time, x))(theta)
    close(network.jacobian(theta, time, x), expected)
    value, rows = network.value_and_rows(theta, time, x)
    close(value, network.value(theta, time, x))
    close(rows.dense(), expected)
    v, u = normal(network.size, seed=4), normal(POINTS, seed=5)
    close(network.jvp(theta, time, x, v), expected @ v)
    close(network.vjp(theta, time, x, u), expected.T @ u)


@every_network
@pytest.mark.parametrize("varying", [False, True])
@pytest.mark.parametrize("pairs", [False, True])
def test_bind_gives_the_value_and_its_pullback(hidden, varying, pairs):
    network = network_of(hidden, varying=varying, pairs=pairs)
    time, x = points()
    evaluate = network.bind(time, x)
    u = normal(POINTS, seed=5)
    for seed in (3, 6):
        theta = normal(network.size, seed=seed)
        value, pullback = evaluate(theta)
        close(value, network.value(theta, time, x))
        _, vjp = torch.func.vjp(lambda weights: network.value(weights, time, x), theta)
        close(pullback(u), vjp(u)[0])


@pytest.mark.parametrize("activation", ["relu", "tanh", "silu"])
def test_every_activation(activation):
    network = network_of((5,), activation)
    theta, (time, x) = normal(network.size, seed=3), points()
    close(
        network.jacobian(theta, time, x),
        torch.func.jacrev(lambda weights: network.value(weights, time, x))(theta),
    )


@every_network
def test_all_weights_at_zero_give_the_offset(hidden):
    network = network_of(hidden)
    assert torch.equal(network.initial(torch.Generator()), torch.zeros(network.size, dtype=torch.float64))
    close(network.value(network.initial(torch.Generator()), *points()), torch.full((POINTS,), -2.5).double())
    assert not network.symmetric


def test_sizes_and_names():
    network = network_of((5,))
    # Two covariates, the clock, three bumps, the bias; then (3 inputs and a bias) times 5, and 5 with a bias.
    assert network.linear_size == 2 + 1 + 3 + 1
    assert network.size == 7 + 4 * 5 + 6
    assert network.architecture == "5 tanh"
    assert network.first_layer == (7, 5, 3)
    assert network.value_and_rows(network.initial(torch.Generator()), *points())[1].shape == (POINTS, 33)


def test_without_a_network():
    network = network_of(None)
    assert network.size == network.linear_size == 7
    assert network.architecture == "linear"
    assert network.first_layer is None
    time, x = points()
    ones = torch.ones(POINTS, 1, dtype=torch.float64)
    close(network.jacobian(normal(7, seed=3), time, x), torch.cat([x, BASIS.columns(time), ones], 1))


def test_without_covariates():
    network = network_of((3,), covariates=0)
    theta, (time, x) = normal(network.size, seed=3), points(0)
    close(
        network.jacobian(theta, time, x),
        torch.func.jacrev(lambda weights: network.value(weights, time, x))(theta),
    )


def test_the_linear_path_does_not_see_the_network_and_the_other_way_round():
    """The network's part is a difference: its weights at 0 leave the linear path alone."""
    network, plain = network_of((5,)), network_of(None)
    time, x = points()
    linear = normal(7, seed=3)
    close(network.value(torch.cat([linear, torch.zeros(26).double()]), time, x), plain.value(linear, time, x))


@pytest.mark.parametrize("last", [0.2, 1.0, 40.0])
def test_panels_are_even_on_the_clock_and_reach_the_last_time(last):
    edges, which = network_of((5,)).panels(torch.tensor([last], dtype=torch.float64))
    assert float(edges[which]) == float(edges[-1]) == last
    stops = edges[:-1]
    assert float(stops[0]) == 0
    # From one edge to the next, time plus shift grows by one and the same factor, of a few percent; the last panel may
    # be shorter.
    growth = torch.log(stops + BASIS.shift).diff()
    assert float(growth.max()) == pytest.approx(float(growth.min()), rel=1e-9)
    assert float(growth.max()) < math.log(1.1)
    assert float(torch.log(edges[-2:] + BASIS.shift).diff()) <= float(growth.max()) * (1 + 1e-6)


def test_without_the_linear_path_of_the_covariates():
    network = Additive(COVARIATES, BASIS, -2.5, MLP(COVARIATES, (3,), "tanh"), normal(16, seed=7), linear=False)
    assert "covariates" not in network.groups
    assert (network.linear_size, network.size) == (5, 21)
    theta, (time, x) = normal(21, seed=3), points()
    full = network_of((3,))
    without = torch.cat([torch.zeros(COVARIATES).double(), theta])
    close(network.value(theta, time, x), Additive(**vars_of(full, origin=network.origin)).value(without, time, x))
    close(
        network.jacobian(theta, time, x),
        torch.func.jacrev(lambda weights: network.value(weights, time, x))(theta),
    )


def vars_of(network: Additive, **changed: object) -> dict[str, object]:
    return {field.name: getattr(network, field.name) for field in fields(Additive)} | changed


@pytest.mark.parametrize("hidden", [(1,), (7,), (40,), (12, 5)])
def test_units_of_the_draw_look_at_one_input_or_two_in_turns(hidden):
    network = MLP(4, hidden, "silu")
    theta = sparse_draw(network, torch.Generator().manual_seed(3))
    assert theta.shape == (network.size,)
    assert bool(torch.isfinite(theta).all())
    weight = network.layers(theta)[0][0]
    seen = (weight != 0).sum(1)
    assert set(seen.tolist()) <= {1, 2}
    if hidden[0] >= 7:
        assert bool((weight != 0).any(0).all()), "every input is looked at"
        assert set(seen.tolist()) == {1, 2}


def test_the_draw_follows_its_generator_and_a_linear_network_is_left_alone():
    network = MLP(4, (9,), "silu")
    first, again, other = (sparse_draw(network, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    plain = MLP(4, ())
    drawn, usual = (draw(torch.Generator().manual_seed(1)) for draw in (lambda g: sparse_draw(plain, g), plain.initial))
    assert torch.equal(drawn, usual)


def test_weights_of_the_drawn_units_are_standard_normal():
    network = MLP(4, (3000,), "silu")
    weight, bias = network.layers(sparse_draw(network, torch.Generator().manual_seed(8)))[0]
    for values in (weight[weight != 0], bias):
        count = len(values)
        assert abs(float(values.mean())) * math.sqrt(count) < z_bound(4)
        assert abs(float((values**2).mean()) - 1) / math.sqrt(2 / count) < z_bound(4)


# ------------------------------------------------------------------------- curves, early effects, terms and their order


def small_curves() -> CovariateCurves:
    """Two columns of the second covariate."""
    table = torch.tensor([[-2.0, 0.0, 2.0]], dtype=torch.float64)
    ranks = torch.tensor([[0.1, 0.5, 0.9]], dtype=torch.float64)
    centres = torch.tensor([[-1.0, 1.0]], dtype=torch.float64)
    return CovariateCurves(torch.tensor([1]), table, ranks, centres, normal(4, 2, seed=11), normal(2, seed=12))


def small_neighbourhoods() -> Neighbourhoods:
    """Three columns of both covariates."""
    table, ranks = torch.tensor([[-2.0, 2.0]] * 2).double(), torch.tensor([[0.0, 1.0]] * 2).double()
    parts = normal(4, 2, seed=13), torch.tensor([0.4, 0.9]).double(), normal(4, 3, seed=14), normal(3, seed=15)
    return Neighbourhoods(table, ranks, *parts)


def placed(**changes: object) -> Additive:
    """All parts of the default model, some of them replaced."""
    nothing = torch.zeros(0, dtype=torch.float64)
    parts = {"varying": True, "pairs": True, "near": small_neighbourhoods(), "curves": small_curves(), "early": 0.2}
    return Additive(COVARIATES, BASIS, -2.5, None, nothing, **parts | changes)  # type: ignore[arg-type]


def sum_of_products(network: Additive, theta: Tensor, time: Tensor, x: Tensor) -> Tensor:
    """The formula of the module at one point: weights are taken from the front, in the order of the terms."""
    left = list(theta)

    def linear(columns: Tensor) -> Tensor:
        taken = [left.pop(0) for _ in columns]
        return sum((weight * column for weight, column in zip(taken, columns, strict=True)), torch.zeros(()).double())

    nothing = x[:0]
    curves = nothing if network.curves is None else network.curves.columns(x[None])[0]
    near = nothing if network.near is None else network.near.columns(x[None])[0]
    clock = (torch.log(time + BASIS.shift) - BASIS.center) / BASIS.spread
    since = time + 0.2 * BASIS.shift
    early = torch.log(since / (since + network.early))
    g = torch.tensor(network.offset).double()
    if network.linear:
        g = g + linear(x)
        if network.early:
            g = g + early * linear(x)
    g = g + linear(curves)
    if network.early:
        g = g + early * linear(curves)
    g = g + linear(near)
    g = g + clock * left.pop(0)
    for at in BASIS.bumps:
        g = g + left.pop(0) * torch.exp(-((clock - at) ** 2) / (2 * BASIS.width**2))
    if network.varying:
        g = g + clock * (linear(x) + linear(curves) + linear(near))
    if network.pairs:
        g = g + left.pop(0) * x[0] * x[1]
    (bias,) = left
    return g + bias


EVERY_PART = {
    "all": {},
    "no early effects": {"early": 0.0},
    "no curves": {"curves": None},
    "no neighbourhoods": {"near": None},
    "effects that do not change": {"varying": False},
    "no products": {"pairs": False},
    "no linear path": {"linear": False},
    "curves alone": {"near": None, "varying": False, "pairs": False, "linear": False, "early": 0.0},
}
every_part = pytest.mark.parametrize("changes", EVERY_PART.values(), ids=EVERY_PART)


@every_part
def test_the_default_model_is_a_sum_of_products(changes):
    network = placed(**changes)
    theta, (time, x) = normal(network.size, seed=3), points()
    expected = torch.stack([sum_of_products(network, theta, t, row) for t, row in zip(time, x, strict=True)])
    close(network.value(theta, time, x), expected)
    jacobian = torch.func.jacrev(lambda weights: network.value(weights, time, x))(theta)
    close(network.jacobian(theta, time, x), jacobian)
    value, pullback = network.bind(time, x)(theta)
    close(value, expected)
    u = normal(POINTS, seed=5)
    close(pullback(u), jacobian.T @ u)


@every_part
def test_groups_are_the_weights_of_their_terms(changes):
    network = placed(**changes)
    places = {name: list(range(place.start, place.stop)) for name, place in network.groups.items()}
    # All weights but the bias, each once.
    assert sorted(itertools.chain(*places.values())) == list(range(network.linear_size - 1))
    assert network.size == network.linear_size
    for name, place in places.items():
        assert len(place) == sum(term.size for term in network.terms if term.group == name)
    assert all(term.size > 0 for term in network.terms)
    features, factors = network.features(points()[1]), network.factors(points()[0])
    for term in network.terms:
        assert term.factor in factors
        assert term.feature is None or features[term.feature].shape == (POINTS, term.size)


def test_the_order_of_the_terms():
    assert placed().terms == (
        Term("covariates", "covariates", "always", 2),
        Term("covariates", "covariates", "early", 2),
        Term("curves", "curves", "always", 2),
        Term("curves", "curves", "early", 2),
        Term("neighbourhoods", "neighbourhoods", "always", 3),
        Term("trend", None, "trend", 1),
        Term("bumps", None, "bumps", 3),
        Term("changes", "covariates", "clock", 2),
        Term("changes of curves", "curves", "clock", 2),
        Term("changes of neighbourhoods", "neighbourhoods", "clock", 3),
        Term("pairs", "pairs", "always", 1),
    )
    assert placed().groups["curves"] == slice(4, 8)


def test_early_effects_are_negative_at_first_and_die_away():
    time = torch.tensor([0.0, 0.01, 0.2, 1.0, 10.0, 1e6], dtype=torch.float64)
    early = placed().factors(time)["early"][:, 0]
    assert bool((early < 0).all())
    assert bool((early.diff() > 0).all())
    # At the start, at the end of the early part, at the end of the training range (a tenth is left), and far beyond.
    assert float(early[0]) == pytest.approx(math.log(0.02 / 0.22), rel=1e-12)
    assert float(early[2]) == pytest.approx(math.log(0.22 / 0.42), rel=1e-12)
    assert float(early[3]) > 0.1 * float(early[0])
    assert float(early[-1]) == pytest.approx(0, abs=1e-6)


def test_without_an_early_part_there_is_no_such_function():
    network = placed(early=0.0)
    assert "early" not in network.factors(points()[0])
    assert {term.factor for term in network.terms} == {"always", "trend", "bumps", "clock"}


def test_features_of_a_row_whose_points_follow_each_other_come_once():
    network = placed()
    seen: list[int] = []

    class Counted(CovariateCurves):
        def columns(self, x: Tensor) -> Tensor:
            seen.append(len(x))
            return super().columns(x)

    counted = placed(curves=Counted(*(getattr(small_curves(), field.name) for field in fields(CovariateCurves))))
    which = torch.tensor([0, 0, 0, 3, 3, 0, 5, 5, 1])
    time, x = points()
    x[3, 0] = x[0, 0]  # rows that differ in one covariate only
    close(
        counted.columns(time, x[which]),
        torch.cat([network.columns(t[None], r[None]) for t, r in zip(time, x[which], strict=True)]),
    )
    assert seen == [5]
    assert network.columns(time[:0], x[:0]).shape == (0, network.linear_size - 1)


def test_only_the_first_columns_are_covariates():
    """Further ones are for a module of the user's own."""
    network, (time, x) = placed(), points()
    wider = torch.cat([x, normal(POINTS, 3, seed=8)], 1)
    close(network.columns(time, wider), network.columns(time, x))


def test_what_takes_the_place_of_a_network_is_told():
    assert placed().architecture == "1 curve and neighbourhoods of 4 rows"
    assert placed(near=None).architecture == "1 curve"
    assert placed(curves=None).architecture == "neighbourhoods of 4 rows"
    assert placed(curves=None, near=None).architecture == "linear"


def test_what_a_file_holds_of_the_placed_units():
    values, arrays = placed().describe()
    assert values["early"] == 0.2
    assert {name for name in arrays if name.startswith("curves_")} == {
        f"curves_{part}" for part in ("which", "values", "ranks", "centres", "mix", "mean")
    }
    assert all(array.dtype == torch.float64 for array in arrays.values())
    plain = placed(curves=None, near=None, early=0.0).describe()
    assert list(plain.arrays) == ["origin"]


def several_causes(levels: tuple[float, ...]) -> Additive:
    return Additive(
        COVARIATES, BASIS, -2.5, None, normal(0, seed=7), varying=True, pairs=True, early=0.1, levels=levels
    )


@pytest.mark.parametrize("levels", [(-3.0, -2.0), (-3.0, -2.0, -4.0)])
def test_each_cause_is_a_network_of_one_cause(levels):
    network = several_causes(levels)
    theta = normal(3, network.size, seed=3)
    time, x = points()
    for cause, level in enumerate(levels):
        alone = network.of_cause(cause)
        assert (alone.causes, alone.offset) == (1, level)
        weights = network.weights_of(cause, theta)
        assert weights.shape == (3, alone.size)
        seen = torch.cat([x, torch.full((POINTS, 1), float(cause), dtype=torch.float64)], 1)
        for own, joint in zip(weights, theta, strict=True):
            torch.testing.assert_close(alone.value(own, time, x), network.value(joint, time, seen))
            torch.testing.assert_close(network.bind(time, seen)(joint)[0], network.value(joint, time, seen))


def test_deviations_of_the_causes_leave_their_mean_alone():
    network = several_causes((-3.0, -3.0, -3.0))
    theta = normal(1, network.size, seed=3)
    each = torch.stack([network.weights_of(cause, theta) for cause in range(3)])
    assert not torch.allclose(each[0], each[1])
    shared = network.weights_of(0, torch.where(deviations(network), 0.0, theta))
    torch.testing.assert_close(each.mean(0), shared)


def deviations(network: Additive) -> Tensor:
    """Which weights belong to contrasts."""
    found = torch.zeros(network.size, dtype=torch.bool)
    for term, place in zip(network.terms, network.places, strict=True):
        found[place] = term.contrast is not None
    return found
