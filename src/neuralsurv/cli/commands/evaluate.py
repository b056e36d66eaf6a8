"""``neuralsurv evaluate``: cross-validated scores of the model, of Kaplan–Meier and of a ridge Cox model."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn.base import clone

from neuralsurv.cli.commands.fit import usable_cohort
from neuralsurv.cli.config import Config
from neuralsurv.cli.messages import Messages
from neuralsurv.cli.modelling import make_estimator
from neuralsurv.cli.options import EvaluateOptions
from neuralsurv.cli.output_files import reserved, write_table
from neuralsurv.cli.ridge_cox import fit_ridge_cox
from neuralsurv.cli.start import interrupted
from neuralsurv.cli.tables.covariate_checks import unusable
from neuralsurv.cli.tables.survival_table import read_survival_table
from neuralsurv.cli.tables.table_input import table_kind
from neuralsurv.data.features import Encoding
from neuralsurv.data.outcome import Outcome
from neuralsurv.data.row_values import is_number
from neuralsurv.errors import InputError, MissingCodeWarning, NeuralSurvWarning
from neuralsurv.estimator.base import SurvivalEstimator
from neuralsurv.metrics import (
    antolini_concordance,
    censoring_horizon,
    d_calibration,
    integrated_brier_score,
    km_calibration,
    survival_at,
)
from neuralsurv.metrics.kaplan_meier import survival_curve
from neuralsurv.names import counted
from neuralsurv.progress import Advance, bar, wanted

NEURALSURV, KAPLAN_MEIER, RIDGE_COX = "NeuralSurv", "Kaplan–Meier", "ridge Cox"
METHODS = (NEURALSURV, RIDGE_COX, KAPLAN_MEIER)
# The scores, each with its title and what is better.
SCORES = {
    "concordance": ("concordance", "↑"),
    "integrated_brier_score": ("integrated Brier", "↓"),
    "km_calibration": ("KM-calibration", "↓"),
}
# Curves are predicted at the times of the test rows, or at quantiles of them if there are more than this.
_MOST_TIMES = 400
_BRIER_TIMES = 100
# Seconds that a user should be told of beforehand.
_WORTH_A_FORECAST = 10.0
PredictCurves = Callable[[pd.DataFrame, Outcome, pd.DataFrame, np.ndarray], np.ndarray]


def run(given: Config, options: EvaluateOptions, out: Path | None, *, force: bool, messages: Messages) -> None:
    """Cross-validate the model beside Kaplan–Meier and ridge Cox; the scores of every fold go to `out`."""
    with reserved(out, force=force, inputs=(given.data.file,)):
        if out is not None:
            table_kind(out)
        cohort = usable_cohort(read_survival_table(given.data), messages)
        outcome = cohort.outcome()
        outcome.check_fittable()
        model = make_estimator(given.model, verbose=False)
        seed = model.random_state if isinstance(model.random_state, int) else 0
        folds = make_folds(outcome, cohort.subject, options.folds, options.repeats, seed)
        with bar("evaluating", len(folds) * len(METHODS), messages.progress) as shown:
            advance = _with_forecast(shown, len(folds), messages)
            scores = compare(cohort.covariates, outcome, folds, model, options, advance)
        _remarks(scores, len(folds), messages)
        if out is not None:
            write_table(scores.folds, out, force=force)
        _show(scores, options, out, len(outcome), int(outcome.event.sum()), messages)


def _with_forecast(advance: Advance, folds: int, messages: Messages) -> Advance:
    """Return `advance`, which also says after the first fold how long all will take, where no bar does."""
    if messages.quiet or wanted(messages.progress):
        return advance
    start = monotonic()

    def forecast(done: int, words: str) -> None:
        advance(done, words)
        whole = (monotonic() - start) * folds
        if done == len(METHODS) and whole > _WORTH_A_FORECAST:
            messages.note(f"the first of {folds} folds took {whole / folds:.0f} s; all will take about {whole:.0f} s.")

    return forecast


class Fold(NamedTuple):
    """One split: its repetition and its number in it, from 1, and the rows on either side."""

    repeat: int
    number: int
    train: np.ndarray
    test: np.ndarray


def make_folds(outcome: Outcome, subject: np.ndarray | None, folds: int, repeats: int, seed: int) -> list[Fold]:
    """Split a cohort into folds with about the same share of events each; a subject is never on both sides."""
    from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold

    people = np.arange(len(outcome)) if subject is None else subject
    if pd.isna(people).any():
        gone = counted(int(pd.isna(people).sum()), "row")
        raise InputError(f"the id is missing in {gone}; fill it in, or leave out --id.")
    for what, rows in (("an event", outcome.event), ("no event", ~outcome.event)):
        count = len(pd.unique(people[rows]))
        # Without any censoring there is nothing to balance.
        if count < folds and not (what == "no event" and count == 0):
            few = counted(count, "row" if subject is None else "subject") + (" has" if count == 1 else " have")
            raise InputError(f"only {few} {what}, too few for {folds} folds; use --folds with a smaller number.")
    result = []
    for repeat in range(repeats):
        shuffle = {"n_splits": folds, "shuffle": True, "random_state": seed + repeat}
        cutter = StratifiedKFold(**shuffle) if subject is None else StratifiedGroupKFold(**shuffle)
        groups = None if subject is None else pd.factorize(people)[0]
        parts = cutter.split(np.zeros(len(outcome)), outcome.event, groups)
        for number, (train, test) in enumerate(parts, 1):
            if not outcome.event[test].any() or not outcome.event[train].any():
                raise InputError(
                    f"fold {number} of {folds} has no event, because subjects stay together; use fewer --folds."
                )
            result.append(Fold(repeat + 1, number, train, test))
    return result


def fold_tables(covariates: pd.DataFrame, fold: Fold) -> tuple[pd.DataFrame, pd.DataFrame, dict[str, int]]:
    """Return training and test covariates that a model can be fitted to and score, and what was changed.

    A column that the training rows do not vary in tells nothing and is left out. A category that they do not show, or
    a gap in a column in which they have none, becomes the commonest value (the median of numbers): every method is
    treated alike, and the number of such cells is returned by column.
    """
    kept = [name for name in covariates if unusable(covariates[name].iloc[fold.train]) is None]
    if not kept:
        raise InputError(f"no covariate varies in the training rows of fold {fold.number}; use fewer --folds.")
    train, test = covariates[kept].iloc[fold.train].copy(), covariates[kept].iloc[fold.test].copy()
    changed: dict[str, int] = {}
    for name in kept:
        known, new = train[name], test[name]
        strange = new.isna() & known.notna().all()
        if not is_number(known):
            strange |= ~(new.isin(known.dropna().unique()) | new.isna())
        if strange.any():
            common, kind = (known.median(), np.float64) if is_number(known) else (known.mode().iloc[0], known.dtype)
            test[name] = new.where(~strange, common).astype(kind)
            changed[str(name)] = int(strange.sum())
    return train, test, changed


@dataclass
class Scores:
    """Scores of every method in every fold."""

    horizon: float  # where the Brier score ends; NaN with late entry
    folds: pd.DataFrame = field(default_factory=pd.DataFrame)  # a row for each method and fold, NaN if not defined
    # For each method the p-value of D-calibration over all rows of the first repeat.
    calibration: dict[str, float] = field(default_factory=dict)
    changed: Counter[str] = field(default_factory=Counter)  # cells of test rows that had to be filled in, by column
    warnings: Counter[str] = field(default_factory=Counter)  # warnings of the fits, with how many gave each

    def values(self, method: str, score: str) -> np.ndarray:
        """Return a score of a method in all folds, NaN where it is not defined."""
        return np.asarray(self.folds.loc[self.folds["method"] == method, score], dtype=np.float64)


def compare(
    covariates: pd.DataFrame,
    outcome: Outcome,
    folds: list[Fold],
    model: SurvivalEstimator,
    options: EvaluateOptions,
    advance: Advance,
) -> Scores:
    """Fit a copy of the model and the other methods in all folds, and score them."""
    scores = Scores(_horizon(outcome, folds, options.horizon))
    curves: tuple[PredictCurves, ...] = (
        _neuralsurv(model, scores.warnings), _ridge_cox(options.cox_penalty), _kaplan_meier
    )  # fmt: skip
    rows: list[dict[str, Any]] = []
    own: dict[str, list[np.ndarray]] = {name: [] for name in METHODS}
    for fold in folds:
        train_x, test_x, changed = fold_tables(covariates, fold)
        train, test = outcome.select(fold.train), outcome.select(fold.test)
        times = _times(test, scores.horizon)
        if fold.repeat == 1:
            scores.changed.update(changed)
        for name, predict in zip(METHODS, curves, strict=True):
            survival = np.clip(predict(train_x, train, test_x, times), 0.0, 1.0)
            head = {"repeat": fold.repeat, "fold": fold.number, "method": name}
            counts = {"rows": len(test), "events": int(test.event.sum())}
            rows.append({**head, **counts, **_fold_scores(train, test, survival, times, scores.horizon)})
            if fold.repeat == 1:
                start, end = (survival_at(moment, survival, times) for moment in (test.entry, test.time))
                own[name].append(np.divide(end, start, out=np.zeros(len(end)), where=start > 0))
            advance(len(rows), f"fold {fold.number} of repeat {fold.repeat}, {name}")
    scores.folds = pd.DataFrame(rows)
    tested = np.concatenate([fold.test for fold in folds if fold.repeat == 1])
    for name in METHODS:
        found = d_calibration(outcome.event[tested], np.concatenate(own[name]), weight=outcome.weight[tested])
        scores.calibration[name] = found.p_value
    return scores


def _horizon(outcome: Outcome, folds: list[Fold], wanted: float | None) -> float:
    """Return where the Brier score ends: as wanted, or as far as it is defined in every fold."""
    if outcome.entry.any():
        return float("nan")
    limits = []
    for fold in folds:
        train, test = outcome.select(fold.train), outcome.select(fold.test)
        limits.append(censoring_horizon(train.time, train.event, train_weight=train.weight))
        # At the last time of a fold all rows may be censored; a fold with an event before it can be scored.
        limits.append(float(test.time.max()) if test.event.any() else 0.0)
    limit = min(limits)
    if wanted is not None and not 0 < wanted <= limit:
        raise InputError(
            f"--horizon {wanted:g} cannot be scored in every fold; give a time above 0 and up to {limit:g}."
        )
    return limit if wanted is None else wanted


def _brier_times(horizon: float) -> np.ndarray:
    return np.linspace(horizon / _BRIER_TIMES, horizon, _BRIER_TIMES)


def _times(test: Outcome, horizon: float) -> np.ndarray:
    own = np.unique(np.concatenate([test.time, test.entry[test.entry > 0]]))
    if len(own) > _MOST_TIMES:
        own = own[np.linspace(0, len(own) - 1, _MOST_TIMES).round().astype(int)]
    return own if np.isnan(horizon) else np.union1d(own, _brier_times(horizon))


def _fold_scores(
    train: Outcome, test: Outcome, survival: np.ndarray, times: np.ndarray, horizon: float
) -> dict[str, float]:
    entry = test.entry if test.entry.any() else None

    def brier() -> float:
        grid = _brier_times(horizon)
        columns = survival[:, np.searchsorted(times, grid)]
        training = {"train_time": train.time, "train_event": train.event, "train_weight": train.weight}
        return integrated_brier_score(test.time, test.event, columns, grid, weight=test.weight, **training)

    ways: dict[str, Callable[[], float]] = {
        "concordance": lambda: antolini_concordance(
            test.time, test.event, survival, times, entry=entry, weight=test.weight
        ),
        "integrated_brier_score": brier,
        "km_calibration": lambda: km_calibration(test.time, test.event, survival, times, weight=test.weight),
    }
    found = dict.fromkeys(SCORES, np.nan)
    # With late entry the horizon is NaN, and only the concordance is defined.
    for name in SCORES if not np.isnan(horizon) else ("concordance",):
        # A fold may not define a score, for example without a comparable pair; these folds are counted.
        with suppress(InputError):
            found[name] = ways[name]()
    return found


def _neuralsurv(estimator: SurvivalEstimator, counts: Counter[str]) -> PredictCurves:
    def curves(train_x: pd.DataFrame, train: Outcome, test_x: pd.DataFrame, times: np.ndarray) -> np.ndarray:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", NeuralSurvWarning)
            warnings.simplefilter("ignore", MissingCodeWarning)
            model = clone(estimator).fit(train_x, train)
        if model.diagnostics_.interrupted or interrupted():
            # The estimator keeps what it has when it is interrupted; here the user wants the whole work to end.
            raise KeyboardInterrupt
        # The part before the figures is the same in every fold.
        counts.update({str(item.message).split(":")[0].split(";")[0] for item in caught})
        return np.asarray(model.predict_mean_survival(test_x, times).to_numpy())

    return curves


def _ridge_cox(penalty: float) -> PredictCurves:
    def curves(train_x: pd.DataFrame, train: Outcome, test_x: pd.DataFrame, times: np.ndarray) -> np.ndarray:
        encoding = Encoding.fit(train_x, train.risk_weight(), events=train.event_weight())
        model = fit_ridge_cox(encoding.transform(train_x), train, penalty)
        return model.survival(encoding.transform(test_x), times)

    return curves


def _kaplan_meier(train_x: pd.DataFrame, train: Outcome, test_x: pd.DataFrame, times: np.ndarray) -> np.ndarray:
    return np.tile(survival_curve(train).after(times), (len(test_x), 1))


def _remarks(scores: Scores, fits: int, messages: Messages) -> None:
    for name, cells in scores.changed.items():
        whose, they_were = ("its", "it was") if cells == 1 else ("their", "they were")
        messages.note(
            f"column {name!r}: {counted(cells, 'test cell')} held a category or a gap that the training rows of "
            f"{whose} fold do not show; {they_were} scored as the commonest value."
        )
    for text, count in scores.warnings.items():
        messages.warn(f"in {count} of {fits} fits of NeuralSurv: {text}.")
    if np.isnan(scores.horizon):
        messages.note(
            "with late entry only concordance and D-calibration are defined; the Brier score and KM-calibration are "
            "left out."
        )
        return
    for score, (title, _) in SCORES.items():
        gone = int(np.isnan(scores.values(NEURALSURV, score)).sum())
        if gone:
            messages.note(f"{title} is not defined in {gone} of {fits} folds, which are left out of its mean.")


def _show(
    scores: Scores, options: EvaluateOptions, out: Path | None, rows: int, events: int, messages: Messages
) -> None:
    summary: dict[str, dict[str, Any]] = {method: {} for method in METHODS}
    differences: dict[str, Any] = {}
    for score in SCORES:
        for method in METHODS:
            values = pd.Series(scores.values(method, score))
            summary[method][score] = {"mean": values.mean(), "sd": values.std()}
        gaps = pd.Series(scores.values(NEURALSURV, score) - scores.values(RIDGE_COX, score))
        error = gaps.sem()
        differences[score] = {"mean": gaps.mean() if gaps.count() > 1 else None, "standard_error": error}
    used = [score for score in SCORES if not np.isnan(summary[NEURALSURV][score]["mean"])]
    cells = []
    for method in METHODS:
        summary[method]["d_calibration_p"] = scores.calibration[method]
        found = [_shown(**summary[method][score]) for score in used]
        cells.append((method, *found, f"{scores.calibration[method]:.3f}"))
    times = "" if options.repeats == 1 else f", {options.repeats} repeats"
    title = f"{options.folds}-fold cross-validation{times}: {rows} rows, {events} events; mean (sd over folds)"
    head = ("method", *(" ".join(SCORES[score]) for score in used), "D-calibration p")
    messages.table(title, head, cells, numbers=True)
    for score in used:
        gap = differences[score]
        if gap["mean"] is not None:
            messages.say(
                f"NeuralSurv − ridge Cox, {SCORES[score][0]}: {gap['mean']:+.4f} (standard error "
                f"{gap['standard_error']:.4f}, rough, since folds share training rows)"
            )
    if not np.isnan(scores.horizon):
        messages.say(
            f"Brier scores are integrated to time {scores.horizon:g}; a small D-calibration p means poor calibration."
        )
    if out is not None:
        messages.say(f"wrote {out}")
    messages.result(
        rows=rows,
        events=events,
        folds=options.folds,
        repeats=options.repeats,
        horizon=scores.horizon,
        cox_penalty=options.cox_penalty,
        methods=summary,
        difference_to_ridge_cox=differences,
        scores=scores.folds.to_dict(orient="records"),
        out=None if out is None else str(out),
    )


def _shown(mean: float, sd: float) -> str:
    if np.isnan(mean):
        return "–"
    return f"{mean:.4f}" if np.isnan(sd) else f"{mean:.4f} ({sd:.4f})"
