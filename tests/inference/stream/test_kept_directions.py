"""Posteriors against the plain solver, the variance across against the ELBO, scales against the evidence."""

import math

import pytest
import torch

from neuralsurv.data.cohort import Cohort
from neuralsurv.inference.default.settings import DefaultSettings
from neuralsurv.inference.default.structure import build_network, build_prior
from neuralsurv.inference.stream.kept_directions import Information, KeptDirections, ReducedGaussian, choose_directions
from neuralsurv.inference.stream.streamed_problem import learn_scales
from neuralsurv.model.points import build_points
from neuralsurv.model.prior import Group, GroupedPrior
from neuralsurv.model.quadrature import GaussLegendre
from neuralsurv.solvers.primal import PrimalSolver
from neuralsurv.solvers.rows import DenseRows

GENERATOR = torch.Generator().manual_seed(0)


def normal(*shape):
    return torch.randn(*shape, generator=GENERATOR, dtype=torch.float64)


UNIT = torch.linspace(0.5, 3, 12, dtype=torch.float64)
GROUPS = (Group("a", 0, 4, 0.5, 0.7), Group("b", 5, 12, 0.4, 0.8))
PRIOR = GroupedPrior(UNIT, GROUPS)
SCALES = torch.log(torch.tensor([0.7, 1.3], dtype=torch.float64))
ROWS, CURVATURE, SLOPE = normal(60, 12), normal(60).abs(), normal(60)


EVEN = torch.ones(12).double()
SHAPE = torch.cat([torch.ones(5), torch.linspace(0.1, 0.9, 7)]).double()


def partial_directions(kept=3, shape=EVEN):
    basis = torch.zeros(12, 5 + kept, dtype=torch.float64)
    basis[:5, :5] = torch.eye(5)
    basis[5:, 5:] = torch.linalg.qr(normal(7, kept))[0]
    return KeptDirections(PRIOR, basis, 5, shape)


SOME = [partial_directions(), partial_directions(shape=SHAPE)]
SHAPES = ["even", "shaped"]


def in_units(directions, rows):
    """Rows in units of the shape."""
    return rows / UNIT.sqrt() * directions.shape.sqrt()


def information_of(directions, rows, curvature, slope):
    """The information of rows, by plain products."""
    whitened = in_units(directions, rows)
    reduced = whitened @ directions.basis
    across = whitened.square().sum(1) - reduced.square().sum(1)
    return Information(reduced.T @ (curvature[:, None] * reduced), reduced.T @ slope, float(curvature @ across))


@pytest.mark.parametrize(
    "directions",
    [KeptDirections.all(PRIOR), partial_directions(7), partial_directions(7, SHAPE)],
    ids=["as they are", *SHAPES],
)
def test_with_all_directions_the_posterior_is_the_gaussian_of_the_plain_solver(directions):
    precision = PRIOR.at(SCALES).precision
    plain = PrimalSolver(DenseRows(ROWS), precision).solve(CURVATURE, SLOPE)
    information = information_of(directions, ROWS, CURVATURE, SLOPE)
    q, gaussian = directions.posterior(information, SCALES), directions.weight_posterior(information, SCALES)
    mean, variance = q.moments(in_units(directions, ROWS) @ directions.basis, torch.zeros(60, dtype=torch.float64))
    torch.testing.assert_close(mean, ROWS @ plain.mean)
    torch.testing.assert_close(variance, plain.variance(ROWS))
    torch.testing.assert_close(gaussian.mean, plain.mean)
    torch.testing.assert_close(gaussian.variance(ROWS), plain.variance(ROWS))
    assert directions.divergence(q, SCALES) == pytest.approx(plain.divergence(precision), rel=1e-10)


@pytest.mark.parametrize("directions", SOME, ids=SHAPES)
def test_with_some_directions_posterior_gaussian_and_divergence_agree(directions):
    information = information_of(directions, ROWS, CURVATURE, SLOPE)
    q, gaussian = directions.posterior(information, SCALES), directions.weight_posterior(information, SCALES)
    whitened = in_units(directions, ROWS)
    reduced = whitened @ directions.basis
    mean, variance = q.moments(reduced, whitened.square().sum(1) - reduced.square().sum(1))
    torch.testing.assert_close(ROWS @ gaussian.mean, mean)
    torch.testing.assert_close(gaussian.variance(ROWS), variance)
    assert directions.divergence(q, SCALES) == pytest.approx(gaussian.divergence(PRIOR.at(SCALES).precision), rel=1e-10)
    draws = gaussian.draw(4, torch.Generator().manual_seed(1))
    assert draws.shape == (4, 12)


@pytest.mark.parametrize("directions", SOME, ids=SHAPES)
def test_the_variance_across_is_the_best_one(directions):
    information = information_of(directions, ROWS, CURVATURE, SLOPE)
    best = directions.posterior(information, SCALES)

    def elbo(across):
        q = ReducedGaussian(best.mean, best.inverse_factor, across)
        return -0.5 * information.across * across - directions.divergence(q, SCALES)

    # Nowhere is more variance left than the prior has, relative to the shape of it.
    assert 0 < best.across < float(SCALES[1].exp() ** 2) / float(directions.shape.min())
    assert elbo(best.across) > max(elbo(0.9 * best.across), elbo(1.1 * best.across))


@pytest.mark.parametrize("directions", [KeptDirections.all(PRIOR), *SOME], ids=["all", *SHAPES])
def test_learned_scales_are_at_the_top_of_the_evidence(directions):
    information = information_of(directions, 3 * ROWS, CURVATURE, 3 * SLOPE)

    def evidence(log_scales):
        """The log evidence of a Gaussian likelihood with this information, plus the log hyper-prior."""
        q = directions.posterior(information, log_scales)
        inside = information.vector @ q.mean - q.mean @ information.matrix @ q.mean / 2
        spread = float((information.matrix * (q.inverse_factor.T @ q.inverse_factor)).sum())
        expected = float(inside) - 0.5 * spread - 0.5 * information.across * q.across
        return expected - directions.divergence(q, log_scales) + PRIOR.log_density(log_scales)

    found = learn_scales(directions, information, SCALES)
    for place in range(2):
        for step in (-0.03, 0.03):
            moved = found.clone()
            moved[place] += step
            assert evidence(moved) < evidence(found)


@pytest.fixture(scope="module")
def wide():
    """A network of more weights than are all kept, away from its draw, at a few rows."""
    n = 40
    time = torch.rand(n, generator=GENERATOR, dtype=torch.float64)
    event = torch.arange(n) % 2 == 0
    rows = Cohort(time, event, torch.zeros(n, dtype=torch.float64), torch.ones(n, dtype=torch.float64), normal(n, 6))
    settings = DefaultSettings(hidden=(48,))
    network = build_network(time[event], rows.weight[event], 6, settings, 3)
    return network, 0.3 * normal(network.size), rows, build_prior(network, settings)


def test_reduced_rows_are_the_dense_products_and_the_mode_is_kept(wide):
    network, mode, rows, prior = wide
    lead = network.linear_size
    points = build_points(rows, GaussLegendre(4), 1.0)
    jacobian = network.value_and_rows(mode, points.time, rows.x[points.row])[1]
    found = choose_directions(prior, lead, jacobian, torch.ones(len(points), dtype=torch.float64), mode, most=20)
    assert found.rank == lead + 21
    torch.testing.assert_close(found.basis.T @ found.basis, torch.eye(found.rank, dtype=torch.float64))
    reduced, remainder = found.reduce(jacobian, points, rows.x)
    dense = jacobian.dense() / prior.unit.sqrt()
    # What a weight keeps of its variance if it is the only one: 1/(1 + information).
    torch.testing.assert_close(found.shape[lead:], 1 / (1 + dense[:, lead:].square().sum(0)))
    assert torch.equal(found.shape[:lead], torch.ones(lead, dtype=torch.float64))
    whitened = dense * found.shape.sqrt()
    torch.testing.assert_close(reduced, whitened @ found.basis)
    torch.testing.assert_close(remainder, (whitened - reduced @ found.basis.T).square().sum(1), rtol=1e-6, atol=1e-9)
    back = found.basis @ found.point_mass(mode).mean * (found.shape / prior.unit).sqrt()
    torch.testing.assert_close(back, mode)
    certain = found.point_mass(mode).moments(reduced, remainder)
    torch.testing.assert_close(certain[0], jacobian.times(mode))
    assert float(certain[1].abs().max()) == 0
    # The best 20 directions leave out no more than any 20 could: the smallest eigenvalues, or a little more by pivots.
    left = float((whitened - reduced @ found.basis.T).square().sum())
    tail = whitened[:, lead:]
    smallest = torch.linalg.eigvalsh(tail.T @ tail)[:-20].sum()
    assert left <= 2 * float(smallest)
    assert math.isclose(float(remainder.sum()), left, rel_tol=1e-6)


def test_a_shape_is_a_better_bound_than_one_variance_for_all(wide):
    """The ELBO of a Gaussian likelihood: the shaped posterior lies nearer to the exact one, and below it."""
    network, mode, rows, prior = wide
    points = build_points(rows, GaussLegendre(4), 1.0)
    jacobian = network.value_and_rows(mode, points.time, rows.x[points.row])[1]
    weight = torch.full((len(points),), 20.0, dtype=torch.float64)
    log_scales = torch.zeros(len(prior.groups), dtype=torch.float64)
    lead = network.linear_size
    shaped = choose_directions(prior, lead, jacobian, weight, mode, most=20)
    basis = torch.linalg.qr(shaped.basis * shaped.shape.sqrt()[:, None])[0]
    even = KeptDirections(prior, basis, lead, torch.ones_like(prior.unit))
    dense = jacobian.dense()

    def bound(directions):
        reduced, remainder = directions.reduce(jacobian, points, rows.x)
        matrix = reduced.T @ (weight[:, None] * reduced)
        information = Information(matrix, torch.zeros(len(matrix), dtype=torch.float64), float(weight @ remainder))
        q = directions.posterior(information, log_scales)
        variance = q.moments(reduced, remainder)[1]
        return -0.5 * float(weight @ variance) - directions.divergence(q, log_scales)

    information = dense.T @ (weight[:, None] * dense) / (prior.unit[:, None] * prior.unit).sqrt()
    exact = -0.5 * float(torch.linalg.eigvalsh(information).clamp_min(0).log1p().sum())
    assert bound(even) + 10 < bound(shaped) < exact


def test_few_weights_are_all_kept():
    found = choose_directions(PRIOR, 5, DenseRows(ROWS), CURVATURE, UNIT, most=2)
    assert found.complete
    assert found.rank == 12
    assert torch.equal(found.basis, torch.eye(12, dtype=torch.float64))


def test_leading_columns_are_those_of_the_first_layer(wide):
    network, mode, rows, _ = wide
    jacobian = network.value_and_rows(mode, rows.time, rows.x)[1]
    lead, tail = jacobian.split()
    assert lead.shape == (40, network.linear_size)
    torch.testing.assert_close(torch.cat([lead, tail.dense()], 1), jacobian.dense())


def test_rows_without_layers_are_refused():
    with pytest.raises(TypeError, match="DenseRows have no layers to split; only a network of dense layers has them"):
        DenseRows(ROWS).split()
