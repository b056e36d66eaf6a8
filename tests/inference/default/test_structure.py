"""The network and the prior of the default model: what they are made of, and what decides that."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from inference.problems import changed, simulated
from neuralsurv.data.cohort import Cohort
from neuralsurv.inference.default.settings import DefaultSettings
from neuralsurv.inference.default.structure import build_network, build_prior, has_pairs, place_units
from neuralsurv.model.additive import Additive
from neuralsurv.model.time_basis import place_basis

FEW = DefaultSettings(neighbourhoods=10)


def rows_of(rows: int = 60, covariates: int = 3, **options: bool) -> Cohort:
    return simulated(rows, covariates=covariates, seed=6, **options)


@pytest.fixture(scope="module")
def whole() -> Additive:
    return place_units(rows_of(weight=True), FEW)


def test_all_parts(whole: Additive) -> None:
    rows = rows_of(weight=True)
    assert whole.inner is None
    assert len(whole.origin) == 0
    assert whole.basis == place_basis(rows.event_time, rows.event_weight, 6)
    assert whole.curves is not None
    assert whole.near is not None
    assert len(whole.near.centres) == 10
    assert whole.linear
    assert whole.varying
    assert whole.pairs
    assert whole.architecture == "3 curves and neighbourhoods of 10 rows"


def test_early_ends_at_the_first_fifth_of_the_events() -> None:
    """Of 1,000 events the 20 % quantile lies between the 200th and the 201st; a weight counts as repeated rows."""
    rows = rows_of(1000)
    rows = replace(rows, event=torch.ones(1000, dtype=torch.bool))
    settings = changed(FEW, curves=False, neighbourhoods=0)
    ordered = rows.time.sort().values
    assert float(ordered[199]) <= place_units(rows, settings).early <= float(ordered[200])
    # Censored rows do not count: with all but the latest 500 censored, the first fifth ends among those.
    late = replace(rows, event=rows.time > ordered[499])
    assert float(ordered[599]) <= place_units(late, settings).early <= float(ordered[600])
    heavy = replace(rows, weight=torch.where(rows.time <= ordered[99], 1e6, 1.0).double())
    assert place_units(heavy, settings).early < float(ordered[20])


def test_nothing_is_drawn_at_random() -> None:
    rows = rows_of()
    torch.manual_seed(1)
    one = place_units(rows, FEW).describe()
    torch.manual_seed(2)
    other = place_units(rows, FEW).describe()
    assert one.values == other.values
    assert one.arrays.keys() == other.arrays.keys()
    for name, array in one.arrays.items():
        assert torch.equal(array, other.arrays[name]), name


@pytest.mark.parametrize(
    ("change", "lost"),
    [
        ({"curves": False}, {"curves", "changes of curves"}),
        ({"neighbourhoods": 0}, {"neighbourhoods", "changes of neighbourhoods"}),
        ({"pairs": False}, {"pairs"}),
        ({"varying": False}, {"changes", "changes of curves", "changes of neighbourhoods"}),
        ({"linear": False}, {"covariates"}),
        ({"bumps": 0}, {"bumps"}),
        ({"early": False}, set()),
    ],
    ids=lambda given: str(given) if isinstance(given, dict) else "",
)
def test_every_part_can_be_left_out(whole: Additive, change: dict[str, object], lost: set[str]) -> None:
    network = place_units(rows_of(weight=True), changed(FEW, **change))
    assert set(whole.groups) - set(network.groups) == lost
    assert (network.early == 0) == (change == {"early": False})


def test_two_values_are_no_curve_and_many_covariates_no_neighbourhoods() -> None:
    rows = rows_of()
    binary = place_units(replace(rows, x=(rows.x > 0).double()), FEW)
    assert binary.curves is None
    assert binary.near is not None
    assert binary.architecture == "neighbourhoods of 10 rows"
    assert {"curves", "changes of curves"}.isdisjoint(binary.groups)
    for covariates, near in ((64, True), (65, False)):
        network = place_units(rows_of(covariates=covariates), FEW)
        assert (network.near is not None) == near
        assert network.curves is not None
    assert len(place_units(rows_of(covariates=70), FEW).curves.which) == 64


def test_without_covariates() -> None:
    network = place_units(rows_of(covariates=0), FEW)
    assert network.curves is None
    assert network.near is None
    assert list(network.groups) == ["trend", "bumps"]
    assert network.architecture == "linear"


@pytest.mark.parametrize(("covariates", "pairs"), [(0, False), (1, False), (2, True), (63, True), (64, False)])
def test_products_of_up_to_63_covariates(covariates: int, pairs: bool) -> None:
    assert has_pairs(covariates, FEW) == pairs
    assert not has_pairs(covariates, changed(FEW, pairs=False))


# ------------------------------------------------------------------------------------------------------------ prior


def test_every_weight_but_the_bias_is_in_exactly_one_group(whole: Additive) -> None:
    for network in (whole, replace(whole, early=0.0), replace(whole, curves=None), replace(whole, varying=False)):
        prior = build_prior(network, FEW)
        places = [place for group in prior.groups for place in range(group.start, group.stop)]
        assert sorted(places) == [k for k in range(network.size) if k != network.linear_size - 1]
        assert [group.name for group in prior.groups] == list(network.groups)


def test_early_effects_share_the_scale_of_the_later_ones(whole: Additive) -> None:
    groups = whole.groups
    assert whole.early > 0
    assert groups["covariates"].stop - groups["covariates"].start == 2 * 3
    assert groups["curves"].stop - groups["curves"].start == 2 * whole.curves.size
    assert groups["neighbourhoods"].stop - groups["neighbourhoods"].start == whole.near.size


def test_prior_variances_add_up_to_the_square_of_a_scale(whole: Additive) -> None:
    """At scale 1 each part is a random function of mean variance 1 over rows of standardised covariates."""
    prior = build_prior(whole, FEW)
    rows = rows_of(weight=True)
    share = rows.weight / rows.weight.sum()
    x = rows.x - share @ rows.x
    x = x / (share @ x.square()).sqrt()
    start, found = 0, {}
    features = {**whole.features(rows.x), "covariates": x}
    for term in whole.terms:
        unit = prior.unit[start : start + term.size]
        if term.feature is not None and term.feature != "pairs":
            found[term.group, term.factor] = float((share @ features[term.feature].square() / unit).sum())
        start += term.size
    names = {"covariates", "curves", "neighbourhoods"}
    assert {group for group, _ in found} == names | {f"changes of {name}" for name in names - {"covariates"}} | {
        "changes"
    }
    for (group, _), variance in found.items():
        if group in ("covariates", "changes"):
            assert variance == pytest.approx(1, rel=1e-12), group
        else:
            # Directions about which the rows tell next to nothing are left out.
            assert 0.8 < variance <= 1 + 1e-9, group
    pairs = whole.groups["pairs"]
    assert prior.unit[pairs].tolist() == [3.0] * 3
    assert float(prior.unit[whole.linear_size - 1]) == 0.25


def test_a_scale_for_every_covariate() -> None:
    rows = rows_of(covariates=2)
    settings = changed(FEW, per_covariate=True, early=False)
    prior = build_prior(place_units(rows, settings), settings)
    assert [(group.name, group.start, group.stop) for group in prior.groups[:2]] == [
        ("covariate 0", 0, 1),
        ("covariate 1", 1, 2),
    ]
    assert "covariates" not in {group.name for group in prior.groups}


def test_a_network_drawn_at_random_has_no_units_placed_by_rows() -> None:
    rows = rows_of()
    network = build_network(rows.event_time, rows.event_weight, 3, replace(FEW, hidden=(4,)), seed=1)
    assert network.inner is not None
    assert network.curves is None
    assert network.near is None
    assert network.early == 0
    other = build_network(rows.event_time, rows.event_weight, 3, replace(FEW, hidden=(4,)), seed=2)
    assert not torch.equal(network.origin, other.origin)
    assert np.isclose(network.offset, -np.log(FEW.headroom - 1))
