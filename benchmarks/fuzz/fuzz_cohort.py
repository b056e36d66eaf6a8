"""One cohort through the library: curves or one of our errors come back, and anything else is broken."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pandas as pd
from fuzz_faults import faults, judged
from fuzz_inputs import Recipe, covariates, outcome

from neuralsurv import NeuralSurv, PaperNeuralSurv
from neuralsurv.data.cohort import Cohort, canonical_cohort
from neuralsurv.data.features import Encoding
from neuralsurv.data.table import check_episodes, separate_outcome
from neuralsurv.errors import InputError, NeuralSurvError, NeuralSurvWarning
from neuralsurv.prediction.prediction import Prediction
from neuralsurv.prediction.predictor import Predictor

SLACK = 1e-9
ESTIMATORS = {"default": NeuralSurv, "paper": PaperNeuralSurv}


class BrokenPromiseError(AssertionError):
    """The library did what it promises never to do."""


@contextmanager
def only_our_warnings() -> Iterator[None]:
    """Fail on any warning that is not one of ours."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for warning in caught:
        if not issubclass(warning.category, NeuralSurvWarning):
            raise BrokenPromiseError(f"a warning that is not ours: {warning.category.__name__}: {warning.message}")


def attempt(action: Any) -> tuple[Any, NeuralSurvError | None]:
    """Return what an action gives, or which of our errors it raises."""
    try:
        with only_our_warnings():
            return action(), None
    except NeuralSurvError as error:
        if len(str(error)) < 15 or "Traceback" in str(error):
            raise BrokenPromiseError(f"an error without a sentence: {error!r}") from error
        return None, error


def _check_refusal(recipe: Recipe, error: NeuralSurvError | None) -> None:
    """Compare what was refused with what is wrong, where the second reading covers the recipe."""
    if not judged(recipe):
        return
    words = faults(recipe)
    if error is None and words:
        raise BrokenPromiseError(f"accepted, though at fault: {words}")
    if isinstance(error, InputError) and not any(word in str(error) for word in words):
        raise BrokenPromiseError(f"the error names none of the faults {words}: {error}")


def _inputs(recipe: Recipe) -> tuple[Any, Any, dict[str, Any]]:
    X = covariates(recipe)
    y, more, X = outcome(recipe, X)
    return X, y, more


def read_only(recipe: Recipe) -> dict[str, int]:
    """Take a cohort up to the numbers that a fit would see, and new rows through the same encoding."""
    X, y, more = _inputs(recipe)

    def numbers() -> tuple[Encoding, Cohort]:
        given = dict.fromkeys(("time", "event", "entry", "weight", "id")) | more
        frame, checked, subject, _ = separate_outcome(X, y, given)
        present = checked.weight > 0
        if not present.any():
            raise InputError(f"every one of the {len(checked)} rows has a weight of zero; there is nothing to fit.")
        frame, checked = frame[present], checked.select(present)
        checked.check_fittable()
        if subject is not None:
            check_episodes(subject[present], checked.entry, checked.time, checked.event)
        encoding = Encoding.fit(
            frame,
            checked.risk_weight(),
            events=checked.event_weight(),
            standardise=recipe["settings"].get("standardise", True),
            like=X,
        )
        encoding.check_flat()
        x = encoding.transform(frame)
        scale = checked.time.max()
        return encoding, canonical_cohort(
            Cohort.of(checked.time / scale, checked.event, checked.entry / scale, checked.weight, x)
        )

    made, error = attempt(numbers)
    _check_refusal(recipe, error)
    if error is not None:
        return {"refused": 1}
    encoding, cohort = made
    for name in ("time", "entry", "weight", "x"):
        if not np.isfinite(getattr(cohort, name).numpy()).all():
            raise BrokenPromiseError(f"{name} is not finite after it was read")
    if not ((cohort.entry < cohort.time).all() and (cohort.entry >= 0).all() and (cohort.time <= 1).all()):
        raise BrokenPromiseError("scaled rows do not lie in [0, 1]")
    counts = {"accepted": 1}
    for ask in recipe["asks"]:
        table = changed(recipe, ask)
        encoded, error = attempt(lambda table=table: encoding.transform(table))
        _check_blame(recipe, ask, error)
        if error is None and not (np.isfinite(encoded).all() and encoded.shape[1] == len(encoding.outputs)):
            raise BrokenPromiseError("new rows are not finite after they were encoded")
    return counts


def fit_and_ask(recipe: Recipe) -> dict[str, int]:
    """Fit a cohort and ask for predictions."""
    X, y, more = _inputs(recipe)
    settings = {name: tuple(value) if isinstance(value, list) else value for name, value in recipe["settings"].items()}
    model = ESTIMATORS[settings.pop("preset")](**settings, verbose=False, random_state=0)
    arguments = {"sample_weight" if name == "weight" else name: value for name, value in more.items()}
    _, error = attempt(lambda: model.fit(X, y, **arguments))
    _check_refusal(recipe, error)
    if error is not None:
        return {"refused" if isinstance(error, InputError) else "gave up": 1}
    counts = {"fitted": 1}
    for ask in recipe["asks"]:
        outcome_of_ask = "answered" if _ask(model, recipe, ask) else "refused"
        counts[f"asked: {outcome_of_ask}"] = counts.get(f"asked: {outcome_of_ask}", 0) + 1
    return counts


def changed(recipe: Recipe, ask: dict[str, Any]) -> Any:
    """Return the rows that a prediction is asked for: those of training, changed."""
    change, place = ask["change"], ask.get("column", 0)
    columns = [{**column, "cells": list(column["cells"])} for column in recipe["columns"]]
    now = {**recipe, "columns": columns}
    own = columns[place] if place < len(columns) else None
    if change == "container":
        now["container"] = "array" if recipe["container"] == "frame" else "frame"
    elif change == "duplicate index":
        now["index"] = "duplicate"
    elif change == "reorder":
        columns.reverse()
    elif change == "extra":
        columns.append(
            {"name": "further", "type": "float64", "cells": [1.0] * len(columns[0]["cells"]) if columns else []}
        )
    elif own is not None:
        _change_column(change, columns, own)
    if change in ("no rows", "one row"):
        for column in columns:
            column["cells"] = column["cells"][: 0 if change == "no rows" else 1]
    table = covariates(now)
    return outcome(now, table)[2] if recipe["outcome"]["form"] == "names" and change != "no rows" else table


def _change_column(change: str, columns: list[dict[str, Any]], own: dict[str, Any]) -> None:
    if change == "drop":
        columns.remove(own)
    elif change == "repeat name":
        columns.append(dict(own))
    elif change == "rename":
        own["name"] = "elsewhere"
    elif change == "retype":
        own["type"] = "str" if own["type"] != "str" else "float64"
        own["cells"] = [str(cell) for cell in own["cells"]] if own["type"] == "str" else [1.0 for _ in own["cells"]]
    elif own["cells"]:
        put = {"unseen": "never seen", "gap": None, "wild": 1.5e308, "infinite": "inf"}
        numeric = own["type"] not in ("str", "string", "category", "object", "string[pyarrow]")
        if (
            change in put
            and not (numeric and change == "unseen")
            and not (not numeric and change in ("wild", "infinite"))
        ):
            own["cells"][0] = put[change]


_AT_FAULT = {"drop": "is missing", "rename": "is missing", "infinite": "is infinite", "repeat name": "more than once"}


def _check_blame(recipe: Recipe, ask: dict[str, Any], error: NeuralSurvError | None) -> None:
    """Check that a column that was spoilt is refused and named."""
    if not judged(recipe) or ask["change"] not in _AT_FAULT or not recipe["columns"]:
        return
    column = recipe["columns"][min(ask.get("column", 0), len(recipe["columns"]) - 1)]
    if ask["change"] == "infinite" and column["type"] not in ("float64", "float32", "Float64"):
        return
    words = (f"column {column['name']!r}", _AT_FAULT[ask["change"]])
    if error is None or not all(word in str(error) for word in words):
        raise BrokenPromiseError(f"the change {ask['change']!r} must be refused with the words {words}, but: {error}")


def _times(given: Any) -> Any:
    return [float(value) if value in ("nan", "inf") else value for value in given] if isinstance(given, list) else given


def _usual(times: Any) -> bool:
    return isinstance(times, list) and len(times) > 0 and all(isinstance(time, float) for time in times)


def _ask(model: NeuralSurv | PaperNeuralSurv, recipe: Recipe, ask: dict[str, Any]) -> bool:
    """Ask for one prediction; return whether it was answered."""
    X, times, what = changed(recipe, ask), _times(ask["times"]), ask["what"]
    first = times[0] if isinstance(times, list) and times else times
    y, more, _ = outcome(recipe, covariates(recipe))
    actions = {
        "g": lambda: Predictor.from_fitted(model.fitted_, model.draws).g(X, times),
        "conditional": lambda: model.predict_conditional_survival(X, times, first),
        "quantile": lambda: model.predict_quantile(X, [0.1, 0.5, 0.999] if _usual(times) else times),
        "median": lambda: model.predict_median(X),
        "event_time": lambda: model.predict_event_time(X),
        "rmst": lambda: model.predict_rmst(X, times[-1] if isinstance(times, list) and times else times),
        "difference": lambda: model.predict_difference(X, X, times),
        "risk": lambda: model.predict(X),
        "function": lambda: model.predict_survival_function(X),
        "score": lambda: model.score(X, y if y is not None else (more.get("time"), more.get("event"))),
        "path": lambda: model.predict_survival_path(
            X, times, entry=more.get("entry"), time=more.get("time"), id=more.get("id")
        ),
    }
    action = actions.get(what, lambda: getattr(model, f"predict_{what}")(X, times))
    # A prediction is worked out when it is looked at, so that looking belongs to asking.
    given, error = attempt(lambda: _looked_at(action()))
    # What is wrong with the times may be said before what is wrong with a column.
    spoilt = error is not None and re.match(
        r"times |q=|given|horizon|a prediction is asked for|give either|there is|y |the hazard at time 0", str(error)
    )
    if not spoilt and what not in ("score", "path"):
        _check_blame(recipe, ask, error)
    if error is None:
        _check_given(what, given, X, times, model)
    return error is None


def _looked_at(given: Any) -> Any:
    if isinstance(given, Prediction):
        given.arrays()
        given.to_frame()
        _ = given.std
    return given


def _check_given(what: str, given: Any, X: Any, times: Any, model: NeuralSurv | PaperNeuralSurv) -> None:
    rows = len(X) if hasattr(X, "__len__") and not isinstance(X, dict) else None
    if isinstance(X, dict):
        rows = len(next(iter(X.values())))
    if what == "score":
        if not 0 <= given <= 1:
            raise BrokenPromiseError(f"the score is {given}")
        return
    if what == "risk":
        if np.shape(given) != (rows,) or not np.isfinite(given).all() or (given < 0).any():
            raise BrokenPromiseError(f"risk scores of shape {np.shape(given)} for {rows} rows: {given}")
        return
    if what == "function":
        if len(given) != rows or any(
            not np.isfinite(curve.y).all() or (np.diff(curve.y) > SLACK).any() for curve in given
        ):
            raise BrokenPromiseError("a survival function is missing, not finite or not monotone")
        return
    _check_prediction(what, given, X, rows, times)


def _check_prediction(what: str, given: Prediction, X: Any, rows: int | None, times: Any) -> None:
    draws = given.draws if given.columns is not None else given.draws[:, :, None]
    if what != "path" and (draws.shape[1] != rows or len(given.mean) != rows):
        raise BrokenPromiseError(f"{what} of {draws.shape[1]} people for {rows} rows")
    if isinstance(X, pd.DataFrame) and what != "path" and not given.mean.index.equals(X.index):
        raise BrokenPromiseError(f"the index of {what} is not that of X")
    for name, table in (("draws", draws), ("std", given.std), *given.arrays().items()):
        if np.isnan(np.asarray(table)).any():
            raise BrokenPromiseError(f"{what}: {name} holds NaN")
    if what in ("quantile", "median", "event_time"):
        # Infinite by definition where the curve does not come so far within the training range.
        if (draws <= 0).any():
            raise BrokenPromiseError(f"{what} is not positive")
        return
    if not np.isfinite(draws).all():
        raise BrokenPromiseError(f"{what} is not finite")
    if what in ("survival", "conditional", "path") and ((draws < 0).any() or (draws > 1).any()):
        raise BrokenPromiseError(f"{what} leaves [0, 1]")
    if what in ("hazard", "cumulative_hazard", "rmst") and (draws < 0).any():
        raise BrokenPromiseError(f"{what} is negative")
    horizon = times[-1] if isinstance(times, list) else times
    if what == "rmst" and (draws > horizon * (1 + SLACK)).any():
        raise BrokenPromiseError("the restricted mean is beyond its horizon")
    if what in ("survival", "conditional", "path", "cumulative_hazard"):
        order = np.argsort(np.atleast_1d(np.asarray(times, dtype=float)), kind="stable")
        steps = np.diff(draws[:, :, order], axis=2) * (-1 if what == "cumulative_hazard" else 1)
        if (steps > SLACK * np.maximum(1, np.abs(draws[:, :, order][:, :, 1:]))).any():
            raise BrokenPromiseError(f"{what} is not monotone")
