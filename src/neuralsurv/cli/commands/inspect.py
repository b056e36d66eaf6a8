"""``neuralsurv inspect``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from neuralsurv.cli.messages import Messages
from neuralsurv.cli.output_files import file_size
from neuralsurv.data.columns import Column
from neuralsurv.files.format import read_header
from neuralsurv.names import printable


def run(path: Path, *, messages: Messages) -> None:
    """Show what a model file holds."""
    read_header(path)
    # Imported late: the model takes seconds that a wrong name should not cost.
    from neuralsurv.cli.modelling import open_model

    model = open_model(path, messages)
    summary = model.summary()
    rows = []
    for column in model.encoding_.columns:
        rows.append((column.name, column.kind, _values(column), "some" if column.has_missing else "none"))
    messages.say(f"{path} ({file_size(path)})\n")
    messages.say(str(summary))
    messages.say("")
    messages.table(f"Covariates ({len(rows)})", ("column", "kind", "training values", "gaps in training"), rows)
    roles = ", ".join(f"{printable(role)} = {printable(name)}" for role, name in model.columns_.items())
    messages.say(f"Outcome: {roles or 'given as arrays, without names'}")
    messages.result(
        model=str(path),
        summary=[{"section": section, "name": name, "value": value} for section, name, value in summary.rows],
        columns=[asdict(column) for column in model.encoding_.columns],
        roles=model.columns_,
        training=model.training_,
        causes=dict(model.fitted_.causes),
        last_training_time=model.time_scale_,
        parameters=model.get_params(),
        diagnostics=asdict(model.diagnostics_),
    )


def _values(column: Column) -> str:
    """Return the categories of a column, or the range of its numbers where the file has it."""
    if column.kind == "category":
        return ", ".join(column.levels)
    return "–" if column.low is None or column.high is None else f"{column.low:g} to {column.high:g}"
