"""The people that a report shows: some from low to high risk, and those with the widest intervals."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from neuralsurv.errors import InputError
from neuralsurv.estimator.base import SurvivalEstimator
from neuralsurv.report.svg import number

SHARES = (0.9, 0.7, 0.5, 0.3, 0.1)
_MOST_PEOPLE = 7
_RARE = 0.05


@dataclass(frozen=True)
class ShownPeople:
    """The people whose curves are drawn."""

    names: tuple[str, ...]  # what they are called
    values: tuple[str, ...]  # for each the covariates, in words
    times: np.ndarray  # times of the curves, shape (T,)
    # Survival, with its band, shape (k, T).
    median: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    # For each the median event time with its interval; infinite where the curve does not fall to one half.
    half: tuple[tuple[float, float, float], ...]
    mean: tuple[tuple[float, float, float], ...]  # for each the restricted mean with its interval


@dataclass(frozen=True)
class LeastCertain:
    """Where the model is least certain."""

    names: tuple[str, ...]  # people with the widest intervals of the restricted mean, the widest first
    mean: tuple[tuple[float, float, float], ...]  # their restricted mean with its interval
    unusual: tuple[str, ...]  # what is unusual about each, in words
    typical_width: float  # median width of that interval among all people
    # Mean width of the bands of survival over time, shape (T,).
    times: np.ndarray
    width: np.ndarray


def check_people(wanted: tuple[int, ...], rows: int) -> None:
    """Refuse people who are not there, or too many of them for one picture."""
    bad = [place for place in wanted if not 0 <= place < rows]
    if bad:
        raise InputError(f"there is no row {bad[0]} among the {rows} rows; rows count from 0.")
    if len(wanted) > _MOST_PEOPLE:
        raise InputError(f"{len(wanted)} people in one picture cannot be read; choose at most {_MOST_PEOPLE}.")


def choose_people(labels: list[str], expected: np.ndarray, wanted: tuple[int, ...]) -> tuple[list[int], list[str]]:
    """Return places and names of the people to draw: those wanted, or five from high to low expectation."""
    if wanted:
        return list(wanted), [labels[place] for place in wanted]
    order = np.argsort(expected, kind="stable")
    places, names = [], []
    for share in SHARES:
        place = int(order[min(len(order) - 1, int(share * len(order)))])
        if place not in places:
            places.append(place)
            names.append(f"{labels[place]} (longer than {share:.0%})")
    return places, names


def show_people(
    model: SurvivalEstimator,
    frame: pd.DataFrame,
    places: list[int],
    names: list[str],
    times: np.ndarray,
    horizon: float,
    level: float,
) -> ShownPeople:
    """Predict for the people to draw."""
    rows = frame.iloc[places]
    curves = model.predict_survival(rows, times)
    lower, upper = curves.interval(level)
    half, mean = model.predict_median(rows), model.predict_rmst(rows, horizon)
    return ShownPeople(
        tuple(names),
        tuple(_covariates(model, row) for _, row in rows.iterrows()),
        times,
        curves.median.to_numpy(),
        lower.to_numpy(),
        upper.to_numpy(),
        _with_interval(half.median, half.interval(level)),
        _with_interval(mean.median, mean.interval(level)),
    )


def _covariates(model: SurvivalEstimator, person: pd.Series) -> str:
    words = []
    for column in model.encoding_.columns:
        value = person[column.name]
        shown = "missing" if pd.isna(value) else number(float(value)) if column.kind == "number" else str(value)
        words.append(f"{column.name}: {shown}")
    return "; ".join(words)


def _with_interval(middle: pd.Series, ends: tuple[pd.Series, pd.Series]) -> tuple[tuple[float, float, float], ...]:
    columns = (middle.to_numpy(), ends[0].to_numpy(), ends[1].to_numpy())
    return tuple((float(a), float(b), float(c)) for a, b, c in zip(*columns, strict=True))


def find_least_certain(
    model: SurvivalEstimator,
    frame: pd.DataFrame,
    labels: list[str],
    mean: tuple[np.ndarray, np.ndarray, np.ndarray],
    band: tuple[np.ndarray, np.ndarray],
    times: np.ndarray,
    count: int = 5,
) -> LeastCertain:
    """Find where the model is least certain.

    `mean` holds median, lower and upper end of the restricted means, shape (n,); `band` lower and upper end of
    survival, shape (n, T).
    """
    width = mean[2] - mean[1]
    places = np.argsort(-width, kind="stable")[:count]
    return LeastCertain(
        tuple(labels[place] for place in places),
        tuple((float(mean[0][k]), float(mean[1][k]), float(mean[2][k])) for k in places),
        tuple(_unusual(model, frame, int(place)) for place in places),
        float(np.median(width)),
        times,
        (band[1] - band[0]).mean(axis=0),
    )


def _unusual(model: SurvivalEstimator, frame: pd.DataFrame, place: int) -> str:
    """Describe the rare values of a person."""
    words = []
    for column in model.encoding_.columns:
        values = frame[column.name]
        own = values.iloc[place]
        if pd.isna(own):
            words.append(f"{column.name} is missing")
        elif column.kind == "category":
            share = float((values == own).mean())
            if share < _RARE:
                words.append(f"{column.name} is {own}, as in {share:.0%} of the rows")
        else:
            below, above = float((values < own).mean()), float((values > own).mean())
            if min(below, above) < _RARE / 2 and values.nunique() > 2:
                words.append(f"{column.name} is {'low' if below < above else 'high'} ({number(float(own))})")
    return "; ".join(words) or "nothing stands out in a single covariate"
