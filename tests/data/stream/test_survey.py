"""The streamed encoding is the one that is learned in memory, and says the same where it refuses."""

import numpy as np
import pandas as pd
import pytest

from neuralsurv.data import columns
from neuralsurv.data.columns import ColumnFacts, read_column
from neuralsurv.data.features import Encoding
from neuralsurv.data.outcome import Outcome
from neuralsurv.data.stream import survey
from neuralsurv.data.stream.survey import MomentAccumulator, SurveyAccumulator, TimeCounts, nothing_seen
from neuralsurv.errors import InputError

ROWS = 300
RANDOM = np.random.default_rng(0)
TIME, WEIGHT = RANDOM.exponential(size=3000), RANDOM.uniform(size=3000)


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
            "falls": np.where(np.arange(ROWS) % 60 == 0, random.integers(1, 4, size=ROWS), 0),
            "ward": np.where(np.arange(ROWS) % 90 == 5, "north", random.choice(["east", "west"], size=ROWS)),
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
    with pytest.raises(InputError, match="column 'x' holds numbers with a decimal comma, such as '1,5', as text"):
        (facts(["2,5", "1,5"]) + facts(["3", None])).column()
    with pytest.raises(InputError, match="column 'x' has 30 different values in 30 rows and looks like an identifier"):
        facts([f"id {k}" for k in range(30)]).column()


def test_numbers_with_a_decimal_comma_may_be_categories():
    parts = [facts(pd.Categorical(["1,5", "2,5"])), facts(pd.Categorical(["3,5", "1,5"]))]
    assert sum(parts[1:], parts[0]).column().levels == ("1,5", "2,5", "3,5")


def test_a_few_words_among_numbers_with_a_decimal_comma():
    """What counts are rows, not levels: 'unknown' is one of three levels here, but in one row of ten."""
    assert decimal_comma_refused(["1,5", "2"] * 3, ["1,5"] * 3 + ["unknown"])
    assert not decimal_comma_refused(["1,5", "2"] * 3, ["1,5"] * 3 + ["unknown", "none"])


def decimal_comma_refused(*parts):
    try:
        sum(map(facts, parts[1:]), facts(parts[0])).column()
    except InputError as error:
        return "decimal comma" in str(error)
    return False


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


def in_parts(order, parts):
    return sum(
        (TimeCounts.of(TIME[part], WEIGHT[part]) for part in np.array_split(order, parts)),
        TimeCounts(np.empty(0), np.empty(0)),
    )


@pytest.mark.parametrize("most", [10_000, 500])
def test_parts_add_up_to_the_whole_in_any_order(most, monkeypatch):
    monkeypatch.setattr(survey, "_MOST_EXACT", most)
    whole = TimeCounts.of(TIME, WEIGHT)
    assert whole.rounded == (most < 3000)
    for parts in (2, 7):
        found = in_parts(np.random.default_rng(parts).permutation(3000), parts)
        np.testing.assert_array_equal(found.time, whole.time)
        np.testing.assert_allclose(found.weight, whole.weight, rtol=1e-12)
        assert found.rounded == whole.rounded


def test_quantiles_are_times_up_to_which_a_share_of_the_weight_lies():
    counts = TimeCounts.of(np.array([1.0, 2.0, 3.0, 4.0]), np.array([1.0, 1.0, 1.0, 1.0]))
    assert counts.quantiles((0.25, 0.5, 0.75)).tolist() == [1, 2, 3]
    heavy = TimeCounts.of(np.array([1.0, 2.0, 3.0]), np.array([1.0, 1.0, 6.0]))
    assert heavy.quantiles((0.25, 0.5, 0.75)).tolist() == [2, 3, 3]
    repeated = TimeCounts.of(np.repeat([1.0, 2.0, 3.0], [1, 1, 6]), np.ones(8))
    assert repeated.quantiles((0.25, 0.5, 0.75)).tolist() == [2, 3, 3]


@pytest.mark.parametrize(("most", "relative"), [(10_000, 0.0), (500, 2.0**-16)])
def test_weight_up_to_a_time(most, relative, monkeypatch):
    monkeypatch.setattr(survey, "_MOST_EXACT", most)
    counts = TimeCounts.of(TIME, WEIGHT)
    at = np.array([0.0, TIME[5], 0.3, 1.0, 100.0])
    low, high = ([WEIGHT[t * factor >= TIME].sum() for t in at] for factor in (1 - relative, 1 + relative))
    found = counts.up_to(at)
    assert (found >= np.array(low) - 1e-9).all()
    assert (found <= np.array(high) + 1e-9).all()


def test_memory_is_bounded_however_many_times_there_are():
    times = np.random.default_rng(1).uniform(1, 4, size=400_000)
    counts = TimeCounts.of(times, np.ones(len(times)))
    # Two powers of two, with 2**15 places each.
    assert counts.rounded
    assert len(counts.time) <= 2 * 2**15 + 1
    assert counts.weight.sum() == len(times)
