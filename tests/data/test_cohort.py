"""However a cohort is written down, its canonical rows are the same to the last bit."""

import numpy as np
import pytest
import torch

from neuralsurv.data.cohort import Cohort, canonical_cohort, coarse

RNG = np.random.default_rng(5)
N = 30
TIME = RNG.uniform(0.1, 1, N)
ROWS = Cohort.of(
    TIME, RNG.random(N) < 0.6, TIME * RNG.choice([0, 0.3], N), np.ones(N), RNG.normal(size=(N, 2)).round(1)
)


def assert_same(one, other):
    for name in ("time", "event", "entry", "weight", "x"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)


def test_nothing_is_lost_from_distinct_rows():
    kept = canonical_cohort(ROWS)
    np.testing.assert_allclose(np.sort(kept.time), np.sort(ROWS.time), rtol=2e-11)
    assert kept.event.sum() == ROWS.event.sum()
    assert kept.weight.sum() == N


def test_order():
    assert_same(canonical_cohort(ROWS.take(torch.from_numpy(RNG.permutation(N)))), canonical_cohort(ROWS))


def test_a_weight_of_two_is_the_row_twice():
    heavy = Cohort.of(ROWS.time, ROWS.event, ROWS.entry, np.where(np.arange(N) == 3, 2.0, 1.0), ROWS.x)
    assert_same(canonical_cohort(ROWS.take(torch.tensor([*range(N), 3]))), canonical_cohort(heavy))


@pytest.mark.parametrize("cuts", [1, 3])
@pytest.mark.parametrize("row", range(6))
def test_a_row_cut_in_pieces_is_the_row(row, cuts):
    edges = np.linspace(float(ROWS.entry[row]), float(ROWS.time[row]), cuts + 2)
    whole = np.delete(np.arange(N), row)
    time, event, entry, x = (part.numpy() for part in (ROWS.time, ROWS.event, ROWS.entry, ROWS.x))
    pieces = Cohort.of(
        np.append(time[whole], edges[1:]),
        np.append(event[whole], [False] * cuts + [event[row]]),
        np.append(entry[whole], edges[:-1]),
        np.ones(N + cuts),
        np.vstack([x[whole], np.repeat(x[[row]], cuts + 1, axis=0)]),
    )
    assert_same(canonical_cohort(pieces), canonical_cohort(ROWS))


@pytest.mark.parametrize("unit", [365.25, 1 / 3, 1e-200, 7e120])
def test_unit_of_time(unit):
    last = ROWS.time.max()
    other = Cohort.of(
        ROWS.time * unit / (last * unit), ROWS.event, ROWS.entry * unit / (last * unit), ROWS.weight, ROWS.x
    )
    same = Cohort.of(ROWS.time / last, ROWS.event, ROWS.entry / last, ROWS.weight, ROWS.x)
    assert_same(canonical_cohort(other), canonical_cohort(same))


def test_pieces_with_other_covariates_weights_or_an_event_between_stay_apart():
    time, entry = np.array([0.5, 1.0]), np.array([0.0, 0.5])
    same, one, censored = np.zeros((2, 1)), np.ones(2), np.zeros(2, dtype=bool)
    assert len(canonical_cohort(Cohort.of(time, censored, entry, one, same)).time) == 1
    assert len(canonical_cohort(Cohort.of(time, censored, entry, one, np.array([[0.0], [1.0]]))).time) == 2
    assert len(canonical_cohort(Cohort.of(time, censored, entry, np.array([1.0, 2.0]), same)).time) == 2
    assert len(canonical_cohort(Cohort.of(time, np.array([True, False]), entry, one, same)).time) == 2


def test_a_short_row_keeps_its_time_at_risk():
    rows = Cohort.of(
        np.array([1.0, 1.0]), np.array([True, False]), np.array([1 - 1e-15, 0.0]), np.ones(2), np.zeros((2, 1))
    )
    kept = canonical_cohort(rows)
    assert (kept.entry < kept.time).all()


def test_a_row_whose_end_is_rounded_below_its_entry_keeps_its_time_at_risk():
    time, entry = np.array([9.25, 12.0]) / 12, np.array([9.249999999999998, 0.0]) / 12
    assert coarse(time)[0] < entry[0] < time[0]
    kept = canonical_cohort(Cohort.of(time, np.array([True, False]), entry, np.ones(2), np.zeros((2, 1))))
    assert (kept.entry < kept.time).all()


def test_coarse_keeps_eleven_digits_of_any_size():
    values = np.array([0.0, 1.0, -0.3, 1e-300, 3e300, 0.1 + 0.2])
    np.testing.assert_allclose(coarse(values), values, rtol=1.5e-11)
    assert coarse(values)[-1] == coarse(np.array([0.3]))[0]
