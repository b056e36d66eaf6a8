"""How neighbourhoods are chosen: ranks, hazard of all, relevances that the data have, and the fit with them."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from sksurv.nonparametric import nelson_aalen_estimator
from torch import Tensor

from inference.problems import simulated
from neuralsurv.data.cohort import Cohort
from neuralsurv.inference.default import neighbourhood_choice
from neuralsurv.inference.default.fit import fit_default
from neuralsurv.inference.default.neighbourhood_choice import choose_neighbourhoods, cumulative_hazard, find_relevance
from neuralsurv.inference.default.settings import Ablation, DefaultSettings
from neuralsurv.model.neighbourhoods import proximity, rank_scores


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def cohort(rows: int, covariates: int = 4, seed: int = 0) -> Cohort:
    """The hazard depends on the first two covariates together (on the sign of their product), and on no other."""
    x = normal(rows, covariates, seed=seed)
    rng = np.random.default_rng(seed)
    rate = torch.exp(1.2 * torch.sign(x[:, 0] * x[:, 1]))
    time = torch.from_numpy(rng.exponential(1, rows)) / rate
    end = torch.from_numpy(rng.exponential(2, rows))
    scale = float(torch.minimum(time, end).max())
    one = torch.ones(rows, dtype=torch.float64)
    return Cohort(torch.minimum(time, end) / scale, time <= end, 0 * one, one, x)


# ---------------------------------------------------------------------------------------------------------- hazard


def test_the_hazard_of_all_rows_is_that_of_nelson_and_aalen() -> None:
    rng = np.random.default_rng(1)
    time, event = rng.integers(1, 12, 60).astype(float), rng.random(60) < 0.6
    at, steps = nelson_aalen_estimator(event, time)
    expected = np.array([steps[np.searchsorted(at, t, side="right") - 1] for t in time])
    found = cumulative_hazard(Cohort.of(time, event, np.zeros(60), np.ones(60), np.zeros((60, 0))))
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-12)


def test_late_entry_and_weights_in_the_hazard_of_all_rows() -> None:
    rows = simulated(50, entry=True, weight=True, seed=3)
    time, event, entry, weight = rows.time, rows.event, rows.entry, rows.weight
    found = cumulative_hazard(rows)
    for k in range(50):
        total = 0.0
        for t in sorted({float(t) for t in time[event]}):
            if float(entry[k]) < t <= float(time[k]):
                deaths = float(weight[event & (time == t)].sum())
                total += deaths / float(weight[(entry < t) & (time >= t)].sum())
        assert float(found[k]) == pytest.approx(total, abs=1e-12)
    # As many events are expected as there are.
    assert float(weight @ found) == pytest.approx(float(weight[event].sum()))


# ------------------------------------------------------------------------------------------------------------ ranks


def test_scores_have_mean_0_and_variance_1_and_do_not_see_outliers() -> None:
    rows = cohort(600)
    x = rows.x
    x[0, 0] = 1e6
    near = choose_neighbourhoods(rows, count=30)
    scores = rank_scores(near.values, near.ranks, x)
    assert float(scores.abs().max()) < math.sqrt(3) + 1e-9
    torch.testing.assert_close(scores.mean(0), torch.zeros(4).double(), rtol=0, atol=0.01)
    torch.testing.assert_close(scores.var(0), torch.ones(4).double(), rtol=0, atol=0.02)
    assert bool((scores[x[:, 1].argsort(), 1].diff() >= 0).all())


def test_few_values_have_the_middle_of_their_share_as_rank() -> None:
    x = torch.tensor([[0.0], [0.0], [0.0], [5.0]]).double()
    weight, many = torch.tensor([1.0, 1.0, 2.0, 4.0]).double(), torch.full((4,), 100.0).double()
    values, ranks = neighbourhood_choice.rank_tables(x, weight, many, many)
    assert values.tolist() == [[0.0, 5.0]]
    assert ranks.tolist() == [[0.25, 0.75]]


# -------------------------------------------------------------------------------------------------------- relevance


def test_the_evidence_is_the_one_that_is_written_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the start of the search, against the marginal density of a Gaussian in the space of the rows."""
    scores, centres = normal(40, 2, seed=1), normal(6, 2, seed=2)
    expected, surplus = normal(40, seed=3).abs() + 0.1, normal(40, seed=4)
    seen: list[float] = []

    def stop(loss, start, **options):
        seen.append(-loss(start)[0])
        return type("Found", (), {"x": start})

    monkeypatch.setattr(neighbourhood_choice.scipy.optimize, "minimize", stop)
    relevance = find_relevance(scores, centres, surplus, expected)
    torch.testing.assert_close(relevance, torch.full((2,), 0.5).double())
    kernel = proximity(centres, centres, relevance) + 1e-6 * torch.eye(6)
    near = proximity(scores, centres, relevance)
    centring = torch.eye(40).double() - expected / expected.sum()
    covariance = 0.3 * centring @ near @ torch.linalg.inv(kernel) @ near.T @ centring.T
    # log ∫ N(f; 0, C) exp(surplus·f − f·Λ·f/2) df, with f = Λ^(−1/2) h.
    root = expected.sqrt()
    whitened = torch.eye(40).double() + root[:, None] * covariance * root
    told = surplus / root
    inside = told @ (torch.eye(40).double() - torch.linalg.inv(whitened)) @ told
    assert seen[0] == pytest.approx(float(inside / 2 - torch.logdet(whitened) / 2), rel=1e-6)


def test_covariates_that_matter_are_told_from_those_that_do_not() -> None:
    relevance = choose_neighbourhoods(cohort(1200), count=50).relevance
    assert float(relevance[:2].min()) > 3 * float(relevance[2:].max())


def test_columns_have_mean_0_and_together_a_variance_of_1(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = torch.arange(1, 501).double()
    rows = replace(cohort(500), weight=weight)
    near = choose_neighbourhoods(rows, count=60)
    share = weight / weight.sum()
    columns = near.columns(rows.x)
    torch.testing.assert_close(share @ columns, torch.zeros(near.size).double(), rtol=0, atol=1e-10)
    # But for what was left out.
    assert 0.95 <= float((share @ columns.square()).sum()) < 1
    monkeypatch.setattr(neighbourhood_choice, "_LEFT_OUT", 0.0)
    whole = choose_neighbourhoods(rows, count=60).columns(rows.x)
    assert float((share @ whole.square()).sum()) == pytest.approx(1, abs=1e-10)


def test_with_all_rows_as_centres_the_columns_are_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbourhood_choice, "_LEAST_SHARE", 0.0)
    monkeypatch.setattr(neighbourhood_choice, "_LEFT_OUT", 0.0)
    rows = cohort(80)
    x = rows.x
    near = choose_neighbourhoods(rows, count=80)
    columns = near.columns(x)
    whole = proximity(rank_scores(near.values, near.ranks, x), rank_scores(near.values, near.ranks, x), near.relevance)
    # With the mean over the rows taken off: a direction in which only that differs may be left out.
    centred = torch.eye(80, dtype=torch.float64) - rows.weight / rows.weight.sum()
    kernel = centred @ whole @ centred.T
    gram = columns @ columns.T
    torch.testing.assert_close(gram / gram[0, 0], kernel / kernel[0, 0], rtol=0, atol=1e-8)


# -------------------------------------------------------------------------------------------------------------- fit


FEW = DefaultSettings(neighbourhoods=60, average=False)
WITHOUT_PAIRS = Ablation(pairs=False)


def test_a_fit_has_curves_and_neighbourhoods_and_no_network() -> None:
    found = fit_default(cohort(300), FEW, seed=0)
    network = found.likelihood.network
    assert network.near is not None
    assert len(network.near.centres) == 60
    assert network.curves is not None
    assert network.inner is None
    names = ["covariates", "curves", "neighbourhoods", "trend", "bumps", "changes"]
    names += ["changes of curves", "changes of neighbourhoods", "pairs"]
    assert [group.name for group in found.prior.groups] == names


@pytest.mark.parametrize(
    ("covariates", "settings"),
    [(65, FEW), (4, replace(FEW, neighbourhoods=0)), (4, replace(FEW, hidden=(2,), random_network=True))],
    ids=["many covariates", "not wanted", "a network in their place"],
)
def test_where_there_are_none(covariates, settings) -> None:
    found = fit_default(cohort(300, covariates), settings, seed=0)
    assert found.likelihood.network.near is None
    assert (found.likelihood.network.inner is None) is not settings.random_network


def test_an_effect_that_only_a_neighbourhood_shows_is_found() -> None:
    """Only the sign of a product matters; the score must see it, against a fit of the main effects alone."""
    rows = cohort(700, seed=4)
    near = fit_default(rows, replace(FEW, ablation=WITHOUT_PAIRS), seed=0)
    main = fit_default(rows, replace(FEW, neighbourhoods=0, ablation=WITHOUT_PAIRS), seed=0)
    assert near.top.score > main.top.score + 20
