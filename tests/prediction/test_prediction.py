"""Summaries of draws against numpy, their labels, and the way of large predictions, which never holds all draws."""

import copy
import pickle
import weakref

import joblib
import numpy as np
import pandas as pd
import pytest

from neuralsurv.errors import InputError
from neuralsurv.prediction import prediction as prediction_module
from neuralsurv.prediction.prediction import Curve, Prediction
from small_cohort import quick_default, small_cohort

TIMES = pd.Index([2.0, 5.0, 1.0], name="time")


class Source:
    """Blocks of two people from a cube of draws, and how many were asked for and alive at once."""

    def __init__(self, cube: np.ndarray) -> None:
        self.cube = cube
        self.passes = 0
        self.made = 0
        self.most_alive = 0

    def __call__(self):
        self.passes += 1
        alive: list[weakref.ref] = []
        for first in range(0, self.cube.shape[1], 2):
            block = self.cube[:, first : first + 2].copy()
            alive.append(weakref.ref(block))
            self.made += 1
            self.most_alive = max(self.most_alive, sum(one() is not None for one in alive))
            yield block
            del block


def cube_of(people: int = 5, times: int = 3, draws: int = 101, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).gamma(2.0, size=(draws, people, times))


def prediction_of(cube: np.ndarray, index=None, columns: pd.Index | None = TIMES, extrapolated=None) -> Prediction:
    width = cube.shape[2]
    return Prediction(
        name="survival",
        index=pd.RangeIndex(cube.shape[1]) if index is None else pd.Index(index) if isinstance(index, list) else index,
        columns=columns,
        extrapolated=np.zeros(width, dtype=bool) if extrapolated is None else np.array(extrapolated),
        count=len(cube),
        blocks=Source(cube),
    )


SINGLE = {"columns": None}


# ----------------------------------------------------------------------------------------------------- summaries


@pytest.mark.parametrize(
    ("summary", "reduce"),
    [
        (lambda p: p.mean, lambda c: c.mean(0)),
        (lambda p: p.median, lambda c: np.median(c, axis=0)),
        (lambda p: p.std, lambda c: c.std(0)),
        (lambda p: p.quantile(0.17), lambda c: np.quantile(c, 0.17, axis=0)),
        (lambda p: p.quantile(0), lambda c: c.min(0)),
        (lambda p: p.quantile(1), lambda c: c.max(0)),
        (lambda p: p.interval(0.8).lower, lambda c: np.quantile(c, 0.1, axis=0)),
        (lambda p: p.interval(0.8).upper, lambda c: np.quantile(c, 0.9, axis=0)),
        (lambda p: p.unreached, lambda c: np.zeros(c.shape[1:])),
    ],
    ids=["mean", "median", "std", "quantile", "least", "greatest", "lower", "upper", "unreached"],
)
def test_summaries_against_numpy(summary, reduce):
    cube = cube_of()
    people = ["a", "b", "c", "d", "e"]
    table = summary(prediction_of(cube, people))
    assert isinstance(table, pd.DataFrame)
    pd.testing.assert_index_equal(table.index, pd.Index(people))
    pd.testing.assert_index_equal(table.columns, TIMES)
    np.testing.assert_allclose(table.to_numpy(), reduce(cube), rtol=1e-13)

    one = summary(prediction_of(cube[:, :, :1], people, **SINGLE))
    assert isinstance(one, pd.Series)
    assert one.name == "survival"
    pd.testing.assert_index_equal(one.index, pd.Index(people))
    np.testing.assert_allclose(one.to_numpy(), reduce(cube)[:, 0], rtol=1e-13)


@pytest.mark.parametrize("size", [1e300, 1e-300])
def test_spread_of_huge_and_tiny_numbers(size):
    cube = cube_of()
    expected = cube.std(0)
    np.testing.assert_allclose(prediction_of(cube * size, list("abcde")).std.to_numpy() / size, expected, rtol=1e-12)


def test_draws():
    cube = cube_of()
    np.testing.assert_array_equal(prediction_of(cube).draws, cube)
    np.testing.assert_array_equal(prediction_of(cube[:, :, :1], **SINGLE).draws, cube[:, :, 0])


def test_intervals_are_nested_and_hold_the_median():
    prediction = prediction_of(cube_of())
    inner = prediction.interval(0.01)
    for level in (0.2, 0.5, 0.9, 0.99):
        outer = prediction.interval(level)
        assert (outer.lower <= inner.lower).all(axis=None)
        assert (inner.upper <= outer.upper).all(axis=None)
        assert (outer.lower <= prediction.median).all(axis=None)
        assert (prediction.median <= outer.upper).all(axis=None)
        inner = outer


def test_an_interval_holds_its_share_of_the_draws():
    cube = cube_of(draws=1000)
    lower, upper = prediction_of(cube).interval(0.9)
    inside = (lower.to_numpy() <= cube) & (cube <= upper.to_numpy())
    np.testing.assert_allclose(inside.mean(0), 0.9, atol=2 / 1000)


def test_the_default_interval_holds_90_percent():
    prediction = prediction_of(cube_of())
    pd.testing.assert_frame_equal(prediction.interval().lower, prediction.quantile(0.05))


@pytest.mark.parametrize("level", [0, 1, -0.1, 90, float("nan")])
def test_bad_level(level):
    prediction = prediction_of(cube_of())
    for ask in (prediction.interval, prediction.to_frame):
        with pytest.raises(InputError, match=rf"level={level} must lie strictly between 0 and 1; use 0.9"):
            ask(level)


@pytest.mark.parametrize("probability", [-0.1, 1.1, 50, float("nan")])
def test_bad_probability(probability):
    with pytest.raises(InputError, match=rf"probability={probability} must lie between 0 and 1"):
        prediction_of(cube_of()).quantile(probability)


def test_what_is_done_to_a_table_does_not_come_back():
    cube = cube_of()
    prediction, single = prediction_of(cube), prediction_of(cube[:, :, :1], **SINGLE)
    for _ in range(2):
        table, series, lower = prediction.mean, single.mean, prediction.interval().lower
        np.testing.assert_allclose(table.to_numpy(), cube.mean(0))
        np.testing.assert_allclose(series.to_numpy(), cube.mean(0)[:, 0])
        np.testing.assert_allclose(lower.to_numpy(), np.quantile(cube, 0.05, axis=0))
        table.iloc[0, 0] = series.iloc[0] = lower.iloc[0, 0] = -1.0
        series *= 100


def test_draws_are_read_only():
    with pytest.raises(ValueError, match="read-only"):
        prediction_of(cube_of()).draws[0, 0, 0] = 1


def test_a_prediction_equals_itself_only():
    prediction = prediction_of(cube_of())
    assert prediction == prediction
    assert prediction != prediction_of(cube_of())
    assert len({prediction, prediction}) == 1


# ------------------------------------------------------------------------------------------------ infinite draws


def test_infinite_draws_by_hand():
    cube = np.array(
        [
            # never, sometimes and always infinite
            [[3.0, 2.0, np.inf]],
            [[1.0, np.inf, np.inf]],
            [[2.0, 1.0, np.inf]],
            [[5.0, 4.0, np.inf]],
        ]
    )
    prediction = prediction_of(cube)
    assert prediction.mean.iloc[0].tolist() == [2.75, np.inf, np.inf]
    assert prediction.std.iloc[0].tolist() == [pytest.approx(np.std([3, 1, 2, 5])), np.inf, np.inf]
    assert prediction.unreached.iloc[0].tolist() == [0, 0.25, 1]
    assert prediction.median.iloc[0].tolist() == [2.5, 3.0, np.inf]
    # Between the largest finite draw, 4, and the infinite one: the finite one.
    assert prediction.quantile(0.9).iloc[0].tolist() == [pytest.approx(4.4), 4.0, np.inf]
    assert prediction.quantile(1).iloc[0].tolist() == [5.0, np.inf, np.inf]
    assert prediction.quantile(0).iloc[0].tolist() == [1.0, 1.0, np.inf]


def test_infinite_draws_of_some_do_not_change_the_others():
    cube = cube_of()
    mixed = cube.copy()
    mixed[::3, 1, 2] = np.inf
    whole, touched = prediction_of(cube), prediction_of(mixed)
    same = np.ones((5, 3), dtype=bool)
    same[1, 2] = False
    for ask in (lambda p: p.quantile(0.3), lambda p: p.std, lambda p: p.mean, lambda p: p.interval(0.9).upper):
        np.testing.assert_array_equal(ask(touched).to_numpy()[same], ask(whole).to_numpy()[same])


def test_quantiles_of_partly_infinite_draws_rise_with_the_probability():
    cube = cube_of(draws=40)
    cube[:13, 0] = np.inf
    prediction = prediction_of(cube)
    tables = np.stack([prediction.quantile(p).to_numpy() for p in np.linspace(0, 1, 101)])
    assert (tables[1:] >= tables[:-1]).all()
    finite = np.isfinite(tables[:, 0]).mean(0)
    np.testing.assert_allclose(finite, 27 / 40, atol=0.03)


# -------------------------------------------------------------------------------------------------------- frames


def test_frame_of_a_curve():
    cube = cube_of()
    prediction = prediction_of(cube, ["a", "b", "c", "d", "e"], extrapolated=[False, True, False])
    frame = prediction.to_frame(0.5)
    assert frame.columns.tolist() == ["person", "time", "mean", "median", "lower", "upper", "extrapolated"]
    assert frame.shape == (15, 7)
    assert frame["person"].tolist() == [name for name in "abcde" for _ in range(3)]
    assert frame["time"].tolist() == [2.0, 5.0, 1.0] * 5
    assert frame["extrapolated"].tolist() == [False, True, False] * 5
    np.testing.assert_allclose(frame["mean"], cube.mean(0).reshape(-1))
    np.testing.assert_allclose(frame["median"], np.median(cube, axis=0).reshape(-1))
    np.testing.assert_allclose(frame["lower"], np.quantile(cube, 0.25, axis=0).reshape(-1))
    np.testing.assert_allclose(frame["upper"], np.quantile(cube, 0.75, axis=0).reshape(-1))


def test_bare_arrays():
    cube = cube_of()
    cube[:10, 2, 1] = np.inf
    prediction = prediction_of(cube)
    found = prediction.arrays(0.5)
    assert list(found) == ["mean", "median", "lower", "upper", "unreached"]
    np.testing.assert_allclose(found["mean"], cube.mean(0))
    np.testing.assert_allclose(found["lower"], np.quantile(cube, 0.25, axis=0))
    assert found["unreached"][2, 1] == 10 / len(cube)
    # What a program does to them does not come back.
    found["mean"][:] = 0
    np.testing.assert_allclose(prediction.arrays()["mean"], cube.mean(0))


@pytest.mark.parametrize("beyond", [True, False])
def test_frame_of_one_number_a_person(beyond):
    cube = cube_of(times=1)
    frame = prediction_of(cube, **SINGLE, extrapolated=[beyond]).to_frame()
    assert frame.columns.tolist() == ["person", "mean", "median", "lower", "upper", "extrapolated"]
    assert frame["person"].tolist() == [0, 1, 2, 3, 4]
    assert frame["extrapolated"].tolist() == [beyond] * 5
    np.testing.assert_allclose(frame["upper"], np.quantile(cube[:, :, 0], 0.95, axis=0))


def test_frame_tells_what_is_unreached_where_anything_is():
    cube = cube_of()
    cube[:10, 2, 1] = np.inf
    frame = prediction_of(cube).to_frame()
    assert frame.columns.tolist() == ["person", "time", "mean", "median", "lower", "upper", "unreached", "extrapolated"]
    assert frame.loc[frame["unreached"] > 0, ["person", "time", "unreached"]].to_numpy().tolist() == [[2, 5, 10 / 101]]


@pytest.mark.parametrize(
    ("index", "label"),
    [
        (pd.Index([7, 3, 5], name="patient"), "patient"),
        (pd.Index(["x", "y", "z"]), "person"),
        (pd.Index(["x", "x", "z"], name="patient"), "patient"),
        (pd.CategoricalIndex(["x", "y", "x"], name=0), 0),
        (pd.date_range("2020-01-01", periods=3, tz="UTC", name="day"), "day"),
        (pd.MultiIndex.from_tuples([("a", 1), ("a", 2), ("b", 1)], names=["ward", "bed"]), "person"),
    ],
    ids=["named", "text", "repeated", "category", "date", "several levels"],
)
@pytest.mark.parametrize("columns", [TIMES, None], ids=["curve", "number"])
def test_the_index_is_kept(index, label, columns):
    prediction = prediction_of(cube_of(people=3, times=3 if columns is not None else 1), index, columns)
    for table in (prediction.mean, prediction.median, *prediction.interval()):
        pd.testing.assert_index_equal(table.index, index)
    frame = prediction.to_frame()
    assert frame.columns[0] == label
    each = 3 if columns is not None else 1
    assert frame[label].tolist() == [name for name in index for _ in range(each)]
    if not isinstance(index, pd.MultiIndex):
        assert frame[label].dtype == index.dtype


def test_the_name_of_the_columns_is_kept():
    prediction = prediction_of(cube_of(), columns=pd.Index([0.1, 0.5, 0.9], name="q"))
    assert prediction.mean.columns.name == "q"
    assert prediction.to_frame()["q"].tolist() == [0.1, 0.5, 0.9] * 5
    assert prediction_of(cube_of(), columns=pd.Index([1, 2, 3])).to_frame().columns[1] == "time"


def test_nobody():
    empty = prediction_of(np.zeros((11, 0, 3)), pd.Index([], dtype=object, name="patient"))
    single = prediction_of(np.zeros((11, 0, 1)), pd.Index([], dtype=object), **SINGLE)
    for table in (empty.mean, empty.std, empty.median, empty.unreached, *empty.interval()):
        assert table.shape == (0, 3)
        pd.testing.assert_index_equal(table.columns, TIMES)
    assert empty.draws.shape == (11, 0, 3)
    assert empty.to_frame().columns.tolist() == ["patient", "time", "mean", "median", "lower", "upper", "extrapolated"]
    assert len(empty.to_frame()) == 0
    assert single.mean.shape == (0,)
    assert single.draws.shape == (11, 0)
    assert single.to_frame().shape == (0, 6)


# ------------------------------------------------------------------------------------------------- one pass, many


def asked(prediction: Prediction) -> list:
    lower, upper = prediction.interval(0.9)
    return [prediction.mean, prediction.std, prediction.median, prediction.unreached, lower, upper]


@pytest.mark.parametrize("infinite", [False, True])
@pytest.mark.parametrize("columns", [TIMES, None], ids=["curve", "number"])
def test_large_predictions_equal_small_ones(monkeypatch, columns, infinite):
    cube = cube_of(times=1 if columns is None else 3)
    if infinite:
        cube[:60, 0] = np.inf
        cube[::3, 3, -1] = np.inf
    small = prediction_of(cube, columns=columns)
    kept = asked(small)
    assert small.blocks.passes == 1
    monkeypatch.setattr(prediction_module, "_KEEP_NUMBERS", 0)
    large = prediction_of(cube, columns=columns)
    for one, other in zip(asked(large), kept, strict=True):
        np.testing.assert_allclose(one.to_numpy(), other.to_numpy(), rtol=1e-13)
        pd.testing.assert_index_equal(one.index, other.index)
    pd.testing.assert_frame_equal(large.to_frame(), small.to_frame())


def test_large_predictions_never_hold_all_draws(monkeypatch):
    monkeypatch.setattr(prediction_module, "_KEEP_NUMBERS", 0)
    prediction = prediction_of(cube_of(people=40))
    prediction.to_frame()
    # The block in hand and the next one, of 20.
    assert prediction.blocks.made == 20
    assert prediction.blocks.most_alive <= 2


def test_the_limit_between_the_two_is_the_number_of_draws_of_everybody(monkeypatch):
    cube = cube_of()
    for limit, passes in ((cube.size, 1), (cube.size - 1, 2)):
        monkeypatch.setattr(prediction_module, "_KEEP_NUMBERS", limit)
        prediction = prediction_of(cube)
        _ = prediction.mean, prediction.std
        assert prediction.blocks.passes == passes


def test_every_summary_of_a_large_prediction_is_made_once_and_those_of_a_table_together(monkeypatch):
    monkeypatch.setattr(prediction_module, "_KEEP_NUMBERS", 0)
    prediction = prediction_of(cube_of())
    prediction.interval(0.9)
    assert prediction.blocks.passes == 1
    prediction.interval(0.9)
    assert prediction.blocks.passes == 1
    prediction.to_frame(0.9)
    assert prediction.blocks.passes == 2
    _ = prediction.mean, prediction.median, prediction.unreached, prediction.quantile(0.5), prediction.to_frame(0.9)
    assert prediction.blocks.passes == 2


def test_draws_that_were_asked_for_are_used(monkeypatch):
    monkeypatch.setattr(prediction_module, "_KEEP_NUMBERS", 0)
    prediction = prediction_of(cube_of())
    assert prediction.draws is prediction.draws
    _ = prediction.mean
    assert prediction.blocks.passes == 1


def test_nobody_in_a_large_prediction(monkeypatch):
    monkeypatch.setattr(prediction_module, "_KEEP_NUMBERS", -1)
    empty = prediction_of(np.zeros((11, 0, 3)), pd.Index([]))
    assert empty.mean.shape == (0, 3)
    assert empty.to_frame().shape == (0, 7)


# -------------------------------------------------------------------------------------------------------- curves


def test_a_curve_is_called_with_times():
    curve = Curve(np.array([0.0, 1.0, 3.0]), np.array([1.0, 0.8, 0.4]))
    assert curve.domain == (0.0, 3.0)
    np.testing.assert_allclose(curve([3, 0, 2, 0.5]), [0.4, 1.0, 0.6, 0.9])
    assert curve(1) == 0.8
    assert curve([]).shape == (0,)


@pytest.mark.parametrize("times", [-0.1, 3.1, [1, 4], [1, float("nan")]])
def test_a_curve_outside_its_domain(times):
    curve = Curve(np.array([0.0, 1.0, 3.0]), np.array([1.0, 0.8, 0.4]))
    with pytest.raises(InputError, match=r"the curve is known from 0 to 3 only; use predict_survival for other times"):
        curve(times)


@pytest.mark.parametrize("people", [1, 2, 3, 5, 9])
def test_the_first_people_are_all_that_is_worked_out(people):
    cube = cube_of()
    whole = prediction_of(cube, index=list("abcde"))
    some = whole.head(people)
    assert some.index.tolist() == list("abcde")[:people]
    np.testing.assert_array_equal(some.draws, cube[:, :people])
    assert whole.blocks.made == -(-min(people, 5) // 2), "blocks of two people"


# ------------------------------------------------------------------------------------------------ pickles and copies


def by_joblib(found, folder):
    joblib.dump(found, folder / "prediction.joblib")
    return joblib.load(folder / "prediction.joblib")


WAYS = {
    "pickle": lambda found, _: pickle.loads(pickle.dumps(found)),
    "joblib": by_joblib,
    "copy": lambda found, _: copy.copy(found),
    "deepcopy": lambda found, _: copy.deepcopy(found),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("single", [False, True])
def test_a_prediction_of_a_model_comes_back_the_same(way, single, tmp_path):
    cohort = small_cohort()
    model = quick_default(hidden=()).fit(cohort.x, cohort.y)
    found = model.predict_median(cohort.x) if single else model.predict_survival(cohort.x, [0.5, 1.0, 90.0])
    again = WAYS[way](found.head(7), tmp_path)
    np.testing.assert_array_equal(again.draws, found.draws[:, :7])
    assert not again.draws.flags.writeable
    pd.testing.assert_frame_equal(again.to_frame(0.8), found.head(7).to_frame(0.8))
    np.testing.assert_array_equal(again.head(3).draws, found.draws[:, :3])
    assert again.extrapolated.tolist() == found.extrapolated.tolist()
    assert pickle.loads(pickle.dumps(again)).mean.equals(again.mean)


def test_a_prediction_too_large_for_a_pickle(monkeypatch):
    monkeypatch.setattr(prediction_module, "_PICKLE_NUMBERS", 1000)
    found = prediction_of(cube_of())
    with pytest.raises(
        InputError, match=r"101 draws for 5 people at 3 columns take 0\.0 GiB and are not pickled; keep"
    ):
        pickle.dumps(found)
    assert found.blocks.passes == 0
    np.testing.assert_array_equal(copy.deepcopy(found).mean, found.mean)


@pytest.mark.parametrize("count", [1, 2, 7, 100])
def test_quantiles_are_those_of_numpy_to_the_last_digit(count):
    cube = np.random.default_rng(count).lognormal(size=(count, 3, 3))
    prediction = prediction_of(cube)
    for probability in (0.0, 0.05, 1 / 3, 0.5, 0.77, 0.95, 1.0):
        expected = np.quantile(cube, probability, axis=0)
        assert (prediction.quantile(probability).to_numpy() == expected).all()
