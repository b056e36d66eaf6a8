"""How curves are chosen: the evidence of the amplitudes, what it finds, screening, and what must not matter."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from inference.problems import simulated
from neuralsurv.data.cohort import Cohort
from neuralsurv.inference.default import curve_choice, neighbourhood_choice
from neuralsurv.inference.default.curve_choice import _Evidence, choose_curves, find_amplitudes
from neuralsurv.inference.default.neighbourhood_choice import (
    choose_neighbourhoods,
    cumulative_hazard,
    every_kth,
    rank_tables,
)
from neuralsurv.model.covariate_curves import CovariateCurves, normal_scores, units


def all_ranks(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Ranks where every value has events enough to be told apart."""
    many = torch.full_like(weight, 100.0)
    return rank_tables(x, weight, many, many)


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def cohort(rows: int, covariates: int = 6, seed: int = 0, effect: float = 1.5, at: int = 0) -> Cohort:
    """The hazard jumps where one covariate passes 0.3, and no other matters."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, covariates))
    time = rng.exponential(size=rows) / np.exp(effect * (x[:, at] > 0.3))
    end = rng.exponential(2, rows)
    seen = np.minimum(time, end)
    return Cohort.of(seen / seen.max(), time <= end, np.zeros(rows), np.ones(rows), x)


def chosen(rows: Cohort, products: bool = True) -> CovariateCurves:
    curves = choose_curves(rows, products=products)
    assert curves is not None
    return curves


def shares(curves: CovariateCurves, rows: Cohort) -> Tensor:
    """The prior variance of the curve of each covariate, averaged over the rows."""
    count, kinds = curves.centres.shape[1], len(curves.which)
    every = units(normal_scores(curves.values, curves.ranks, rows.x[:, curves.which]), curves.centres)
    parts = torch.zeros(kinds, len(rows), curves.size, dtype=torch.float64)
    for block in range(2 * kinds):
        place = slice(block * count, (block + 1) * count)
        parts[block % kinds] += every[:, place] @ curves.mix[place]
    return parts.var(1, correction=0).sum(1)


def covariance(curves: CovariateCurves, x: Tensor) -> Tensor:
    """The prior covariance of the random function at rows, which does not depend on signs or turns of the columns."""
    columns = curves.columns(x)
    return columns @ columns.T


# --------------------------------------------------------------------------------------------------------- evidence

GROUPS = 3


def evidence_parts(rows: int, features: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    expected = normal(rows, seed=3).abs() + 0.1
    return normal(rows, features, seed=1), torch.arange(features) % GROUPS, normal(rows, seed=4), expected


AT = torch.tensor([-1.0, 0.3, -0.2], dtype=torch.float64)
every_shape = pytest.mark.parametrize("shape", [(30, 7), (12, 12), (9, 20)], ids=["primal", "square", "dual"])


@every_shape
def test_the_evidence_is_that_of_a_dense_gaussian(shape: tuple[int, int]) -> None:
    """log ∫ N(f; 0, C) exp(surplus·f − f·Λ·f/2) df, in the space of the rows; f is measured from its average."""
    features, which, surplus, expected = evidence_parts(*shape)
    evidence = _Evidence.of(features, which, surplus, expected)
    assert (evidence.gram is None) == (shape[1] > shape[0])
    eye = torch.eye(shape[0], dtype=torch.float64)
    centred = (eye - expected / expected.sum()) @ (features * AT.exp()[which])
    # With f = Λ^(−1/2) h.
    root = expected.sqrt()
    whitened = eye + root[:, None] * (centred @ centred.T) * root
    told = surplus / root
    wanted = told @ (eye - torch.linalg.inv(whitened)) @ told / 2 - torch.logdet(whitened) / 2
    assert evidence.at(AT)[0] == pytest.approx(float(wanted), rel=1e-10)


@every_shape
def test_the_gradient_is_that_of_finite_differences(shape: tuple[int, int]) -> None:
    evidence = _Evidence.of(*evidence_parts(*shape))
    found = evidence.at(AT)[1]
    assert float(found.abs().max()) > 0.1, "there is something to compare"
    for place, shift in enumerate(1e-5 * torch.eye(GROUPS, dtype=torch.float64)):
        difference = (evidence.at(AT + shift)[0] - evidence.at(AT - shift)[0]) / 2e-5
        assert float(found[place]) == pytest.approx(difference, rel=1e-6, abs=1e-7)


@every_shape
def test_the_dual_form_is_the_primal_one(shape: tuple[int, int]) -> None:
    given = _Evidence.of(*evidence_parts(*shape))
    primal, dual = replace(given, gram=given.roots.T @ given.roots), replace(given, gram=None)
    (value, gradient), (other, other_gradient) = primal.at(AT), dual.at(AT)
    assert value == pytest.approx(other, rel=1e-11)
    torch.testing.assert_close(gradient, other_gradient, rtol=1e-9, atol=1e-10)


def test_amplitudes_are_at_the_top_of_evidence_and_hyper_prior() -> None:
    """Two amplitudes, against a fine grid."""
    features, _, surplus, expected = evidence_parts(40, 6)
    which = torch.tensor([0, 0, 0, 1, 1, 1])
    surplus = surplus + 2 * features[:, 0]  # one group matters
    medians, spreads = torch.tensor([-1.0, -2.0]).double(), torch.tensor([0.7, 1.2]).double()
    found = find_amplitudes(features, which, surplus, expected, medians, spreads)
    evidence = _Evidence.of(features, which, surplus, expected)

    def score(place: Tensor) -> float:
        return evidence.at(place)[0] - float(((place - medians) / spreads).square().sum()) / 2

    steps = torch.linspace(-4, 2, 61, dtype=torch.float64)
    grid = torch.cartesian_prod(steps, steps)
    scores = torch.tensor([score(place) for place in grid])
    assert score(found) > float(scores.max()) - 1e-4
    torch.testing.assert_close(found, grid[int(scores.argmax())], rtol=0, atol=0.11)
    assert float(found[0]) > float(found[1]) + 1


def test_without_information_amplitudes_stay_at_their_medians() -> None:
    features, which, surplus, expected = evidence_parts(30, 7)
    medians, spreads = AT, torch.ones(GROUPS).double()
    found = find_amplitudes(features, which, 1e-9 * surplus, 1e-9 * expected, medians, spreads)
    torch.testing.assert_close(found, medians, rtol=0, atol=1e-5)


def test_amplitudes_do_not_run_away() -> None:
    """However loud the rows are, an amplitude stays within four spreads of its median."""
    features, which, surplus, expected = evidence_parts(30, 7)
    spreads = torch.full((GROUPS,), 0.1, dtype=torch.float64)
    found = find_amplitudes(features, which, 1e6 * surplus, expected, AT, spreads)
    torch.testing.assert_close(found, AT + 0.4, rtol=0, atol=1e-9)


# ------------------------------------------------------------------------------------------------------- amplitudes


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("at", [0, 4])
def test_the_covariate_that_matters_is_found_among_noise(seed: int, at: int) -> None:
    rows = cohort(500, seed=seed, at=at)
    found = shares(chosen(rows), rows)
    others = torch.cat([found[:at], found[at + 1 :]])
    assert float(found[at]) > 4 * float(others.max())
    assert float(found[at]) > 0.6


def test_without_any_effect_no_covariate_stands_out() -> None:
    rows = cohort(500, effect=0.0)
    assert float(shares(chosen(rows), rows).max()) < 0.5


# ---------------------------------------------------------------------------------------------------------- columns


@pytest.fixture
def everything_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(curve_choice, "_MOST_SHAPES", (1000, 1000))
    monkeypatch.setattr(curve_choice, "_LEAST_SHARE", 0.0)
    monkeypatch.setattr(curve_choice, "_LEFT_OUT", 0.0)
    monkeypatch.setattr(curve_choice, "_MOST_COLUMNS", 10_000)


def uneven(rows: int) -> Cohort:
    return replace(cohort(rows), weight=torch.linspace(0.2, 3, rows, dtype=torch.float64))


@pytest.mark.usefixtures("everything_kept")
def test_columns_have_mean_0_and_together_a_variance_of_1() -> None:
    rows = uneven(200)
    curves = chosen(rows)
    share, columns = rows.weight / rows.weight.sum(), curves.columns(rows.x)
    torch.testing.assert_close(share @ columns, torch.zeros(curves.size).double(), rtol=0, atol=1e-10)
    assert float((share @ columns.square()).sum()) == pytest.approx(1, abs=1e-7)


def test_what_is_left_out_is_little() -> None:
    rows = uneven(400)
    curves = chosen(rows)
    share, columns = rows.weight / rows.weight.sum(), curves.columns(rows.x)
    torch.testing.assert_close(share @ columns, torch.zeros(curves.size).double(), rtol=0, atol=1e-10)
    assert 0.9 < float((share @ columns.square()).sum()) <= 1 + 1e-9
    assert curves.size < 60


@pytest.mark.usefixtures("everything_kept")
def test_the_prior_covariance_is_that_of_the_two_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Covariates of a few values each, which are then the centres: the kernels themselves, centred, weighted by a²."""
    rows = uneven(150)
    x = torch.stack([(2 * rows.x[:, 0]).round().clamp(-3, 3), rows.x[:, 1].round().clamp(-2, 1)], 1)
    rows = replace(rows, x=x)
    amplitudes = torch.tensor([0.9, 0.2, 0.5, 1.3], dtype=torch.float64)  # rough of both, smooth of both
    start = torch.zeros(2, dtype=torch.float64)  # of the linear part and the products
    monkeypatch.setattr(curve_choice, "find_amplitudes", lambda *given: torch.cat([start, amplitudes.log()]))
    curves = chosen(rows)
    share = rows.weight / rows.weight.sum()
    scores = normal_scores(curves.values, curves.ranks, x)
    centring = torch.eye(len(rows)).double() - share
    wanted = torch.zeros(len(rows), len(rows), dtype=torch.float64)
    for block, amplitude in enumerate(amplitudes):
        apart = (scores[:, block % 2, None] - scores[:, block % 2]).abs()
        near = math.sqrt(5) * apart / 1.5
        kernel = torch.exp(-apart) if block < 2 else (1 + near + near**2 / 3) * torch.exp(-near)
        centred = centring @ kernel @ centring.T
        wanted += amplitude**2 * centred / (share @ centred.diagonal())
    torch.testing.assert_close(covariance(curves, x), wanted / amplitudes.square().sum(), rtol=0, atol=1e-6)


def test_there_are_never_more_columns_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(curve_choice, "_MOST_COLUMNS", 5)
    assert chosen(cohort(100)).size == 5


def test_the_mix_is_laid_out_as_a_file_gives_it_back() -> None:
    assert chosen(cohort(100)).mix.is_contiguous()


# --------------------------------------------------------------------------------------- what must not matter, extremes


def test_nothing_is_left_to_chance() -> None:
    rows = cohort(200)
    torch.manual_seed(1)
    one = chosen(rows)
    torch.manual_seed(2)
    other = chosen(rows)
    for name in ("which", "values", "ranks", "centres", "mix", "mean"):
        assert torch.equal(getattr(one, name), getattr(other, name)), name
    near, again = (choose_neighbourhoods(rows, count=20) for _ in range(2))
    assert torch.equal(near.mix, again.mix)
    assert torch.equal(near.centres, again.centres)


def test_the_order_of_the_rows_does_not_matter() -> None:
    rows = uneven(200)
    order = torch.randperm(200, generator=torch.Generator().manual_seed(0))
    found = covariance(chosen(rows.take(order)), rows.x)
    torch.testing.assert_close(found, covariance(chosen(rows), rows.x), rtol=0, atol=1e-7)


def test_a_weight_of_two_is_the_row_twice() -> None:
    rows = cohort(200)
    twice = rows.take(torch.cat([torch.arange(200), torch.arange(60)]))
    weighted = replace(rows, weight=torch.where(torch.arange(200) < 60, 2.0, 1.0).double())
    found = covariance(chosen(twice), rows.x)
    torch.testing.assert_close(found, covariance(chosen(weighted), rows.x), rtol=0, atol=1e-7)


def test_a_rising_transformation_changes_the_table_and_not_the_scores() -> None:
    rows = cohort(200)
    table, ranks = all_ranks(rows.x, rows.weight)
    warped, same = all_ranks(torch.exp(rows.x), rows.weight)
    torch.testing.assert_close(ranks, same)
    torch.testing.assert_close(warped, torch.exp(table))
    scores, others = normal_scores(table, ranks, rows.x), normal_scores(warped, same, torch.exp(rows.x))
    torch.testing.assert_close(scores, others)


def test_scores_of_tied_values_are_the_middle_of_their_jump() -> None:
    x = torch.tensor([[0.0], [0.0], [0.0], [5.0], [7.0], [7.0]]).double()
    weight = torch.tensor([1.0, 1.0, 2.0, 2.0, 1.0, 3.0]).double()
    values, ranks = all_ranks(x, weight)
    assert values.tolist() == [[0.0, 5.0, 7.0]]
    assert ranks.tolist() == [[0.2, 0.5, 0.8]]
    scores = normal_scores(values, ranks, x)[:, 0]
    wanted = torch.special.ndtri(torch.tensor([0.2, 0.2, 0.2, 0.5, 0.8, 0.8]).double())
    torch.testing.assert_close(scores, wanted)


def test_heavily_tied_values() -> None:
    rows = cohort(300)
    x = rows.x.clone()
    x[:, 0] = (2 * x[:, 0]).round() / 2
    x[:150, 1] = 0.0  # half of the rows at one value
    curves = chosen(replace(rows, x=x))
    columns = curves.columns(x)
    assert bool(torch.isfinite(columns).all())
    same = x[:, 0] == x[0, 0]
    only = x[same].clone()
    only[:, 1:] = x[0, 1:]
    torch.testing.assert_close(curves.columns(only), columns[:1].expand(len(only), -1), rtol=0, atol=1e-12)


def test_a_covariate_that_is_constant_in_the_rows_of_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """Amplitudes are sought from some rows; a covariate that does not vary there has the amplitude of its prior."""
    rows = cohort(300)
    x = rows.x.clone()
    monkeypatch.setattr(curve_choice, "_ROWS", 50)
    x[every_kth(300, 50), 1] = 0.25
    curves = chosen(replace(rows, x=x))
    assert curves.which.tolist() == [0, 1, 2, 3, 4, 5]
    assert bool(torch.isfinite(curves.mix).all())
    found = shares(curves, replace(rows, x=x))
    assert float(found[1]) > 0
    assert float(found[0]) > 2 * float(found[1])


def test_covariates_of_two_values_have_no_curve() -> None:
    rows = cohort(200, covariates=5)
    x = rows.x.clone()
    x[:, 1] = (x[:, 1] > 0).double()
    x[:, 2] = 1.0
    x[:, 3] = x[:, 3].sign() + (x[:, 3] > 1)  # -1, 1 and 2
    curves = chosen(replace(rows, x=x))
    assert curves.which.tolist() == [0, 3, 4]


@pytest.mark.parametrize("covariates", [0, 3])
def test_no_covariate_with_three_values(covariates: int) -> None:
    rows = cohort(50)
    x = (rows.x[:, :covariates] > 0).double()
    assert choose_curves(replace(rows, x=x), products=False) is None


def test_one_covariate() -> None:
    rows = cohort(80, covariates=1)
    curves = chosen(rows, products=False)
    assert curves.which.tolist() == [0]
    assert bool(torch.isfinite(curves.columns(rows.x)).all())


def test_two_or_three_rows() -> None:
    rows = Cohort.of([0.5, 0.7, 1.0], [True, False, True], [0] * 3, [1] * 3, [[0.0], [1.0], [2.0]])
    curves = chosen(rows, products=False)
    assert bool(torch.isfinite(curves.columns(rows.x)).all())
    two = rows.take(slice(0, 2))
    assert choose_curves(two, products=False) is None


@pytest.mark.parametrize("events", [1, 3])
def test_rows_of_the_search_that_all_end_before_the_first_event(monkeypatch: pytest.MonkeyPatch, events: int) -> None:
    """Nothing is known of amplitudes and relevances then: they are those of the middle of their priors."""
    rows = cohort(300)
    order = rows.time.argsort()
    rows = replace(rows.take(order), event=torch.arange(300) >= 300 - events)
    for name in ("_ROWS", "_CENTRES"):
        monkeypatch.setattr(neighbourhood_choice, name, 20)
    monkeypatch.setattr(curve_choice, "_ROWS", 20)
    assert float(cumulative_hazard(rows)[every_kth(300, 20)].sum()) == 0
    curves = chosen(rows)
    assert bool(torch.isfinite(curves.mix).all())
    near = choose_neighbourhoods(rows, count=20)
    torch.testing.assert_close(near.relevance, torch.full((6,), 1 / 6, dtype=torch.float64))
    assert bool(torch.isfinite(near.mix).all())


# -------------------------------------------------------------------------------------------------------- screening


def test_of_seventy_covariates_64_are_kept_the_best_among_them() -> None:
    rows = cohort(300, covariates=70, at=69)
    curves = chosen(rows, products=False)
    assert len(curves.which) == 64
    assert bool((curves.which.diff() > 0).all())
    # The score statistic of a cubic polynomial, one covariate at a time, by an explicit regression.
    values, ranks = all_ranks(rows.x, rows.weight)
    scores = normal_scores(values, ranks, rows.x)
    hazard = cumulative_hazard(rows)
    surplus = rows.event.double() - hazard
    statistics = []
    for j in range(70):
        powers = torch.stack([torch.ones(300).double(), *(scores[:, j] ** k for k in (1, 2, 3))], 1)
        # Weighted least squares of surplus / Λ: what it explains is the statistic, as surplus adds up to 0.
        root = hazard.sqrt()
        fitted = torch.linalg.lstsq(root[:, None] * powers, (surplus / root)[:, None], driver="gelsd").solution
        statistics.append(float((root * (powers @ fitted)[:, 0]).square().sum()))
    order = torch.tensor(statistics).argsort(descending=True)
    assert int(order[0]) == 69
    assert curves.which.tolist() == order[:64].sort().values.tolist()
    assert torch.equal(curves.values, values[curves.which])


def test_sixty_four_covariates_are_all_kept() -> None:
    assert chosen(cohort(100, covariates=64), products=False).which.tolist() == list(range(64))


def test_screening_with_three_values_only() -> None:
    """Of three values, a cubic polynomial has one coefficient too many."""
    rows = cohort(300, covariates=70)
    x = rows.x.sign() + (rows.x > 1)
    curves = chosen(replace(rows, x=x), products=False)
    assert len(curves.which) == 64
    assert 0 in curves.which.tolist()


# -------------------------------------------------------------------------------------------------------- every k-th


@pytest.mark.parametrize(("rows", "count"), [(10, 3), (2001, 2000), (7, 7), (5, 9), (1, 1), (4000, 1500)])
def test_every_kth_is_spread_evenly(rows: int, count: int) -> None:
    places = every_kth(rows, count)
    assert len(places) == min(rows, count)
    assert 0 <= int(places[0]) <= int(places[-1]) < rows
    gaps = places.diff()
    assert len(gaps) == 0 or (int(gaps.min()) >= 1 and int(gaps.max()) - int(gaps.min()) <= 1)


def test_late_entry_and_weights_reach_the_amplitudes() -> None:
    rows = simulated(150, covariates=3, entry=True, weight=True, seed=3)
    plain = replace(rows, entry=torch.zeros_like(rows.entry))
    assert not torch.equal(chosen(rows).mix, chosen(plain).mix)
    assert not torch.equal(chosen(rows).mix, chosen(replace(rows, weight=torch.ones_like(rows.weight))).mix)
