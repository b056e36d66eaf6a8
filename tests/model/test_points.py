"""The layout of events and nodes."""

from dataclasses import replace

import pytest
import torch

from neuralsurv.data.cohort import Cohort
from neuralsurv.model.points import build_points
from neuralsurv.model.quadrature import GaussLegendre, Trapezoid

TIME = torch.tensor([0.5, 1.0, 0.75, 0.6], dtype=torch.float64)
EVENT = torch.tensor([True, False, True, False])
ENTRY = torch.tensor([0.0, 0.25, 0.0, 0.1], dtype=torch.float64)
WEIGHT = torch.tensor([1.0, 2.0, 3.0, 0.5], dtype=torch.float64)
COHORT = Cohort(TIME, EVENT, ENTRY, WEIGHT, torch.zeros(4, 1, dtype=torch.float64))
RULES = pytest.mark.parametrize("rule", [GaussLegendre(3), Trapezoid(9)], ids=["gauss-legendre", "trapezoid"])


@RULES
@pytest.mark.parametrize("rho", [0.5, 1.0])
def test_events_come_first_with_their_own_time_and_weight(rule, rho):
    points = build_points(COHORT, rule, rho)
    assert points.events == 2
    assert points.time[:2].tolist() == [0.5, 0.75]
    assert points.row[:2].tolist() == [0, 2]
    assert points.weight[:2].tolist() == [1.0, 3.0]


@RULES
@pytest.mark.parametrize("rho", [0.5, 1.0])
def test_nodes_follow_with_the_weight_of_rule_and_row(rule, rho):
    points = build_points(COHORT, rule, rho)
    nodes = rule.nodes(ENTRY, TIME, rho)
    assert len(points) == 2 + len(nodes.time)
    assert torch.equal(points.time[2:], nodes.time)
    assert torch.equal(points.row[2:], nodes.row)
    by_hand = [float(w) * float(WEIGHT[int(r)]) for w, r in zip(nodes.weight, nodes.row, strict=True)]
    assert points.weight[2:].tolist() == by_hand


def test_points_by_hand():
    points = build_points(COHORT.take(slice(2)), Trapezoid(5), rho=1.0)
    assert points.time.tolist() == [0.5, 0.0, 0.25, 0.5, 0.25, 0.5, 0.75, 1.0]
    assert points.row.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    assert points.weight.tolist() == [1.0, 0.125, 0.25, 0.125, 0.25, 0.5, 0.5, 0.25]


@RULES
@pytest.mark.parametrize("happened", [True, False])
def test_all_or_no_events(rule, happened):
    event = torch.full((4,), happened)
    points = build_points(replace(COHORT, event=event), rule, rho=1.0)
    assert points.events == 4 * happened
    nodes = rule.nodes(ENTRY, TIME, rho=1.0)
    assert len(points) == points.events + len(nodes.time)
    assert points.time.dtype == points.weight.dtype == torch.float64


@RULES
def test_weight_two_is_the_row_twice(rule):
    def total(rows: list[int], weight: list[float]) -> float:
        pick = torch.tensor(rows)
        some = replace(COHORT.take(pick), weight=torch.tensor(weight, dtype=torch.float64))
        points = build_points(some, rule, rho=1.0)
        return float((points.weight * torch.cos(points.time)).sum())

    assert total([0, 1], [2.0, 1.0]) == pytest.approx(total([0, 0, 1], [1.0, 1.0, 1.0]), rel=1e-14)
