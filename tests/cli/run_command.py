"""Run commands of the command line in this process, on small tables that fit in a fraction of a second."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from typer.testing import CliRunner

from neuralsurv.cli.command_line import app
from small_cohort import small_cohort

QUICK = ["--preset", "paper", "--hidden", "2", "--draws", "40", "--set", "starts=1", "--set", "activation=tanh",
         "--set", "quadrature=gauss-legendre", "--set", "quadrature_points=8"]  # fmt: skip


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def run(*arguments: Any) -> Ended:
    """Run a command."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], prog_name="neuralsurv")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Ended(result.exit_code, result.stdout, result.stderr)


def refused(*arguments: Any) -> str:
    """Run a command that must be refused with one sentence, and return the sentence."""
    ended = run(*arguments)
    assert ended.code == 2, ended
    assert ended.out == ""
    lines = ended.err.strip().splitlines()
    said = [line for line in lines if not line.startswith("note: ")]
    assert len(said) == 1, ended.err
    assert said[0].startswith("error: ")
    return said[0].removeprefix("error: ")


def cohort_file(folder: Path, n: int = 40) -> Path:
    """Write a cohort with text and gaps, and return its path."""
    frame = small_cohort(n).frame()
    frame["died"] = frame["died"].astype(int)
    frame["stage"] = np.where(np.arange(n) % 3 == 0, "II", "III")
    frame.loc[[1, 5], "dose"] = np.nan
    frame["name"] = [f"person {k}" for k in range(n)]
    frame["clinic"] = "North"
    path = folder / "people.csv"
    frame.to_csv(path, index=False)
    return path


def fitted_file(folder: Path) -> tuple[Path, Path]:
    """Fit a model to that cohort, and return its path and that of the table."""
    table, model = cohort_file(folder), folder / "m.neuralsurv"
    ended = run("fit", table, "--time", "years", "--event", "died", "--out", model, *QUICK)
    assert ended.code == 0, ended.err
    return model, table


def read(path: Path) -> pd.DataFrame:
    return pd.read_csv(path)
