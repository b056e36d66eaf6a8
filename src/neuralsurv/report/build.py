"""The contents of a report, computed from a model and a cohort: the cohort, some people, the covariates' effects."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import ndtri

from neuralsurv.arguments import check_level
from neuralsurv.data.cause_values import require_one_cause
from neuralsurv.data.columns import Column
from neuralsurv.data.outcome import Outcome
from neuralsurv.errors import InputError
from neuralsurv.estimator.base import SurvivalEstimator
from neuralsurv.metrics.kaplan_meier import KaplanMeierCurve, censoring_curve, survival_curve
from neuralsurv.posterior.fitted import Fitted
from neuralsurv.prediction.mean_predictor import MeanPredictor
from neuralsurv.prediction.predictor import Predictor
from neuralsurv.progress import Advance
from neuralsurv.report.accuracy import Accuracy, measure
from neuralsurv.report.caveats import caveats
from neuralsurv.report.svg import number, ticks

_TIMES, _TIMES_DRAWN = 101, 81
_MOST_AVERAGED = 40
# The ends of an interval need no more draws than these where there is one for every row or covariate; a rank fewer.
_MOST_DRAWS, _RANKING_DRAWS = 300, 30
# Covariates whose effects get an interval: those with the largest ones.
MOST_COVARIATES = 15
_MOST_LEVELS = 5
# People from high to low expectation, by the share whom each outlives.
_SHARES = (0.9, 0.7, 0.5, 0.3, 0.1)
_MOST_PEOPLE = 7
_LEAST_CERTAIN = 5
_RARE = 0.05


@dataclass(frozen=True)
class CohortDescription:
    """What was observed."""

    # Counts; `late` of rows that enter late.
    rows: int
    events: int
    late: int
    # Median follow-up by the reverse Kaplan–Meier method; infinite if fewer than half are censored in the end.
    follow_up: float
    half: float  # median event time; infinite if the curve does not fall to one half
    # The Kaplan–Meier curve with its band, from time 0.
    times: np.ndarray
    survival: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    at_risk: dict[float, int]  # numbers at risk at some times


@dataclass(frozen=True)
class ShownPeople:
    """The people whose curves are drawn. Arrays of a prediction are its mean, median, lower and upper end."""

    names: list[str]
    values: list[str]  # the covariates of each, in words
    times: np.ndarray
    curves: dict[str, np.ndarray]  # survival, shape (k, T)
    half: dict[str, np.ndarray]  # median event time, infinite where the curve does not fall to one half, shape (k, 1)
    mean: dict[str, np.ndarray]  # restricted mean, shape (k, 1)


@dataclass(frozen=True)
class LeastCertain:
    """Where the model is least certain."""

    names: list[str]  # people with the widest intervals of the restricted mean, the widest first
    mean: dict[str, np.ndarray]  # their restricted mean, shape (k, 1)
    unusual: list[str]  # what is unusual about each, in words
    typical_width: float  # median width of that interval among all people
    # Mean width of the bands of survival over time, shape (T,).
    times: np.ndarray
    width: np.ndarray


@dataclass(frozen=True)
class Effect:
    """The effect of a change of one covariate on the restricted mean survival time, averaged over people."""

    column: str
    change: str  # from what to what
    median: float
    lower: float
    upper: float


@dataclass(frozen=True)
class Report:
    """Everything that a page shows, as numbers and words."""

    title: str
    level: float
    horizon: float
    cohort: CohortDescription
    covariates: list[tuple[str, str, str]]
    scored: int
    # The mean of the predicted curves.
    times: np.ndarray
    mean: np.ndarray
    summary: tuple[tuple[str, str, str], ...]
    elbo: np.ndarray
    last_training: float
    chosen: bool  # whether the people shown were asked for
    shown: ShownPeople
    accuracy: Accuracy
    effects: list[Effect]
    averaged: int
    least_certain: LeastCertain
    warnings: list[str]


def build(
    model: SurvivalEstimator,
    frame: pd.DataFrame,
    outcome: Outcome,
    labels: list[str],
    advance: Advance,
    *,
    title: str = "Survival model report",
    times: tuple[float, ...] = (),
    horizon: float | None = None,
    level: float = 0.9,
    people: tuple[int, ...] = (),
    most_rows: int = 1000,
) -> Report:
    """Compute the contents of a report on rows that are called `labels`.

    `times` are those of calibration in groups, by default three quartiles of the event times; curves and restricted
    means end at `horizon`, by default where a tenth of the rows is still followed. The curves of the rows `people` are
    drawn. Of more rows than `most_rows`, predictions are made for some, taken at random. `advance` is called with the
    number of finished steps, of five, and a few words.
    """
    require_one_cause(model.causes_, "the report")
    check_level(level)
    if not outcome.event.any():
        raise InputError(f"none of the {len(outcome)} rows has an event; there is nothing to compare the model with.")
    _check_people(people, len(frame))
    end = _horizon(outcome, horizon)
    chosen = _chosen_times(outcome, times)
    rng = np.random.default_rng(0)
    kept = _thinned(len(frame), most_rows, rng, people)
    rows, seen, names = frame.iloc[kept], outcome.select(kept), [labels[k] for k in kept]
    last = float(max(end, outcome.time.max(), *chosen))
    grid = np.unique(np.concatenate([np.linspace(0, last, _TIMES), [end]]))
    advance(0, f"curves of {len(rows)} rows")
    curves = model.predict_mean_survival(rows, grid).to_numpy()
    predictor = _predictor(model.fitted_, min(int(model.draws), _MOST_DRAWS))
    inside = grid[grid <= end]
    bands = predictor.survival(rows, inside).arrays(level)
    advance(1, "restricted means")
    mean = predictor.rmst(rows, end).arrays(level)
    advance(2, "calibration and discrimination")
    accuracy = measure(seen, curves, grid, chosen)
    averaged = rows.iloc[_thinned(len(rows), _MOST_AVERAGED, rng, ())]
    effects = covariate_effects(model, averaged, end, level, lambda words: advance(3, words))
    advance(4, "people")
    wanted = tuple(int(np.flatnonzero(kept == place)[0]) for place in people)
    places, called = choose_people(names, mean["median"][:, 0], wanted)
    report = Report(
        title=title,
        level=level,
        horizon=end,
        cohort=describe_cohort(outcome, level),
        covariates=describe_covariates(model.encoding_.columns, frame),
        scored=len(rows),
        times=grid,
        mean=np.average(curves, axis=0, weights=seen.weight),
        summary=model.summary().rows,
        elbo=np.asarray(model.elbo_, dtype=np.float64),
        last_training=float(model.time_scale_),
        chosen=bool(people),
        shown=_show_people(model, rows.iloc[places], called, end, level),
        accuracy=accuracy,
        effects=effects,
        averaged=len(averaged),
        least_certain=_least_certain(model.encoding_.columns, rows, names, mean, bands, inside),
        warnings=caveats(model, outcome, frame, accuracy, end),
    )
    advance(5, "done")
    return report


def _check_people(wanted: tuple[int, ...], rows: int) -> None:
    bad = [place for place in wanted if not 0 <= place < rows]
    if bad:
        raise InputError(f"there is no row {bad[0]} among the {rows} rows; rows count from 0.")
    if len(wanted) > _MOST_PEOPLE:
        raise InputError(f"{len(wanted)} people in one picture cannot be read; choose at most {_MOST_PEOPLE}.")


def _horizon(outcome: Outcome, given: float | None) -> float:
    if given is not None:
        if not 0 < given < np.inf:
            raise InputError(f"horizon={given!r} must be a positive, finite time.")
        return float(given)
    # Three digits are enough to name it, and rounding down keeps rows at risk there.
    value = float(np.quantile(outcome.time, 0.9))
    power = 10.0 ** (np.floor(np.log10(value)) - 2)
    return float(np.floor(value / power) * power)


def _chosen_times(outcome: Outcome, given: tuple[float, ...]) -> np.ndarray:
    if not given:
        return np.unique(np.quantile(outcome.time[outcome.event], [0.25, 0.5, 0.75], method="nearest"))
    chosen = np.unique(np.array(given, dtype=np.float64))
    bad = (chosen <= 0) | (chosen > outcome.time.max())
    if bad.any():
        raise InputError(
            f"time {chosen[bad][0]:g} cannot be compared with these rows; give times above 0 and up to "
            f"{outcome.time.max():g}."
        )
    return chosen


def _thinned(rows: int, most: int, rng: np.random.Generator, always: tuple[int, ...]) -> np.ndarray:
    """Return all rows, or `most` of them at random, in order and with those that must be there."""
    if rows <= most:
        return np.arange(rows)
    picked = rng.choice(rows, size=most, replace=False)
    return np.unique(np.concatenate([picked, always]).astype(int))


def describe_cohort(outcome: Outcome, level: float) -> CohortDescription:
    """Describe what was observed, with a pointwise band by Greenwood's variance on the scale of log(−log S)."""
    curve = survival_curve(outcome)
    inside = (curve.survival > 0) & (curve.survival < 1)
    survival = np.where(inside, curve.survival, 0.5)
    spread = ndtri((1 + level) / 2) * np.sqrt(curve.greenwood) / np.abs(np.log(survival))
    lower = np.where(inside, survival ** np.exp(spread), 0.0)
    upper = np.where(inside, survival ** np.exp(-spread), np.where(curve.survival >= 1, 1.0, np.nan))
    # After the last row the interval stays as it was.
    upper = pd.Series(upper).ffill().fillna(1.0).to_numpy()
    last = float(outcome.time.max())
    return CohortDescription(
        rows=len(outcome),
        events=int(outcome.event.sum()),
        late=int((outcome.entry > 0).sum()),
        follow_up=_half(censoring_curve(outcome)),
        half=_half(curve),
        times=np.concatenate([[0.0], curve.times, [last]]),
        survival=np.concatenate([[1.0], curve.survival, curve.survival[-1:]]),
        lower=np.concatenate([[1.0], lower, lower[-1:]]),
        upper=np.concatenate([[1.0], upper, upper[-1:]]),
        at_risk={t: int(((outcome.entry <= t) & (outcome.time > t)).sum()) for t in ticks(0.0, last)},
    )


def _half(curve: KaplanMeierCurve) -> float:
    under = curve.times[curve.survival <= 0.5]
    return float(under[0]) if len(under) else float("inf")


def describe_covariates(columns: tuple[Column, ...], frame: pd.DataFrame) -> list[tuple[str, str, str]]:
    """Return a row for each covariate: its name, what it is like, and its gaps."""
    rows = []
    for column in columns:
        values = frame[column.name]
        gaps = int(values.isna().sum())
        if column.kind == "number":
            low, middle, high = (number(float(values.quantile(q))) for q in (0.25, 0.5, 0.75))
            words = f"median {middle}, quartiles {low} to {high}"
        else:
            shares = values.dropna().map(str).value_counts(normalize=True)
            shown = [f"{level} {share:.0%}" for level, share in shares.head(5).items()]
            words = ", ".join(shown) + (", …" if len(shares) > 5 else "")
        rows.append((column.name, words, f"{gaps} ({gaps / len(frame):.0%})" if gaps else "none"))
    return rows


def choose_people(labels: list[str], expected: np.ndarray, wanted: tuple[int, ...]) -> tuple[list[int], list[str]]:
    """Return places and names of the people to draw: those wanted, or five from high to low expectation."""
    if wanted:
        return list(wanted), [labels[place] for place in wanted]
    order = np.argsort(expected, kind="stable")
    found: dict[int, str] = {}
    for share in _SHARES:
        place = int(order[min(len(order) - 1, int(share * len(order)))])
        found.setdefault(place, f"{labels[place]} (longer than {share:.0%})")
    return list(found), list(found.values())


def _show_people(
    model: SurvivalEstimator, rows: pd.DataFrame, names: list[str], horizon: float, level: float
) -> ShownPeople:
    def covariates(person: pd.Series) -> str:
        words = []
        for column in model.encoding_.columns:
            value = person[column.name]
            shown = "missing" if pd.isna(value) else number(float(value)) if column.kind == "number" else str(value)
            words.append(f"{column.name}: {shown}")
        return "; ".join(words)

    times = np.linspace(0, horizon, _TIMES_DRAWN)
    values = [covariates(row) for _, row in rows.iterrows()]
    made = (model.predict_survival(rows, times), model.predict_median(rows), model.predict_rmst(rows, horizon))
    return ShownPeople(names, values, times, *(prediction.arrays(level) for prediction in made))


def _least_certain(
    columns: tuple[Column, ...],
    frame: pd.DataFrame,
    labels: list[str],
    mean: dict[str, np.ndarray],
    bands: dict[str, np.ndarray],
    times: np.ndarray,
) -> LeastCertain:
    width = (mean["upper"] - mean["lower"])[:, 0]
    places = np.argsort(-width, kind="stable")[:_LEAST_CERTAIN]
    return LeastCertain(
        names=[labels[place] for place in places],
        mean={name: values[places] for name, values in mean.items()},
        unusual=[unusual_values(columns, frame, int(place)) for place in places],
        typical_width=float(np.median(width)),
        times=times,
        width=(bands["upper"] - bands["lower"]).mean(axis=0),
    )


def unusual_values(columns: tuple[Column, ...], frame: pd.DataFrame, place: int) -> str:
    """Describe the rare values of a person."""
    words = []
    for column in columns:
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


def covariate_effects(
    model: SurvivalEstimator,
    people: pd.DataFrame,
    horizon: float,
    level: float,
    advance: Callable[[str], None] = lambda words: None,
) -> list[Effect]:
    """Return the effects on the restricted mean up to `horizon`, from joint draws, the largest first.

    A number goes from its lower to its upper quartile among the people; a category from the commonest level to each of
    the next commonest. Everything else about a person stays as it is. Of more than `MOST_COVARIATES` covariates, those
    with the largest posterior mean of an effect are taken. `advance` is called with a few words now and then.
    """
    ways = [(column, _values(people[column.name], column)) for column in model.encoding_.columns]
    ways = [(column, values) for column, values in ways if len(values) > 1]
    if len(ways) > MOST_COVARIATES:
        ways = _largest(model.fitted_, people, horizon, ways, advance)
    predictor = _predictor(model.fitted_, min(int(model.draws), _MOST_DRAWS))
    found = []
    for place, (column, values) in enumerate(ways):
        advance(f"effects: {place} of {len(ways)} covariates")
        means = {value: predictor.rmst(_changed(people, column, value), horizon).average()[:, 0] for value in values}
        base, shown = values[0], number if column.kind == "number" else str
        for value in values[1:]:
            gap = means[value] - means[base]
            low, middle, high = np.quantile(gap, [(1 - level) / 2, 0.5, (1 + level) / 2])
            found.append(Effect(column.name, f"{shown(base)} → {shown(value)}", float(middle), float(low), float(high)))
    return sorted(found, key=lambda effect: -abs(effect.median))


def _predictor(fitted: Fitted, draws: int) -> Predictor:
    """Return a predictor that draws once for all of its predictions."""
    predictor = Predictor.from_fitted(fitted, draws)
    return replace(predictor, cached_draws=predictor.draws())


def _largest(
    fitted: Fitted,
    people: pd.DataFrame,
    horizon: float,
    ways: list[tuple[Column, list[Any]]],
    advance: Callable[[str], None],
) -> list[tuple[Column, list[Any]]]:
    """Return the covariates with the largest posterior means of an effect, in their order."""
    # Fewer draws than for a mean that is shown rank well enough.
    curves = fitted.mean_curves
    means = MeanPredictor(_predictor(fitted, _RANKING_DRAWS), None if curves is None else curves.shares[0])
    sizes = []
    for place, (column, values) in enumerate(ways):
        advance(f"ranking: {place} of {len(ways)} covariates")
        base, *others = (means.rmst(_changed(people, column, value), horizon).mean() for value in values)
        sizes.append(max(abs(other - base) for other in others))
    largest = np.sort(np.argsort(np.negative(sizes), kind="stable")[:MOST_COVARIATES])
    return [ways[place] for place in largest]


def _values(column: pd.Series, described: Column) -> list[Any]:
    """Return the value to start from, and those to go to."""
    present = column.dropna()
    if described.kind == "category":
        common = present.map(str).value_counts().index.tolist()
        return [level for level in common if level in described.levels][: _MOST_LEVELS + 1]
    numbers = present.to_numpy(dtype=np.float64)
    for low, high in ((0.25, 0.75), (0.05, 0.95), (0.0, 1.0)):
        ends = np.quantile(numbers, [low, high], method="nearest") if len(numbers) else np.zeros(2)
        if ends[1] > ends[0]:
            return [float(ends[0]), float(ends[1])]
    return []


def _changed(people: pd.DataFrame, column: Column, value: Any) -> pd.DataFrame:
    """Return the people with one column set to a value."""
    if column.kind == "category" and pd.api.types.is_bool_dtype(people[column.name].dtype):
        value = value == "True"
    return people.assign(**{column.name: pd.Series([value] * len(people), people.index)})
