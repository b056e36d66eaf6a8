"""What is drawn: the lines, bands and labels of every picture, read back from the axes."""

import sys
import warnings

import matplotlib
import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot
from matplotlib.colors import to_hex
from scipy.stats import gamma

from neuralsurv import PaperNeuralSurv
from neuralsurv.data.outcome import Outcome
from neuralsurv.data.simulate import lognormal_cohort
from neuralsurv.errors import InputError, NeuralSurvWarning
from neuralsurv.metrics.kaplan_meier import kaplan_meier
from neuralsurv.model.prior import Gamma, PointMass
from neuralsurv.prediction import plots
from neuralsurv.prediction.prediction import Prediction

matplotlib.use("Agg")


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    pyplot.close("all")


@pytest.fixture
def ax():
    return pyplot.subplots()[1]


def prediction_of(
    cube: np.ndarray, *, index=None, columns=None, extrapolated=None, name: str = "survival", label: str = "time"
) -> Prediction:
    return Prediction(
        name,
        pd.RangeIndex(cube.shape[1]) if index is None else pd.Index(index),
        None if columns is None else pd.Index(columns, name=label),
        np.zeros(cube.shape[2], dtype=bool) if extrapolated is None else np.array(extrapolated),
        len(cube),
        lambda: iter([cube]),
    )


def curves(people: int = 2, times=(0.0, 5.0, 10.0, 20.0), **options) -> Prediction:
    steps = np.random.default_rng(0).exponential(size=(200, people, len(times))) * 0.2
    return prediction_of(np.exp(-steps.cumsum(2)), columns=list(times), **options)


def line(drawn) -> np.ndarray:
    """Return the points of a line, shape (k, 2)."""
    return np.column_stack([drawn.get_xdata(), drawn.get_ydata()])


def band(collection) -> set[tuple[float, float]]:
    """Return the corners of a band."""
    return {(float(x), float(y)) for x, y in collection.get_paths()[0].vertices}


def segments(collection) -> np.ndarray:
    """Return the two ends of each line of hlines or vlines, shape (k, 2, 2)."""
    return np.array(collection.get_segments())


# ---------------------------------------------------------------------------------------------------------- axes


def test_new_axes_are_made_where_none_are_given(ax):
    assert plots.axes(ax) is ax
    before = len(pyplot.get_fignums())
    made = plots.axes()
    assert made is not ax
    assert len(pyplot.get_fignums()) == before + 1


def test_without_matplotlib(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for draw in (plots.axes, curves().plot, lambda: plots.plot_elbo(np.zeros(3))):
        with pytest.raises(InputError, match=r"plots need matplotlib: pip install 'neuralsurv\[plot\]'"):
            draw()


def test_nothing_needs_matplotlib_to_be_imported(monkeypatch, ax):
    """Given axes, only their methods are used."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert plots.plot_elbo(np.arange(3.0), ax=ax) is ax


# -------------------------------------------------------------------------------------------------------- curves


def test_curves_and_their_bands(ax):
    prediction = curves(index=["ann", "bob"])
    assert prediction.plot(0.8, ax) is ax
    lower, upper = prediction.interval(0.8)
    times = prediction.columns.to_numpy()
    assert len(ax.lines) == len(ax.collections) == 2
    for k, drawn in enumerate(ax.lines):
        np.testing.assert_allclose(line(drawn), np.column_stack([times, prediction.median.iloc[k]]))
        assert drawn.get_linestyle() == "-"
        assert drawn.get_color() == plots.COLOURS[k]
        corners = {*zip(times, lower.iloc[k], strict=True), *zip(times, upper.iloc[k], strict=True)}
        assert band(ax.collections[k]) == corners
        assert to_hex(ax.collections[k].get_facecolor()[0]).upper() == plots.COLOURS[k]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["ann", "bob"]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("time", "survival")
    assert ax.get_ylim() == (0, 1.02)
    assert ax.get_xlim() == (0, 20)


def test_the_band_holds_90_percent_unless_told_otherwise():
    prediction = curves(people=1)
    upper = prediction.interval(0.9).upper.to_numpy()
    assert max(y for _, y in band(prediction.plot().collections[0])) == upper.max()


def test_times_in_any_order_are_drawn_in_order(ax):
    prediction = curves(people=1, times=(10.0, 0.0, 5.0))
    prediction.plot(ax=ax)
    order = [1, 2, 0]
    np.testing.assert_allclose(line(ax.lines[0])[:, 0], [0, 5, 10])
    np.testing.assert_allclose(line(ax.lines[0])[:, 1], prediction.median.to_numpy()[0, order])


def test_the_curve_is_dashed_beyond_the_training_range(ax):
    prediction = curves(people=1, times=(20.0, 0.0, 5.0, 10.0), extrapolated=[True, False, False, True])
    prediction.plot(ax=ax)
    median = prediction.median.iloc[0]
    solid, dashed = ax.lines
    assert (solid.get_linestyle(), dashed.get_linestyle()) == ("-", "--")
    np.testing.assert_allclose(line(solid), [[0, median[0]], [5, median[5]]])
    # It starts where the solid piece ends.
    np.testing.assert_allclose(line(dashed), [[5, median[5]], [10, median[10]], [20, median[20]]])
    assert solid.get_color() == dashed.get_color()
    assert sorted({x for x, _ in band(ax.collections[0])}) == [0, 5, 10, 20]


def test_a_curve_that_lies_beyond_the_training_range_altogether(ax):
    curves(people=1, times=(30.0, 40.0), extrapolated=[True, True]).plot(ax=ax)
    solid, dashed = ax.lines
    assert len(line(solid)) == 0
    np.testing.assert_allclose(line(dashed)[:, 0], [30, 40])


def test_without_a_band(ax):
    curves().plot(ax=ax, band=False)
    assert len(ax.collections) == 0
    assert len(ax.lines) == 2


def test_labels_are_the_names_in_the_legend(ax):
    curves(people=1).plot(ax=ax, labels=["me"])
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["me"]


def test_one_curve_needs_no_legend(ax):
    assert curves(people=1).plot(ax=ax).get_legend() is None


@pytest.mark.parametrize("labels", [["a"], ["a", "b", "c"]])
def test_wrong_number_of_labels(labels):
    with pytest.raises(InputError, match=rf"X has 2 rows and labels has {len(labels)}; give one for each row"):
        curves().plot(labels=labels)
    assert not pyplot.get_fignums(), "an empty figure was left behind"


def test_too_many_curves():
    assert len(curves(people=30).plot().lines) == 30
    with pytest.raises(InputError, match=r"31 curves in one picture cannot be read; choose at most 30 rows of X"):
        curves(people=31).plot()


def test_only_survival_is_drawn_from_0_to_1(ax):
    prediction = prediction_of(np.full((3, 1, 2), 7.0), columns=[1, 2], name="cumulative hazard")
    prediction.plot(ax=ax)
    assert ax.get_ylim()[1] > 7
    assert ax.get_ylabel() == "cumulative hazard"


def test_nobody(ax):
    assert curves(people=0).plot(ax=ax) is ax
    assert len(ax.lines) == 0


def test_a_band_without_an_upper_end_goes_to_the_top(ax):
    cube = np.tile(np.array([10.0, 20.0, 30.0]), (10, 1, 1))
    cube[:2, 0, 1] = np.inf
    cube[:7, 0, 2] = np.inf
    prediction = prediction_of(cube, columns=[0.2, 0.5, 0.8], label="q", name="event time quantile")
    prediction.plot(ax=ax)
    top = 1.1 * 30
    assert ax.get_ylim()[1] == pytest.approx(top)
    assert band(ax.collections[0]) == {(0.2, 10.0), (0.5, 20.0), (0.8, 30.0), (0.5, top), (0.8, top)}
    assert ax.lines[0].get_ydata().tolist() == [10, 20, np.inf]
    assert ax.get_xlabel() == "q"


# ----------------------------------------------------------------------------------------------- one number a person


def test_one_number_for_each_person(ax):
    cube = np.random.default_rng(0).gamma(5.0, size=(50, 3, 1))
    prediction = prediction_of(cube, index=["a", "b", "c"], name="median event time")
    assert prediction.plot(0.5, ax) is ax
    lower, upper = prediction.interval(0.5)
    drawn = segments(ax.collections[0])
    np.testing.assert_allclose(drawn[:, 0, 0], lower)
    np.testing.assert_allclose(drawn[:, 1, 0], upper)
    # The first person is at the top.
    assert drawn[:, 0, 1].tolist() == [2, 1, 0]
    np.testing.assert_allclose(line(ax.lines[0]), np.column_stack([prediction.median, [2, 1, 0]]))
    shown = dict(zip(ax.get_yticks(), (text.get_text() for text in ax.get_yticklabels()), strict=True))
    assert shown == {2: "a", 1: "b", 0: "c"}
    assert ax.get_xlabel() == "median event time"
    assert len(ax.lines) == 1


def test_intervals_without_an_upper_end_are_drawn_with_an_arrow(ax):
    cube = np.tile(np.array([10.0, 20.0, 30.0])[:, None], (10, 1, 1))
    cube[:2, 1] = np.inf  # the upper end is infinite
    cube[:, 2] = np.inf  # everything is
    prediction = prediction_of(cube, name="median event time")
    prediction.plot(ax=ax)
    ax.figure.canvas.draw()
    edge = 1.1 * 20
    np.testing.assert_allclose(segments(ax.collections[0])[:, :, 0], [[10, 10], [20, edge], [edge, edge]])
    medians, arrows = ax.lines
    np.testing.assert_allclose(line(medians), [[10, 2], [20, 1]])
    assert arrows.get_marker() == ">"
    np.testing.assert_allclose(line(arrows), [[edge, 1], [edge, 0]])


def test_intervals_of_nothing_but_infinity(ax):
    prediction_of(np.full((4, 2, 1), np.inf)).plot(ax=ax)
    ax.figure.canvas.draw()
    assert np.isfinite(line(ax.lines[-1])).all()


# ----------------------------------------------------------------------------------------------- other pictures


def test_elbo(ax):
    bound = np.array([-9.0, -5.0, -4.5])
    assert plots.plot_elbo(bound, ax=ax) is ax
    np.testing.assert_allclose(line(ax.lines[0]), np.column_stack([[1, 2, 3], bound]))
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("sweep", "ELBO (nats)")


def test_phi(ax):
    posterior, prior = Gamma(8.0, 4.0), Gamma(1.0, 2.0)
    assert plots.plot_phi(posterior, prior, ax=ax) is ax
    for drawn, density, name in zip(ax.lines, (prior, posterior), ("prior", "posterior"), strict=True):
        grid = drawn.get_xdata()
        np.testing.assert_allclose(drawn.get_ydata(), gamma.pdf(grid, density.shape, scale=1 / density.rate))
        assert drawn.get_label() == name
        assert grid.max() >= posterior.quantile(0.999)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["prior", "posterior"]
    assert ax.get_ylim()[0] == 0
    assert ax.get_xlabel().startswith("phi")


def test_a_fixed_phi_has_no_density(ax):
    with pytest.raises(InputError, match="phi is fixed in this model, so it has no density; only the paper's model"):
        plots.plot_phi(PointMass(2.0), PointMass(2.0), ax=ax)
    assert not ax.lines


def test_partial_dependence_on_a_number(ax):
    cube = np.random.default_rng(0).gamma(5.0, size=(50, 1, 4))
    prediction = prediction_of(cube, columns=[1.0, 2.0, 3.0, 4.0], label="age", name="mean")
    assert plots.plot_partial_dependence(prediction, level=0.5, ax=ax) is ax
    lower, upper = prediction.interval(0.5)
    np.testing.assert_allclose(line(ax.lines[0]), np.column_stack([[1, 2, 3, 4], prediction.median.iloc[0]]))
    corners = {*zip([1, 2, 3, 4], lower.iloc[0], strict=True), *zip([1, 2, 3, 4], upper.iloc[0], strict=True)}
    assert band(ax.collections[0]) == corners
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("age", "mean")


@pytest.mark.parametrize("values", [["high", "low", "none"], [0, 1], [False, True]])
def test_partial_dependence_on_a_category(ax, values):
    cube = np.random.default_rng(0).gamma(5.0, size=(50, 1, len(values)))
    prediction = prediction_of(cube, columns=values, label="dose")
    plots.plot_partial_dependence(prediction, ax=ax)
    lower, upper = prediction.interval(0.9)
    places = np.arange(len(values))
    drawn = segments(ax.collections[0])
    np.testing.assert_allclose(drawn[:, 0], np.column_stack([places, lower.iloc[0]]))
    np.testing.assert_allclose(drawn[:, 1], np.column_stack([places, upper.iloc[0]]))
    np.testing.assert_allclose(line(ax.lines[0]), np.column_stack([places, prediction.median.iloc[0]]))
    assert [text.get_text() for text in ax.get_xticklabels()] == [str(value) for value in values]


def test_calibration(ax):
    rng = np.random.default_rng(0)
    outcome = Outcome.from_arrays(rng.exponential(size=23), rng.random(23) < 0.7)
    predicted = rng.random(23)
    assert plots.plot_calibration(predicted, outcome, 0.8, 3, ax=ax) is ax
    diagonal, *dots = ax.lines
    np.testing.assert_allclose(line(diagonal), [[0, 0], [1, 1]])
    groups = np.array_split(np.argsort(predicted), 3)
    assert sorted(len(rows) for rows in groups) == [7, 8, 8]
    for rows, dot, bar in zip(groups, dots, ax.collections, strict=True):
        observed, low, high = kaplan_meier(outcome.select(rows), 0.8)
        middle = predicted[rows].mean()
        np.testing.assert_allclose(line(dot), [[middle, observed]])
        np.testing.assert_allclose(segments(bar)[0], [[middle, low], [middle, high]])
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("predicted survival at 0.8", "observed (Kaplan–Meier, 90 % interval)")


@pytest.mark.parametrize("groups", [1, 6])
def test_calibration_with_a_bad_number_of_groups(groups):
    outcome = Outcome.from_arrays(np.arange(1.0, 12.0), np.ones(11))
    with pytest.raises(InputError, match=rf"groups={groups} does not suit 11 rows; use 2 to 5"):
        plots.plot_calibration(np.linspace(0, 1, 11), outcome, 2, groups)


# ------------------------------------------------------------------------------------- methods of the estimator


@pytest.fixture(scope="module")
def cohort():
    cohort = lognormal_cohort(60, noise=1, seed=2)
    x = cohort.x.assign(treated=cohort.x["group"] == 1, ward=pd.Categorical(np.resize(["n", "s", "w"], 60)))
    return x.drop(columns="group"), cohort.y


@pytest.fixture(scope="module")
def model(cohort):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NeuralSurvWarning)
        return PaperNeuralSurv(
            hidden=(3,), quadrature_points=30, starts=1, draws=40, verbose=False, random_state=0
        ).fit(*cohort)


def test_survival_of_the_estimator(model, cohort, ax):
    X = cohort[0].head(2)
    assert model.plot_survival(X, ax=ax, level=0.5) is ax
    grid = np.linspace(0, model.time_scale_, 101)
    prediction = model.predict_survival(X, grid)
    np.testing.assert_allclose(line(ax.lines[1]), np.column_stack([grid, prediction.median.iloc[1]]))
    corners = {*zip(grid, prediction.interval(0.5).lower.iloc[0], strict=True)}
    assert corners <= band(ax.collections[0])


def test_survival_of_the_estimator_at_given_times(model, cohort, ax):
    last = model.time_scale_
    model.plot_survival(cohort[0].head(1), [0, last / 2, last, 2 * last], ax=ax, labels=["first"], band=False)
    solid, dashed = ax.lines
    np.testing.assert_allclose(solid.get_xdata(), [0, last / 2, last])
    np.testing.assert_allclose(dashed.get_xdata(), [last, 2 * last])
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["first"]


def test_hazard_of_the_estimator(model, cohort, ax):
    X = cohort[0].head(1)
    assert model.plot_hazard(X, ax=ax) is ax
    grid = np.linspace(model.time_scale_ / 200, model.time_scale_, 101)
    np.testing.assert_allclose(line(ax.lines[0]), np.column_stack([grid, model.predict_hazard(X, grid).median.iloc[0]]))
    assert ax.get_ylabel() == "hazard"
    model.plot_hazard(X, [1, 2], ax=ax)
    np.testing.assert_allclose(ax.lines[-1].get_xdata(), [1, 2])


def test_elbo_of_the_estimator(model, ax):
    assert model.plot_elbo(ax=ax) is ax
    np.testing.assert_allclose(ax.lines[0].get_ydata(), model.elbo_)


def test_calibration_of_the_estimator(model, cohort, ax):
    X, y = cohort
    assert model.plot_calibration(X, y, 15, groups=4, ax=ax) is ax
    predicted = model.predict_mean_survival(X, [15]).to_numpy()[:, 0]
    rows = np.argsort(predicted, kind="stable")[:15]
    observed, _, _ = kaplan_meier(Outcome.from_any(y).select(rows), 15)
    np.testing.assert_allclose(line(ax.lines[1]), [[predicted[rows].mean(), observed]])
    assert len(ax.collections) == 4


@pytest.mark.parametrize(("rows", "outcomes"), [(20, 30), (30, 20)])
def test_calibration_of_unequal_tables(model, cohort, rows, outcomes):
    (time, event), X = cohort[1], cohort[0]
    message = f"X has {rows} rows but y has {outcomes}; both need one for each row"
    with pytest.raises(InputError, match=message):
        model.plot_calibration(X.head(rows), (time[:outcomes], event[:outcomes]), 15)


def test_partial_dependence_of_the_estimator_on_a_number(model, cohort, ax):
    X = cohort[0].head(12)
    assert model.plot_partial_dependence(X, "noise1", horizon=20, grid=3, level=0.5, ax=ax) is ax
    low, high = X["noise1"].quantile([0.02, 0.98])
    values = [low, (low + high) / 2, high]
    averages = np.stack([model.predict_rmst(X.assign(noise1=value), 20).draws.mean(1) for value in values], axis=1)
    np.testing.assert_allclose(line(ax.lines[0]), np.column_stack([values, np.median(averages, axis=0)]))
    prediction = model.partial_dependence(X, "noise1", horizon=20, grid=3)
    np.testing.assert_allclose(prediction.draws[:, 0], averages)
    assert prediction.columns.name == ax.get_xlabel() == "noise1"
    assert prediction.name == ax.get_ylabel() == "restricted mean survival time to 20"
    assert not prediction.extrapolated.any()
    assert "noise1" in X.columns
    assert X["noise1"].nunique() == 12, "the table of the user was changed"


@pytest.mark.parametrize(("feature", "values"), [("treated", [False, True]), ("ward", ["n", "s", "w"])])
def test_partial_dependence_of_the_estimator_on_a_category(model, cohort, feature, values):
    X = cohort[0].head(12)
    prediction = model.partial_dependence(X, feature)
    assert prediction.columns.tolist() == values
    for k, value in enumerate(values):
        constant = pd.Series([value] * 12, X.index).astype(X[feature].dtype)
        expected = model.predict_rmst(X.assign(**{feature: constant}), model.time_scale_).draws.mean(1)
        np.testing.assert_allclose(prediction.draws[:, 0, k], expected)
    drawn = model.plot_partial_dependence(X, feature)
    assert [text.get_text() for text in drawn.get_xticklabels()] == [str(value) for value in values]


def test_partial_dependence_beyond_the_training_range_is_marked(model, cohort):
    prediction = model.partial_dependence(cohort[0].head(3), "treated", horizon=2 * model.time_scale_)
    assert prediction.extrapolated.all()


def test_partial_dependence_on_an_unknown_column(model, cohort):
    message = r"there is no column 'age'; the columns are noise1, treated, ward"
    with pytest.raises(InputError, match=message):
        model.plot_partial_dependence(cohort[0], "age")


def test_partial_dependence_of_nobody(model, cohort):
    with pytest.raises(InputError, match=r"column 'noise1' has no value in the 0 rows of X; there is nothing to vary"):
        model.partial_dependence(cohort[0].head(0), "noise1")
