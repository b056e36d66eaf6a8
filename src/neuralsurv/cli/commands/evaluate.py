"""``neuralsurv evaluate``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from neuralsurv.cli.commands.fit import usable_cohort
from neuralsurv.cli.evaluation.comparison import METHODS, NEURALSURV, RIDGE_COX, SCORES, Scores, compare, make_folds
from neuralsurv.cli.messages import Messages
from neuralsurv.cli.options import EvaluateOptions
from neuralsurv.cli.output_files import reserved
from neuralsurv.cli.settings import DataSettings
from neuralsurv.cli.tables.survival_table import read_survival_table
from neuralsurv.cli.tables.table_input import table_kind
from neuralsurv.cli.tables.table_output import write_table
from neuralsurv.names import counted
from neuralsurv.progress import bar

_TITLES = {
    "concordance": "concordance ↑",
    "integrated_brier_score": "integrated Brier ↓",
    "km_calibration": "KM-calibration ↓",
}


def run(
    settings: DataSettings,
    given: dict[str, Any],
    options: EvaluateOptions,
    out: Path | None,
    *,
    force: bool,
    messages: Messages,
) -> None:
    """Cross-validate the model beside Kaplan–Meier and ridge Cox; the scores of every fold go to `out`."""
    with reserved(out, force=force, inputs=(settings.file,)):
        if out is not None:
            table_kind(out)
        cohort = usable_cohort(read_survival_table(settings), messages)
        outcome = cohort.outcome()
        outcome.check_fittable()
        from neuralsurv.cli.modelling import make_estimator

        model = make_estimator(given, verbose=False)
        seed = model.random_state
        folds = make_folds(
            outcome, cohort.subject, options.folds, options.repeats, seed if isinstance(seed, int) else 0
        )
        with bar("evaluating", len(folds) * len(METHODS), messages.progress) as advance:
            scores = compare(
                cohort.covariates, outcome, folds, model,
                penalty=options.cox_penalty, horizon=options.horizon, advance=advance,
            )  # fmt: skip
        _remarks(scores, len(folds), messages)
        if out is not None:
            write_table(pd.DataFrame(scores.folds), out, force=force)
        _show(scores, options, out, len(outcome), int(outcome.event.sum()), messages)


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
    for score in SCORES:
        gone = int(np.isnan(scores.values(NEURALSURV, score)).sum())
        if gone:
            messages.note(
                f"{_TITLES[score][:-2]} is not defined in {gone} of {fits} folds, which are left out of its mean."
            )


def _summary(scores: Scores, method: str, score: str) -> dict[str, Any]:
    values = scores.values(method, score)
    values = values[~np.isnan(values)]
    if len(values) == 0:
        return {"mean": None, "sd": None}
    return {"mean": float(values.mean()), "sd": float(values.std(ddof=1)) if len(values) > 1 else None}


def _difference(scores: Scores, score: str) -> dict[str, Any]:
    gaps = scores.values(NEURALSURV, score) - scores.values(RIDGE_COX, score)
    gaps = gaps[~np.isnan(gaps)]
    if len(gaps) < 2:
        return {"mean": None, "standard_error": None}
    return {"mean": float(gaps.mean()), "standard_error": float(gaps.std(ddof=1) / np.sqrt(len(gaps)))}


def _show(
    scores: Scores, options: EvaluateOptions, out: Path | None, rows: int, events: int, messages: Messages
) -> None:
    used = [score for score in SCORES if _summary(scores, NEURALSURV, score)["mean"] is not None]
    summary: dict[str, dict[str, Any]] = {
        method: {
            **{score: _summary(scores, method, score) for score in SCORES},
            "d_calibration_p": scores.calibration[method],
        }
        for method in METHODS
    }
    cells = []
    for method in METHODS:
        found = [_shown(summary[method][score]["mean"], summary[method][score]["sd"]) for score in used]
        cells.append((method, *found, f"{summary[method]['d_calibration_p']:.3f}"))
    times = "" if options.repeats == 1 else f", {options.repeats} repeats"
    title = f"{options.folds}-fold cross-validation{times}: {rows} rows, {events} events; mean (sd over folds)"
    messages.table(title, ("method", *(_TITLES[score] for score in used), "D-calibration p"), cells, numbers=True)
    differences = {score: _difference(scores, score) for score in SCORES}
    for score in used:
        gap = differences[score]
        if gap["mean"] is not None:
            messages.say(
                f"NeuralSurv − ridge Cox, {_TITLES[score][:-2]}: {gap['mean']:+.4f} (standard error "
                f"{gap['standard_error']:.4f}, rough, since folds share training rows)"
            )
    if not np.isnan(scores.horizon):
        messages.say(f"Brier scores are integrated up to time {scores.horizon:g}; a small D-calibration p is bad.")
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
        scores=scores.folds,
        out=None if out is None else str(out),
    )


def _shown(mean: float | None, spread: float | None) -> str:
    if mean is None:
        return "–"
    return f"{mean:.4f}" if spread is None else f"{mean:.4f} ({spread:.4f})"
