"""What must hold of every prediction, whatever the cohort: random small tables of every kind of column."""

import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from neuralsurv import PaperNeuralSurv
from neuralsurv.errors import NeuralSurvWarning
from neuralsurv.prediction.predictor import Predictor

# Derandomised, so that the run of today is that of tomorrow.
EXAMPLES = settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
DRAWS = 30
NUMBERS = st.floats(-1e3, 1e3, allow_nan=False).map(lambda value: round(value, 3))


def column(draw: st.DrawFn, kind: str, rows: int) -> pd.Series:
    """Return a column of some kind that is not constant."""
    if kind in ("float", "float32", "Float64", "gaps"):
        values = draw(st.lists(NUMBERS, min_size=rows, max_size=rows))
        values[:2] = [-1.0, 1.0]
        series = pd.Series(values, dtype="float64" if kind == "gaps" else kind)
        return series.mask(np.arange(rows) % 5 == 3) if kind == "gaps" else series
    if kind in ("int", "uint8"):
        values = draw(st.lists(st.integers(0, 200), min_size=rows, max_size=rows))
        return pd.Series([0, 200, *values[2:]], dtype="int64" if kind == "int" else kind)
    if kind == "bool":
        flags = draw(st.lists(st.booleans(), min_size=rows, max_size=rows))
        return pd.Series([True, False, *flags[2:]])
    levels = draw(st.lists(st.sampled_from(["a", "b", "c d"]), min_size=rows, max_size=rows))
    return pd.Series(["a", "b", *levels[2:]], dtype={"text": object, "category": "category"}[kind])


@st.composite
def fits(draw: st.DrawFn):
    """Return a fitted model, rows to predict for, and times inside and outside the training range."""
    rows = draw(st.integers(4, 16))
    kinds = st.sampled_from(["float", "float32", "Float64", "gaps", "int", "uint8", "bool", "text", "category"])
    X = pd.DataFrame(
        {f"column{k}": column(draw, kind, rows) for k, kind in enumerate(draw(st.lists(kinds, min_size=1, max_size=3)))}
    )
    unit = 10.0 ** draw(st.integers(-3, 4))
    time = unit * np.array(draw(st.lists(st.integers(1, 50), min_size=rows, max_size=rows)), dtype=float)
    event = np.array([True, *draw(st.lists(st.booleans(), min_size=rows - 1, max_size=rows - 1))])
    model = PaperNeuralSurv(
        hidden=(2,),
        activation=draw(st.sampled_from(["relu", "tanh", "silu"])),
        rho=draw(st.sampled_from([0.6, 1.0, 1.5])),
        quadrature=draw(st.sampled_from(["trapezoid", "gauss-legendre"])),
        quadrature_points=15,
        starts=1,
        max_sweeps=20,
        draws=DRAWS,
        verbose=False,
        random_state=draw(st.integers(0, 2**31 - 1)),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NeuralSurvWarning)
        model.fit(X, (time, event))
    shares = draw(st.lists(st.floats(0, 2), min_size=1, max_size=6))
    return model, X.head(3), model.time_scale_ * np.array(shares)


def summaries(prediction) -> dict[str, np.ndarray]:
    lower, upper = prediction.interval(0.9)
    parts = {"mean": prediction.mean, "median": prediction.median, "lower": lower, "upper": upper}
    return {name: np.asarray(part) for name, part in parts.items()}


def check_any(prediction, low: float, high: float) -> None:
    """Check what holds of finite draws of anything, and that they lie between two values."""
    draws = prediction.draws
    assert np.isfinite(draws).all()
    # A sum over draws may round the last digit of their mean.
    slack = 1e-12 * max(1.0, float(np.abs(draws).max()))
    assert draws.min() >= low - slack
    assert draws.max() <= high + slack
    found = summaries(prediction)
    assert (found["mean"] >= draws.min(0) - slack).all()
    assert (found["mean"] <= draws.max(0) + slack).all()
    inner = prediction.interval(0.5)
    assert (found["lower"] <= np.asarray(inner.lower)).all()
    assert (np.asarray(inner.lower) <= found["median"]).all()
    assert (found["median"] <= np.asarray(inner.upper)).all()
    assert (np.asarray(inner.upper) <= found["upper"]).all()
    assert (np.asarray(prediction.unreached) == 0).all()


def check_times(prediction, last: float) -> None:
    """Check what holds of times of an event: positive and within the range, or infinite."""
    draws = prediction.draws
    reached = np.isfinite(draws)
    assert (draws > 0).all()
    assert (draws[reached] <= last * (1 + 1e-12)).all()
    np.testing.assert_allclose(np.asarray(prediction.unreached), 1 - reached.mean(0), atol=1e-12)
    found = summaries(prediction)
    assert (found["lower"] <= found["median"]).all()
    assert (found["median"] <= found["upper"]).all()
    assert (np.isinf(found["mean"]) == ~reached.all(0)).all()


@EXAMPLES
@given(fits())
def test_every_prediction(fit):
    model, X, times = fit
    last = model.time_scale_

    survival = model.predict_survival(X, times)
    check_any(survival, 0.0, 1.0)
    assert survival.draws.shape == (DRAWS, 3, len(times))
    order = np.argsort(times)
    assert (np.diff(survival.draws[:, :, order], axis=2) <= 0).all()
    assert (survival.draws[:, :, times == 0] == 1).all()
    assert (survival.extrapolated == (times > last)).all()

    cumulative = model.predict_cumulative_hazard(X, times)
    check_any(cumulative, 0.0, np.inf)
    np.testing.assert_allclose(np.exp(-cumulative.draws), survival.draws, atol=1e-12)
    check_any(model.predict_hazard(X, np.maximum(times, last / 1e3)), 0.0, np.inf)
    check_any(Predictor.from_fitted(model.fitted_, DRAWS).g(X, times), -np.inf, np.inf)

    conditional = model.predict_conditional_survival(X, times, last / 3)
    check_any(conditional, 0.0, 1.0)
    assert (conditional.draws[:, :, times <= last / 3] == 1).all()

    for horizon in (last / 7, last, 1.5 * last):
        check_any(model.predict_rmst(X, horizon), 0.0, horizon)
    check_any(model.predict_difference(X, X.head(1), times), -1.0, 1.0)
    assert (model.predict_difference(X, X, horizon=last).draws == 0).all()

    quantiles = model.predict_quantile(X, [0.05, 0.25, 0.5, 0.75, 0.95])
    check_times(quantiles, last)
    earlier, later = quantiles.draws[:, :, :-1], quantiles.draws[:, :, 1:]
    assert (earlier <= later).all()
    check_times(model.predict_median(X), last)
    check_times(model.predict_event_time(X), last)

    risk = model.predict(X)
    assert np.isfinite(risk).all()
    assert (risk >= 0).all()

    frame = survival.to_frame()
    assert len(frame) == 3 * len(times)
    assert np.isfinite(frame[["mean", "median", "lower", "upper"]]).all(axis=None)
    assert model.predict_survival(X.head(0), times).to_frame().columns.tolist() == frame.columns.tolist()


def test_the_examples_are_not_all_alike():
    """The strategy makes several kinds of columns, reached and unreached medians, and times in and out of range."""
    seen = {"dtypes": set(), "unreached": set(), "beyond": set()}

    @EXAMPLES
    @given(fits())
    def collect(fit):
        model, X, times = fit
        seen["dtypes"] |= {str(dtype) for dtype in X.dtypes}
        seen["unreached"] |= set((model.predict_median(X).unreached > 0).tolist())
        seen["beyond"] |= set((times > model.time_scale_).tolist())

    collect()
    assert len(seen["dtypes"]) >= 4
    assert seen["unreached"] == seen["beyond"] == {True, False}


def test_the_check_finds_what_is_wrong():
    """A check that never fails would prove nothing."""
    model = PaperNeuralSurv(hidden=(2,), quadrature_points=15, starts=1, max_sweeps=20, draws=DRAWS, random_state=0)
    X = pd.DataFrame({"a": [0.0, 1.0, 2.0, 3.0]})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NeuralSurvWarning)
        model.fit(X, (np.array([1.0, 2.0, 3.0, 4.0]), np.ones(4, dtype=bool)))
    hazard = model.predict_cumulative_hazard(X, [4.0])
    with pytest.raises(AssertionError):
        check_any(hazard, 0.0, float(hazard.draws.max()) - 0.01)
    with pytest.raises(AssertionError):
        check_times(model.predict_median(X), 0.01)
