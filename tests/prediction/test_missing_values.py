"""A gap or a level that training rows hardly show: the curve stays among the others, and the band gets wider."""

import copy
import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import cross_val_score

from neuralsurv import NeuralSurv
from neuralsurv.data.features import IMPUTATIONS, Encoding
from neuralsurv.prediction.predictor import Predictor
from small_cohort import quick_default, small_cohort

# Rows of the table, and one gap or rare value in so many of them.
TABLES = [(60, 25), (100, 25), (100, 100), (228, 228), (400, 25), (400, 100), (1000, 1000)]
COLUMNS = ["age", "stage", "marker", "arm"]
KINDS = ["level of two", "number of two", "level of three", "flag"]


def turns(names):
    """Two of the names for every table, in turn; one for the largest."""
    pairs = [(*table, names[(k + half * 2) % 4]) for k, table in enumerate(TABLES) for half in (0, 1)]
    return pairs[:-1]


def cohort(rows, seed):
    """Rows with two numbers and two categories that matter, events by a Weibull law, a third of them censored."""
    rng = np.random.default_rng(seed)
    age, marker = rng.normal(60, 10, rows), rng.exponential(2.0, rows)
    arm, stage = rng.choice(["a", "b"], rows), rng.choice(["I", "II", "III"], rows, p=[0.5, 0.3, 0.2])
    effect = 0.04 * (age - 60) + 0.2 * marker + 0.5 * (arm == "b") + 0.6 * (stage == "III")
    time = 10 * (rng.exponential(size=rows) * np.exp(-effect)) ** (1 / 1.3)
    end = rng.uniform(0, 25, rows)
    table = pd.DataFrame({"age": age, "marker": marker, "arm": arm, "stage": stage})
    return table.assign(time=np.minimum(time, end) + 0.01, died=time <= end), rng


def log_risk(curves):
    """The log cumulative hazard of every draw, on which a band is as wide for high as for low survival."""
    return np.log(-np.log(np.clip(curves.draws, 1e-300, 1 - 1e-12)))


def ends(values):
    """The middle and both ends of the 90 % band."""
    return np.median(values, axis=0), *np.quantile(values, [0.05, 0.95], axis=0)


@pytest.mark.parametrize(("rows", "one_in", "column"), turns(COLUMNS))
def test_a_rare_gap_leaves_the_curve_among_the_others_and_widens_the_band(rows, one_in, column):
    table, rng = cohort(rows, seed=[rows, one_in])
    table.loc[rng.choice(rows, max(1, rows // one_in), replace=False), column] = None
    model = NeuralSurv(random_state=0, draws=400).fit(table, time="time", event="died")
    people = table.dropna().drop(columns=["time", "died"]).head(6)
    times = np.quantile(table.time[table.died], [0.25, 0.5, 0.75])
    gone = people.assign(**{column: np.nan if table[column].dtype == float else None})
    middle, low, high = ends(log_risk(model.predict_survival(gone, times)))
    observed = table[column].dropna()
    values = np.quantile(observed, np.linspace(0, 1, 9)) if observed.dtype == float else observed.unique()
    curves = [ends(log_risk(model.predict_survival(people.assign(**{column: value}), times))) for value in values]
    lowest, highest = np.min([c[1] for c in curves], axis=0), np.max([c[2] for c in curves], axis=0)
    margin = (highest - lowest) / 10
    assert ((lowest - margin <= middle) & (middle <= highest + margin)).all()
    # With the commonest value known the band is narrower, at most by chance not.
    usual = curves[len(curves) // 2] if observed.dtype == float else curves[list(values).index(observed.mode()[0])]
    assert np.mean((high - low) / (usual[2] - usual[1])) > 1.0
    assert ((high - low) / (usual[2] - usual[1]) > 0.8).all()


@pytest.mark.parametrize(("rows", "one_in", "kind"), turns(KINDS))
def test_a_rare_value_leaves_the_curve_near_the_others_and_widens_the_band(rows, one_in, kind):
    table, rng = cohort(rows, seed=[rows, one_in, 1])
    usual, rare = {"level of two": ("no", "yes"), "number of two": (0, 1), "flag": (False, True)}.get(kind, ("x", "z"))
    values = rng.choice(["x", "y"], rows) if kind == "level of three" else np.full(rows, usual, dtype=object)
    values[rng.choice(rows, max(1, rows // one_in), replace=False)] = rare
    table.insert(0, "extra", pd.Series(values).infer_objects())
    model = NeuralSurv(random_state=0, draws=400).fit(table, time="time", event="died")
    people = table[table.extra == usual].drop(columns=["time", "died"]).head(6)
    times = np.quantile(table.time[table.died], [0.25, 0.5, 0.75])
    middle, low, high = ends(log_risk(model.predict_survival(people.assign(extra=rare), times)))
    before, lower, upper = ends(log_risk(model.predict_survival(people, times)))
    # The value tells nothing here: a factor of ten in the hazard would be an artefact of the scale.
    assert np.abs(middle - before).max() < np.log(10)
    assert (low < upper).all()
    assert (high > lower).all()
    assert np.mean((high - low) / (upper - lower)) > 1.0


def with_rare_value(rows, count, kind, who):
    """A cohort in which the value "B" (or 1) is held by just those rows whose outcomes are the most extreme."""
    table, rng = cohort(rows, seed=[rows, 3])
    ordered = (
        table[table.died].sort_values("time").index if who == "earliest" else table.sort_values("time").index[::-1]
    )
    usual, rare = (0.0, 1.0) if kind == "number" else ("A", "B")
    values = rng.choice(["A", "C"], rows).astype(object) if kind == "level of three" else np.full(rows, usual, object)
    values[ordered[:count]] = rare
    table.insert(0, "extra", pd.Series(values).infer_objects())
    return table, usual, rare


# The last to be followed have more than one expected event each: with five of 1,000 there are too few in all.
@pytest.mark.parametrize("kind", ["level of two", "level of three", "number"])
@pytest.mark.parametrize(
    ("rows", "count", "who"),
    [
        *((rows, count, "earliest") for rows, count in [(100, 1), (100, 3), (150, 6), (400, 8), (1000, 5), (1000, 9)]),
        *((rows, count, "latest") for rows, count in [(100, 1), (400, 2), (1000, 3)]),
    ],
)
def test_a_rare_value_whose_few_rows_have_extreme_outcomes(rows, count, kind, who):
    """Eight of 1,000 rows, the earliest deaths, used to give S = 0.00 [0.0, 0.04] in place of 0.62 [0.58, 0.66]."""
    table, usual, rare = with_rare_value(rows, count, kind, who)
    model = NeuralSurv(random_state=0, draws=400).fit(table, time="time", event="died")
    people = table[table.extra == usual].drop(columns=["time", "died"]).head(6)
    middle = np.quantile(table.time[table.died], 0.5)
    before, found = (model.predict_survival(people.assign(extra=value), [middle]) for value in (usual, rare))
    (low, high), (lower, upper) = found.interval(0.9), before.interval(0.9)
    wider = (high - low).to_numpy() / (upper - lower).to_numpy()
    assert (wider > 1.0).all()
    assert ((low <= before.mean) & (before.mean <= high)).to_numpy().all()
    assert np.abs(np.log(np.log(found.mean) / np.log(before.mean))).to_numpy().max() < np.log(1.5)


def hazard_ratio(model, table, changed):
    """How the cumulative hazard, and the width of its band, of six people changes with a value of `extra`."""
    people = table[table.extra == table.extra.mode()[0]].drop(columns=["time", "died"]).head(6)
    middle = np.quantile(table.time[table.died], 0.5)
    before, found = (model.predict_survival(rows, [middle]) for rows in (people, people.assign(extra=changed)))
    wider = np.diff(ends(log_risk(found))[1:], axis=0) / np.diff(ends(log_risk(before))[1:], axis=0)
    return np.log(found.mean) / np.log(before.mean), wider.mean()


@pytest.mark.parametrize(("rows", "count", "stream"), [(250, 2, True), (500, 2, False), (1000, 1, False)])
def test_several_rare_levels_whose_rows_are_the_earliest_deaths(rows, count, stream):
    """Five levels of one row each, of 1,000, used to give S = 0.06 [0.0, 0.3] in place of 0.63 [0.57, 0.68]."""
    table, rng = cohort(rows, seed=[rows, count, 7])
    earliest = table[table.died].sort_values("time").index
    table.insert(0, "extra", rng.choice(["A", "C"], rows).astype(object))
    for k in range(5):
        table.loc[earliest[k * count : (k + 1) * count], "extra"] = f"rare {k}"
    model = NeuralSurv(random_state=0, draws=400, verbose=False)
    names = {"time": "time", "event": "died"}
    model = model.fit_stream([table], **names) if stream else model.fit(table, **names)
    ratio, wider = hazard_ratio(model, table, "rare 0")
    assert ratio.to_numpy().max() < 5
    assert wider > 1.0


@pytest.mark.parametrize("amounts", [(2.0, 1.0, 1.0), (1.0, 2.0, 3.0)])
def test_a_count_that_is_nearly_always_zero(amounts):
    """The one row of 1,000 with a count of 2, and two of 1, gave S = 0.00 [0.0, 0.0] in place of 0.61 [0.55, 0.67]."""
    table, _ = cohort(1000, seed=[1000, 3, 7])
    table.insert(0, "extra", 0.0)
    table.loc[table[table.died].sort_values("time").index[:3], "extra"] = amounts
    model = NeuralSurv(random_state=0, draws=400).fit(table, time="time", event="died")
    ratio, wider = hazard_ratio(model, table, max(amounts))
    assert ratio.to_numpy().max() < 4
    assert wider > 1.0


def test_a_value_with_enough_events_is_believed():
    table, usual, rare = with_rare_value(400, 12, "level of two", "earliest")
    model = NeuralSurv(random_state=0, draws=400).fit(table, time="time", event="died")
    person = table[table.extra == usual].drop(columns=["time", "died"]).head(1)
    middle = np.quantile(table.time[table.died], 0.5)
    assert model.predict_survival(person, [middle]).mean.iloc[0, 0] > 0.6
    assert model.predict_survival(person.assign(extra=rare), [middle]).mean.iloc[0, 0] < 0.05


def test_lung_with_one_gap_in_167():
    """One missing value among all rows used to put a person 13 standard deviations out, at S = 0.00003."""
    table, _ = cohort(167, seed=5)
    table["ecog"] = np.random.default_rng(5).choice([0.0, 1.0, 2.0], 167)
    table.loc[[3], "ecog"] = np.nan
    table.loc[3, ["time", "died"]] = (0.05, True)
    model = NeuralSurv(random_state=0).fit(table, time="time", event="died")
    person = table.drop(columns=["time", "died"]).iloc[[3]]
    known = [model.predict_survival(person.assign(ecog=value), [5.0]) for value in (0.0, 1.0, 2.0)]
    found = model.predict_survival(person, [5.0])
    means = [float(curve.mean.iloc[0, 0]) for curve in known]
    assert min(means) <= float(found.mean.iloc[0, 0]) <= max(means)


@pytest.fixture(scope="module")
def model():
    table, rng = cohort(200, seed=2)
    for column, count in {"age": 3, "marker": 60, "stage": 2}.items():
        table.loc[rng.choice(200, count, replace=False), column] = None
    return NeuralSurv(random_state=0, draws=200).fit(table, time="time", event="died")


@pytest.fixture(scope="module")
def people():
    whole = cohort(5, seed=3)[0].drop(columns=["time", "died"])
    whole.index = pd.Index(list("abcde"))
    whole.loc["b", "age"] = np.nan
    whole.loc["d", ["marker", "stage"]] = [np.nan, None]
    return whole


class TestFilled:
    def test_indicators_only_of_gaps_with_enough_events(self, model):
        assert [name for name in model.encoding_.outputs if "missing" in name] == ["marker missing"]

    @pytest.mark.parametrize(
        "ask",
        [
            lambda m, p: m.predict_survival(p, [1.0, 5.0]),
            lambda m, p: m.predict_cumulative_hazard(p, [1.0, 5.0]),
            lambda m, p: m.predict_hazard(p, [1.0, 5.0]),
            lambda m, p: Predictor.from_fitted(m.fitted_, m.draws).g(p, [1.0, 5.0]),
            lambda m, p: m.predict_conditional_survival(p, [3.0, 5.0], 1.0),
            lambda m, p: m.predict_quantile(p, [0.3, 0.5]),
            lambda m, p: m.predict_event_time(p),
            lambda m, p: m.predict_rmst(p, 5.0),
            lambda m, p: m.predict_difference(p, p.iloc[[0]], [1.0, 5.0]),
            lambda m, p: m.predict_difference(p.iloc[[0, 0, 0, 0, 0]].set_axis(p.index), p, horizon=5.0),
        ],
    )
    def test_every_quantity_names_what_was_filled_in(self, model, people, ask):
        found = ask(model, people)
        assert found.filled == ((), ("age",), (), ("marker", "stage"), ())
        frame = found.to_frame()
        named = frame.groupby(frame.columns[0], sort=False)["filled_in"].first()
        assert named.to_dict() == {"a": "", "b": "age", "c": "", "d": "marker, stage", "e": ""}
        assert found.head(3).filled == ((), ("age",), ())
        assert pickle.loads(pickle.dumps(found)).filled == found.filled

    def test_others_in_the_table_change_nothing(self, model, people):
        alone, found = (model.predict_survival(rows, [1.0, 5.0]).draws for rows in (people.iloc[[1, 3]], people))
        np.testing.assert_allclose(alone, found[:, [1, 3]], rtol=1e-9)

    def test_nothing_is_named_where_nothing_is_missing(self, model, people):
        found = model.predict_survival(people.dropna(), [1.0])
        assert found.filled == ()
        assert "filled_in" not in found.to_frame()

    def test_paths_name_the_gaps_of_all_episodes(self, model, people):
        episodes = people.iloc[[0, 1, 3, 4]]
        found = model.predict_survival_path(
            episodes, [1.0, 2.0], entry=[0, 1, 0, 1], time=[1, 2, 1, 2], id=["u", "u", "v", "v"]
        )
        assert found.filled == (("age",), ("marker", "stage"))
        assert (np.diff(found.draws, axis=2) <= 0).all()

    def test_draws_take_turns_with_the_imputations(self, model, people):
        """Each draw is the curve of one complete person: the plain computation, completion by completion."""
        times, person = [1.0, 5.0, 9.0], people.loc[["d"]]
        found = model.predict_survival(person, times).draws
        predictor = model._predictor(person)
        x = predictor.encode(person)
        for k, values in enumerate(model.encoding_.imputations()):
            filled = x.clone()
            filled[x.isnan()] = x.new_tensor(values)[x[0].isnan()]
            curve = predictor.cumulative(predictor.draws(), predictor.scaled(np.array(times)), filled).neg().exp()
            np.testing.assert_allclose(found[k::IMPUTATIONS], curve[k::IMPUTATIONS], rtol=1e-12)

    def test_fewer_draws_than_imputations(self, model, people):
        few = copy.copy(model).set_params(draws=3)
        assert few.predict_survival(people, [1.0]).draws.shape == (3, 5, 1)


def test_the_same_encoding_whether_rows_are_cut_or_not():
    """Whether a gap gets an indicator must not depend on how follow-up is cut into episodes."""
    table, rng = cohort(120, seed=8)
    table.loc[rng.choice(120, 18, replace=False), "age"] = np.nan
    first = table.assign(entry=0.0)
    late = first[first.time > 2.0]
    cut = pd.concat(
        [first.assign(time=first.time.clip(upper=2.0), died=first.died & (first.time <= 2.0)), late.assign(entry=2.0)]
    )
    whole = NeuralSurv(random_state=0).fit(first, time="time", event="died", entry="entry").encoding_
    pieces = NeuralSurv(random_state=0).fit(cut, time="time", event="died", entry="entry").encoding_
    assert whole.columns == pieces.columns
    np.testing.assert_array_equal(whole.scale, pieces.scale)


@pytest.mark.parametrize(("rare", "dead", "shown"), [(2, 0, 1), (3, 3, 3), (8, 6, 6), (20, 4, 10), (40, 20, 20)])
def test_scale_of_a_value_with_few_events(rare, dead, shown):
    """The events at the rarer value count as they were observed, or as they are expected if these are more."""
    rows = np.arange(400)
    flag, died = rows < rare, (rows < dead) | (rows >= 200 + dead)
    frame = pd.DataFrame({"number": 10 - 30.0 * flag, "text": np.where(flag, "no", "yes"), "other": rows})
    encoding = Encoding.fit(frame, np.ones(400), events=died.astype(float))
    if shown < 10:
        # Less than a fifteenth of 200 events: nothing is learned from them.
        np.testing.assert_allclose(encoding.scale[:2], [15, 0.5])
        assert encoding.center[:2].tolist() == [10, 1]
        assert (encoding.transform(frame)[:, :2] == 0).all()
        np.testing.assert_allclose(np.abs(encoding.with_gaps(frame)[:, :2]), 2.0 * flag[:, None].repeat(2, 1))
        assert encoding.rare_values == ("number≠10", "text=no")
    else:
        expected = max(0.25, np.sqrt(rare / 400 * (1 - rare / 400)))
        np.testing.assert_allclose(encoding.scale[:2], [30 * expected, expected])
        assert encoding.rare_values == ()
    np.testing.assert_allclose(encoding.scale[2], rows.std())


@pytest.mark.parametrize(("rare", "scale"), [(3, 0.25 * (10 / 3) ** 1.25), (8, 0.25 * (10 / 8) ** 1.25)])
def test_few_events_that_are_a_fair_share_of_all_narrow_the_prior(rare, scale):
    flag = np.arange(60) < rare
    frame = pd.DataFrame({"text": np.where(flag, "yes", "no")})
    events = np.where(flag | (np.arange(60) >= 55 - 3 * rare), 1.0, 0.0)
    encoding = Encoding.fit(frame, np.ones(60), events=events)
    assert encoding.rare_values == ()
    np.testing.assert_allclose(encoding.scale, max(scale, np.sqrt(rare / 60 * (1 - rare / 60))))


def test_the_scale_of_an_amount_that_is_usually_at_one_end():
    rows = np.arange(40)
    amount = np.where(rows < 4, [3.0, 4.0, 5.0, 5.0] * 10, 0.0)
    common = np.where(rows < 20, 1.0 + rows, 0.0)
    frame = pd.DataFrame({"amount": amount, "mirrored": 7 - amount, "middle": amount - (rows == 9), "common": common})
    died = (rows % 2 == 0).astype(float)
    scale = Encoding.fit(frame, np.ones(40), events=died).scale
    # Two of the four have an event: a power of 10/2 times a quarter of the root of their mean square.
    far = 0.25 * np.sqrt((9 + 16 + 25 + 25) / 4)
    np.testing.assert_allclose(scale[:2], 5**1.25 * far)
    np.testing.assert_allclose(scale[2:], frame[["middle", "common"]].std(ddof=0))
    frame, died = (pd.concat([part] + [part[part.amount == 0]] * 9) for part in (frame, frame.assign(died=died)))
    rare = Encoding.fit(frame[["amount", "mirrored"]], np.ones(len(frame)), events=died.died.to_numpy())
    np.testing.assert_allclose(rare.scale, 2 * far)
    assert rare.rare_values == ("amount≠0", "mirrored≠7")


def test_a_level_with_few_events_says_little_of_the_others():
    """The indicators of the frequent levels are near their means, as for a gap; its own is one spread out."""
    rows = np.arange(25)
    ward = pd.DataFrame({"ward": np.where(rows < 2, "x", np.where(rows < 10, "a", "b"))})
    encoded = Encoding.fit(ward, np.ones(25), events=np.ones(25)).transform(ward)
    a, b = 8 / 25, 15 / 25
    other = np.sqrt(0.08 * 0.92) / (0.25 * 5**1.25) * np.array([-a, -b]) / np.sqrt([a * (1 - a), b * (1 - b)])
    np.testing.assert_allclose(encoded[0], [*other, 1.0])
    # With events enough, and without knowing of any, nothing changes.
    plain = Encoding.fit(ward, np.ones(25))
    np.testing.assert_allclose(encoded[2:, :2], plain.transform(ward)[2:, :2])
    assert plain.transform(ward)[0, 0] == pytest.approx(-a / np.sqrt(a * (1 - a)))


def test_a_rare_level_says_nothing_of_itself_and_the_others():
    rows = np.arange(400)
    ward = pd.DataFrame({"ward": np.where(rows < 2, "x", np.where(rows < 150, "a", "b"))})
    encoding = Encoding.fit(ward, np.ones(400), events=np.ones(400))
    assert encoding.rare_values == ("ward=x",)
    # In training its rows are rows of the commonest level.
    trained = encoding.transform(ward)
    assert trained[0].tolist() == trained[-1].tolist()
    assert (trained[:, 2] == 0).all()
    np.testing.assert_allclose(encoding.with_gaps(ward)[0], [0, 0, 2.0])
    # It is not drawn for a person whose ward is not known.
    assert (encoding.imputations()[:, 2] == 0).all()
    assert (encoding.imputations()[:, :2] != 0).all()


def test_the_effect_of_a_rare_value_keeps_its_prior():
    table, _, rare = with_rare_value(400, 8, "level of two", "earliest")
    model = NeuralSurv(random_state=0, draws=400).fit(table, time="time", event="died")
    without = NeuralSurv(random_state=0, draws=400).fit(
        table.assign(extra=np.where(np.arange(400) == 7, rare, "A")), time="time", event="died"
    )
    people = table.drop(columns=["time", "died"]).head(6).assign(extra=rare)
    one, other = (fitted.predict_survival(people, [1.0]) for fitted in (model, without))
    # Whose rows they are does not matter.
    np.testing.assert_array_equal(one.mean, other.mean)


def test_the_summary_lists_rare_values():
    table, _, _ = with_rare_value(400, 8, "level of three", "earliest")
    model = NeuralSurv(random_state=0, draws=400).fit(table, time="time", event="died")
    assert "extra=B" in str(model.summary())


def test_a_rare_level_does_not_widen_the_prior_of_products():
    """Means of the other levels used to show the eight rows to the products of two indicators: their scale was 2.7."""
    table, _, _ = with_rare_value(1000, 8, "level of three", "earliest")
    model = NeuralSurv(random_state=0, draws=400).fit(table, time="time", event="died")
    usual = NeuralSurv(random_state=0, draws=400).fit(
        table.assign(extra=table.extra.replace("B", table.extra.mode()[0])), time="time", event="died"
    )
    assert model.diagnostics_.settings > 1
    for name, scale in usual.diagnostics_.scales.items():
        assert model.diagnostics_.scales[name] == pytest.approx(scale, rel=0.5), name


@pytest.mark.parametrize("share", [0.5, 0.3, 0.1, 0.05, 0.01])
def test_scale_of_two_values(share):
    rows = 400
    flag = (np.arange(rows) < share * rows).astype(float)
    frame = pd.DataFrame({"number": 10 + 30 * flag, "text": np.where(flag == 1, "yes", "no"), "other": np.arange(rows)})
    scale = Encoding.fit(frame, np.ones(rows)).scale
    spread = max(np.sqrt(share * (1 - share)), 0.25)
    np.testing.assert_allclose(scale[:2], [30 * spread, spread])
    np.testing.assert_allclose(scale[2], frame.other.std(ddof=0))


def test_a_value_that_was_never_missing_in_training_is_imputed_and_named():
    cohort = small_cohort(60)
    model = quick_default(draws=200).fit(cohort.x, cohort.y)
    person = cohort.x.head(1)
    unknown = model.predict_survival(person.assign(age=np.nan), [0.5])
    assert unknown.filled == (("age",),)
    ages = np.quantile(cohort.x["age"], [0.02, 0.98])
    ends = [model.predict_survival(person.assign(age=age), [0.5]).mean.iloc[0, 0] for age in ages]
    assert min(ends) < unknown.mean.iloc[0, 0] < max(ends)
    known = model.predict_survival(person.assign(age=float(np.median(cohort.x["age"]))), [0.5])
    widths = [float((upper - lower).iloc[0, 0]) for lower, upper in (known.interval(0.9), unknown.interval(0.9))]
    assert widths[1] > widths[0]


def test_cross_validation_of_a_table_with_one_missing_value():
    # In all folds but one the training rows or the test rows lack nothing.
    cohort = small_cohort(60)
    x = cohort.x.assign(dose=np.where(np.arange(60) == 7, np.nan, cohort.x["dose"]))
    scores = cross_val_score(quick_default(), x, cohort.y, cv=3, error_score="raise")
    assert np.isfinite(scores).all()
