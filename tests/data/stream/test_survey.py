"""The streamed encoding is the one that is learned in memory, and says the same where it refuses."""

import numpy as np
import pandas as pd
import pytest

from neuralsurv.data import columns
from neuralsurv.data.columns import ColumnFacts, read_column
from neuralsurv.data.features import Encoding
from neuralsurv.data.outcome import Outcome
from neuralsurv.data.stream import survey
from neuralsurv.data.stream.survey import MomentAccumulator, SurveyAccumulator, nothing_seen
from neuralsurv.errors import InputError

ROWS = 300


def cohort():
    random = np.random.default_rng(4)
    table = pd.DataFrame(
        {
            "age": 60 + 10 * random.normal(size=ROWS),
            "huge": 1e300 * random.normal(size=ROWS),
            "outlier": np.where(np.arange(ROWS) == 7, 1e9, random.normal(size=ROWS)),
            "gaps": np.where(random.uniform(size=ROWS) < 0.2, np.nan, random.normal(size=ROWS)),
            "sex": np.where(random.uniform(size=ROWS) < 0.5, "f", "m"),
            "stage": pd.Categorical(random.choice(["I", "II", "III"], size=ROWS), categories=["III", "II", "I", "IV"]),
            "smoker": random.uniform(size=ROWS) < 0.3,
            "word": random.choice(["a", "b", None], size=ROWS),
        }
    )
    time = random.exponential(size=ROWS).round(2) + 0.01
    entry = np.where(random.uniform(size=ROWS) < 0.3, 0.5 * time, 0.0)
    weight = random.choice([0.0, 1.0, 2.5], size=ROWS)
    return table, Outcome.from_arrays(time, random.uniform(size=ROWS) < 0.6, entry, weight)


def streamed(table, outcome, ends, *, standardise=True):
    """The survey and the encoding of parts that end at the given rows, found apart and put together."""
    parts = [slice(a, b) for a, b in zip([0, *ends], [*ends, len(table)], strict=True)]
    surveys, moments = [], []
    for part in parts:
        accumulator = SurveyAccumulator()
        accumulator.add(table[part], outcome.select(part))
        surveys.append(accumulator.finish())
    found = sum(surveys, nothing_seen())
    for part in parts:
        moments_of = MomentAccumulator(found)
        moments_of.add(table[part], outcome.select(part))
        moments.append(moments_of.found)
    return found, moments_of.encoding(sum(moments[1:], moments[0]), standardise=standardise)


@pytest.mark.parametrize("ends", [[], [1, 2, 90], [150], [37, 100, 200, 299]])
@pytest.mark.parametrize("counted_at_once", [50, 10_000])
def test_encoding_is_that_of_the_whole_table(ends, counted_at_once, monkeypatch):
    monkeypatch.setattr(survey, "_COUNTED_AT_ONCE", counted_at_once)
    table, outcome = cohort()
    present = outcome.weight > 0
    kept = outcome.select(present)
    expected = Encoding.fit(table[present], kept.risk_weight(), events=kept.event_weight())
    found, encoding = streamed(table, outcome, ends)
    assert encoding.columns == expected.columns
    np.testing.assert_allclose(encoding.center, expected.center, rtol=1e-12)
    np.testing.assert_allclose(encoding.scale, expected.scale, rtol=1e-12)
    np.testing.assert_allclose(encoding.transform(table), expected.transform(table), rtol=1e-9, atol=1e-9)
    assert (found.rows, found.weightless) == (present.sum(), (~present).sum())
    assert found.events == kept.event.sum()
    assert found.truncated == (kept.entry > 0).sum()
    assert found.weighted_events == pytest.approx(kept.weight[kept.event].sum())
    assert found.exposure == pytest.approx((kept.weight * (kept.time - kept.entry)).sum())
    assert found.last_time == kept.time.max()
    np.testing.assert_array_equal(found.times.time, np.unique(kept.time))


def test_a_column_that_varies_only_before_the_first_event_has_its_range():
    table = pd.DataFrame({"early": [1.0, 3.0, 2.0, 2.0], "x": [0.0, 1.0, 2.0, 3.0]})
    outcome = Outcome.from_arrays([1, 1, 5, 6], [0, 0, 1, 0])
    expected = Encoding.fit(table, outcome.risk_weight(), events=outcome.event_weight())
    _, encoding = streamed(table, outcome, [2])
    np.testing.assert_allclose(encoding.scale, expected.scale)
    np.testing.assert_allclose(encoding.center, expected.center)


def test_a_part_without_a_value_says_nothing_of_the_kind():
    table = pd.DataFrame({"word": [None, None, "a", "b"], "x": [None, None, 1.0, 2.0], "y": [1, 2, 3, 4]}, dtype=object)
    outcome = Outcome.from_arrays([1, 2, 3, 4], [1, 1, 1, 1])
    _, encoding = streamed(table, outcome, [2])
    assert [column.kind for column in encoding.columns] == ["category", "number", "number"]
    expected = Encoding.fit(table, outcome.risk_weight(), events=outcome.event_weight())
    np.testing.assert_allclose(encoding.center, expected.center)


def facts(values, name="x"):
    series = pd.Series(values)
    return ColumnFacts.of(series, read_column(series, name), name)


def test_columns_that_no_model_can_use_are_refused():
    with pytest.raises(InputError, match="column 'x' has no value in any of the 4 rows"):
        (facts([np.nan, np.nan]) + facts([np.nan, np.nan])).column()
    with pytest.raises(InputError, match=r"column 'x' is constant \(2 in all 3 rows\)"):
        (facts([2.0]) + facts([2.0, 2.0])).column()
    with pytest.raises(InputError, match=r"column 'x' is constant \(a in the one row that has a value\)"):
        facts(["a", None]).column()
    with pytest.raises(InputError, match="column 'x' has 30 different values in 30 rows and looks like an identifier"):
        facts([f"id {k}" for k in range(30)]).column()


def test_batches_that_do_not_fit_together_are_refused(monkeypatch):
    with pytest.raises(InputError, match="column 'x' is a number in one batch and a category in another"):
        facts([1.0, 2.0]) + facts(["a"])
    with pytest.raises(InputError, match="'x' and 'y' are at the same place"):
        facts([1.0]) + facts([1.0], "y")
    monkeypatch.setattr(columns, "_MOST_LEVELS", 3)
    with pytest.raises(InputError, match="column 'x' has more than 3 different values"):
        facts(["a", "b"]) + facts(["c", "d"])
    one = Outcome.from_arrays([1.0], [1])
    accumulator = SurveyAccumulator()
    accumulator.add(pd.DataFrame({"x": [1.0]}), one)
    with pytest.raises(InputError, match="1 covariate in one and 2 in another"):
        accumulator.add(pd.DataFrame({"x": [1.0], "y": [2.0]}), one)
    with pytest.raises(InputError, match="no column is left for the covariates"):
        SurveyAccumulator().add(pd.DataFrame(index=[0]), one)


@pytest.mark.parametrize(
    ("event", "weight", "message"),
    [
        ([], [], "there are no rows to fit"),
        ([1, 1], [0, 0], "every one of the 2 rows has a weight of zero"),
        ([1], [1], r"only 1 row \(n_samples=1\)"),
        ([0, 0], [1, 1], "none of the 2 rows has an event"),
    ],
)
def test_cohorts_from_which_nothing_can_be_learned_are_refused(event, weight, message):
    accumulator = SurveyAccumulator()
    if event:
        outcome = Outcome.from_arrays(np.ones(len(event)), event, weight=weight)
        accumulator.add(pd.DataFrame({"x": np.arange(len(event))}), outcome)
    with pytest.raises(InputError, match=message):
        accumulator.finish().check_fittable()
