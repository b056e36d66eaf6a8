"""``neuralsurv fit``."""

from __future__ import annotations

import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from neuralsurv.cli.config import Config, config_text
from neuralsurv.cli.messages import Messages
from neuralsurv.cli.output_files import file_size, reserved, write_text
from neuralsurv.cli.start import INTERRUPTED
from neuralsurv.cli.tables.covariate_checks import code_warnings, described, drop_unusable, many_levels, remarks
from neuralsurv.cli.tables.survival_table import SurvivalTable, kept_roles, read_survival_table
from neuralsurv.errors import InputError

if TYPE_CHECKING:
    from neuralsurv.estimator.base import SurvivalEstimator

_MOST_COLUMNS_SHOWN = 40


def run(given: Config, out: Path, write_config: Path | None, *, force: bool, messages: Messages) -> None:
    """Fit a model to a table and save it at `out`, and the settings of the run at `write_config`."""
    inputs = (given.data.file,)
    with reserved(out, force=force, inputs=inputs), reserved(write_config, force=force, inputs=inputs):
        cohort = usable_cohort(read_survival_table(given.data, several=True), messages)
        cohort.outcome().check_fittable()
        # Imported late: the estimator takes seconds that a mistake in the table should not cost.
        from neuralsurv.cli.modelling import fit_estimator, make_estimator, warn_of_large_file
        from neuralsurv.estimator.model_file import save

        model = make_estimator(given.model)
        warn_of_large_file(cohort, model, messages)
        began = time.perf_counter()
        model = fit_estimator(cohort, model, messages)
        seconds = time.perf_counter() - began
        model.fitted_ = replace(model.fitted_, roles=kept_roles(cohort))
        save(model, out, replace=force)
        if write_config is not None:
            text = config_text(given.data, {"random_state": 0, **given.model}, out, write_config.parent)
            write_text(write_config, text, force=force)
        _show(model, cohort, out, write_config, seconds, messages)
        if model.diagnostics_.interrupted:
            raise typer.Exit(INTERRUPTED)


def usable_cohort(cohort: SurvivalTable, messages: Messages) -> SurvivalTable:
    """Leave out covariates that no model can use, and say so."""
    left_out = drop_unusable(cohort.covariates)
    cohort.show_notes(messages)
    messages.note(*left_out.values())
    cohort = replace(cohort, frame=cohort.frame.drop(columns=list(left_out)))
    if cohort.covariates.shape[1] == 0:
        raise InputError("no covariate is left that a model can use; check --features and --drop.")
    messages.note(*remarks(cohort.covariates))
    checked = [*cohort.covariates, cohort.roles["time"]]
    messages.warn(*many_levels(cohort.covariates), *code_warnings(cohort.frame[checked]))
    return cohort


def _show(
    model: SurvivalEstimator, cohort: SurvivalTable, out: Path, config: Path | None, seconds: float, messages: Messages
) -> None:
    columns = described(model.encoding_.columns, cohort.covariates)
    shown = columns[:_MOST_COLUMNS_SHOWN]
    messages.table(f"Covariates ({len(columns)})", ("column", "read as", "missing", "encoding"), shown)
    if len(columns) > len(shown):
        messages.say(f"… and {len(columns) - len(shown)} more; neuralsurv inspect {out} shows all.")
    messages.say(str(model.summary()).partition("\n\nWarnings")[0])
    messages.say(f"\nfitted in {seconds:.1f} s; wrote {out} ({file_size(out)})")
    if config is not None:
        messages.say(f"wrote {config}; repeat this run with: neuralsurv fit --config {config} --force")
    messages.say(f"next: neuralsurv predict {out} people.csv --picture curves.png")
    # Imported late, as above.
    from neuralsurv.cli.modelling import shown_parameters

    found = model.diagnostics_
    messages.result(
        model=str(out),
        config=None if config is None else str(config),
        rows=model.training_["rows"],
        events=model.training_["events"],
        causes=dict(model.fitted_.causes),
        roles=cohort.roles,
        columns=[
            {**asdict(column), "missing": int(cohort.covariates[column.name].isna().sum())}
            for column in model.encoding_.columns
        ],
        rare_values=list(model.encoding_.rare_values),
        seconds=round(seconds, 3),
        converged=found.converged,
        null_share=found.null_share,
        elbo=float(model.elbo_[-1]),
        parameters=shown_parameters(model),
    )
