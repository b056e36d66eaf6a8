"""``neuralsurv report``."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from pathlib import Path

from neuralsurv.arguments import check_level
from neuralsurv.cli.commands.predict import parse_times
from neuralsurv.cli.messages import Messages
from neuralsurv.cli.options import DataSettings, ReportArguments
from neuralsurv.cli.output_files import file_size, reserved, write_text
from neuralsurv.cli.tables.covariate_checks import code_warnings, text_categories
from neuralsurv.cli.tables.survival_table import SurvivalTable, labels, read_survival_table, settings_of_model
from neuralsurv.data.cause_values import require_one_cause
from neuralsurv.errors import InputError
from neuralsurv.files.format import Fields, read_header
from neuralsurv.files.stored_columns import stored_causes, stored_columns, stored_roles
from neuralsurv.names import check_known
from neuralsurv.progress import bar


def run(
    path: Path, table: DataSettings, arguments: ReportArguments, out: Path, *, force: bool, messages: Messages
) -> None:
    """Write a report on the cohort of a table; columns that are not given are those of the fit."""
    if arguments.rows < 10:
        raise InputError(f"--rows {arguments.rows} is too few for a report; use at least 10.")
    check_level(arguments.level)
    times = tuple(parse_times(arguments.times).tolist()) if arguments.times else ()
    people = _rows(arguments.people)
    with reserved(out, force=force, inputs=(path, table.file)):
        header = Fields(read_header(path), "header")
        require_one_cause(stored_causes(header), "the report")
        columns = stored_columns(header)
        file = table.file.name if table.file else ""
        if table.time is None and table.start_date is None:
            table = table.over(settings_of_model(stored_roles(header)))
        names = [column.name for column in columns]
        texts = tuple(text_categories(columns))
        cohort = read_survival_table(replace(table, categorical=texts), needed=names)
        cohort.show_notes(messages)
        for name in names:
            check_known(name, list(cohort.frame.columns), what="column", where="used by the model")
        messages.warn(*code_warnings(cohort.frame[names]))
        # Imported late: the model takes seconds that a mistake in the table should not cost.
        from neuralsurv import __version__
        from neuralsurv.cli.modelling import open_model
        from neuralsurv.report.build import build
        from neuralsurv.report.page import render

        model = open_model(path, messages)
        model.set_params(verbose=False)
        with bar("report", 5, messages.progress) as advance:
            report = build(
                model, cohort.frame[names], cohort.outcome(), _labels(cohort), advance,
                title=arguments.title or f"Survival report: {file}", times=times, horizon=arguments.horizon,
                level=arguments.level, people=people, most_rows=arguments.rows,
            )  # fmt: skip
        made = f"{date.today().isoformat()} with neuralsurv {__version__}"
        facts = [("Model", path.name), ("Data", file), ("Made", made)]
        if report.scored < report.cohort.rows:
            messages.note(
                f"predictions are shown for {report.scored} of {report.cohort.rows} rows, taken at random (--rows)."
            )
            facts.append(("Predictions", f"for {report.scored} rows, taken at random"))
        write_text(out, render(report, facts), force=force)
        messages.warn(*report.warnings)
        messages.say(f"wrote {out} ({file_size(out)}); open it in a browser")
        messages.result(
            out=str(out),
            rows=report.cohort.rows,
            events=report.cohort.events,
            horizon=report.horizon,
            concordance=report.accuracy.concordance,
            d_calibration_p=report.accuracy.distribution.p_value,
            km_calibration=report.accuracy.distance,
            effects=[vars(effect) for effect in report.effects],
        )


def _labels(cohort: SurvivalTable) -> list[str]:
    """Return what rows are called: by the subject, or by their number from 0."""
    if "id" in cohort.roles:
        return [str(value) for value in labels(cohort.frame[cohort.roles["id"]])]
    return [f"row {k}" for k in range(len(cohort.frame))]


def _rows(text: str | None) -> tuple[int, ...]:
    if text is None:
        return ()
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise InputError(f"--people {text!r} must be row numbers with commas between them, from 0.") from error
