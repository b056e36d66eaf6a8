"""The commands and their options; what a command does is in :mod:`neuralsurv.cli.commands`, imported when it runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from neuralsurv.cli import options as o
from neuralsurv.cli.config import Config, check_settings, run_options
from neuralsurv.cli.messages import Messages, as_json
from neuralsurv.cli.options import (
    FILE,
    OUTCOME,
    DataSettings,
    EvaluateOptions,
    PredictOptions,
    ReportArguments,
    ServeOptions,
    StreamOptions,
    processes,
    some_of,
    with_options,
)
from neuralsurv.cli.start import BAD_INPUT, INTERRUPTED, UNEXPECTED
from neuralsurv.cli.tables.roles import check_file, check_there
from neuralsurv.errors import InputError, NeuralSurvError
from neuralsurv.names import printable

_EPILOG = "Exit codes: 0 done, 1 unexpected error, 2 wrong input or usage, 130 interrupted."


class Commands(TyperGroup):
    """The group of commands: turns every error into one sentence and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except NeuralSurvError as error:
            raise _ended(ctx, str(error), BAD_INPUT) from error
        except KeyboardInterrupt as error:
            raise _ended(ctx, "interrupted; nothing was written.", INTERRUPTED) from error
        except BrokenPipeError as error:
            # The reader has closed the output, as `head` does. Python would complain again when it flushes.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(0) from error
        except MemoryError as error:
            raise _ended(
                ctx, "there is not enough memory for this; use fewer rows, times or draws.", BAD_INPUT
            ) from error
        except (typer.Exit, typer.Abort):
            raise
        except Exception as error:
            if type(error).__module__.partition(".")[0] in ("typer", "click") or ctx.params.get("debug"):
                raise
            text = f"unexpected {type(error).__name__}: {error}. Run neuralsurv --debug … to see where."
            raise _ended(ctx, text, UNEXPECTED) from error


def _ended(ctx: Any, text: str, code: int) -> typer.Exit:
    """Say what went wrong and return the end of the process."""
    text = " ".join(text.split())
    if ctx.meta.get("neuralsurv.json"):
        sys.stdout.write(as_json({"error": text, "exit_code": code}) + "\n")
    typer.secho("error: ", fg="red", nl=False, err=True)
    typer.echo(printable(text), err=True)
    return typer.Exit(code)


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Individual survival curves with their uncertainty.",
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(value: bool) -> None:
    if value:
        from neuralsurv import __version__

        typer.echo(f"neuralsurv {__version__}")
        raise typer.Exit


def _command(**groups: Callable[..., Any]) -> Callable[[Callable[..., Any]], Any]:
    """Return a decorator that makes a command of a function, with the options of some groups."""
    return lambda function: app.command(epilog=_EPILOG)(with_options(**groups)(function))


@app.callback()
def options(
    debug: Annotated[bool, typer.Option("--debug", help="Show where an unexpected error comes from.")] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and stop.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Take the options that stand before a command."""


@_command()
def demo(
    out: Annotated[Path, typer.Option("--out", help="Folder for the pictures.")] = Path("demo"),
    rows: Annotated[int, typer.Option("--rows", help="Rows of the cohort.", min=10)] = 150,
) -> None:
    """Fit a small simulated cohort and draw its curves beside the truth."""
    if out.exists() and not out.is_dir():
        raise InputError(f"{str(out)!r} is a file; name a folder.")
    from neuralsurv.cli.commands.demo import run

    run(out, rows)


@_command(given=run_options, streaming=StreamOptions, messages=Messages)
def fit(
    *,
    given: Config,
    out: o.ModelOut = None,
    streaming: StreamOptions,
    write_config: o.WriteConfig = None,
    force: o.Force = False,
    messages: Messages,
) -> None:
    """Fit a model to a table and save it.

    Text columns become indicators, gaps are filled and marked, and columns that cannot be used are left out; the
    command says so for each.
    """
    out = out or given.out
    if out is None:
        raise InputError("say where the model goes: --out m.neuralsurv.")
    check_settings(given.model)
    if streaming.stream or processes() > 1:
        from neuralsurv.cli.commands import fit_stream

        fit_stream.run(given, streaming, out, force=force, messages=messages)
        return
    if streaming != StreamOptions():
        raise InputError(
            "--method, --passes, --training-passes, --batch-size, --modes, --checkpoint and --own-rows are for "
            "rows that stream; add --stream."
        )
    check_there(check_file(given.data))
    from neuralsurv.cli.commands.fit import run

    run(given, out, write_config, force=force, messages=messages)


@_command(given=run_options, options=EvaluateOptions, messages=Messages)
def evaluate(
    *, given: Config, options: EvaluateOptions, out: o.ScoresOut = None, force: o.Force = False, messages: Messages
) -> None:
    """Cross-validate the model beside Kaplan-Meier and a ridge Cox model.

    Folds hold whole subjects where --id is given. Nothing is saved but the scores.
    """
    check_settings(given.model)
    check_there(check_file(given.data))
    from neuralsurv.cli.tables.survival_table import check_table

    check_table(given.data)
    # Imported late: it takes seconds that a mistake should not cost.
    from neuralsurv.cli.commands.evaluate import run

    run(given, options, out, force=force, messages=messages)


@_command(options=PredictOptions, table=some_of(DataSettings, "id", *FILE), messages=Messages)
def predict(
    *,
    model: o.Model,
    data: o.Data,
    options: PredictOptions,
    out: o.PredictionOut = None,
    picture: o.Picture = None,
    table: DataSettings,
    force: o.Force = False,
    messages: Messages,
) -> None:
    """Predict for the rows of a table, with intervals, as numbers or as a picture."""
    check_there(model, data)
    from neuralsurv.cli.commands.predict import run

    run(model, data, table, options, out, picture, force=force, messages=messages)


@_command(table=some_of(DataSettings, *OUTCOME, *FILE), arguments=ReportArguments, messages=Messages)
def report(
    *,
    model: o.Model,
    data: o.Data,
    out: o.ReportOut,
    table: DataSettings,
    arguments: ReportArguments,
    force: o.Force = False,
    messages: Messages,
) -> None:
    """Write a report on a model and a table: one HTML file that needs no network.

    The columns of the outcome are those of the fit, unless others are named.
    """
    check_there(model, data)
    from neuralsurv.cli.commands.report import run

    run(model, replace(table, file=data), arguments, out, force=force, messages=messages)


@_command(
    options=some_of(ServeOptions, "host", "port", "token_file", "no_token", port=0, explorer=True), messages=Messages
)
def explore(*, model: o.Model, options: ServeOptions, no_browser: o.NoBrowser = False, messages: Messages) -> None:
    """Open a page to explore a model: choose a person, see the curves with their bands, compare.

    The page runs on this machine and needs no network. Stop it with Ctrl-C.
    """
    from neuralsurv.cli.commands.serve import run

    run(model, options, browser=not no_browser, messages=messages)


@_command(options=ServeOptions, messages=Messages)
def serve(*, model: o.Model, options: ServeOptions, messages: Messages) -> None:
    """Serve the predictions of a model over HTTP: /predict, /model, /health, /metrics, /openapi.json.

    Only this machine can reach it unless --host says otherwise. A model file that is replaced is loaded without a
    restart.
    """
    from neuralsurv.cli.commands.serve import run

    run(model, options, messages=messages)


@_command()
def inspect(model: o.Model, json: o.Json = False) -> None:
    """Show what a model file holds: its data, columns, settings, convergence and warnings."""
    from neuralsurv.cli.commands.inspect import run

    run(model, messages=Messages(json=json))
