"""Walk the path of the README with a table of one's own, count the steps and time them.

A newcomer has a copy of the repository and a CSV with columns of text, gaps, names and words for the event. This
command makes both in a fresh folder, types what the README says, with the names of that table in their places, and
checks that a model and a picture of curves came out.

    python benchmarks/newcomer/walk.py                   # everything, with a fresh virtual environment
    python benchmarks/newcomer/walk.py --no-install      # with the command that is installed already

``--out`` adds a line to the stored results, ``--page`` writes the page of the documentation from them.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
# What the newcomer's table is called, and its columns, in place of those of the README.
OWN = (
    ("docs/data/veterans.csv", "own.csv"),
    ("docs/data/people.csv", "own.csv"),
    ("--time days", "--time months"),
    ("--event died", "--event status --event-value dead"),
)
COPIED = ("src", "docs/data", "README.md", "LICENSE", "pyproject.toml", "constraints.txt")


def steps() -> list[str]:
    """Return the commands of the first shell block of the README."""
    block = re.search(r"^```sh\n(.*?)^```", README.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    assert block is not None, "the README has no shell block"
    return [line for line in block[1].splitlines() if line.strip()]


def own_steps() -> list[str]:
    """Return the same commands for a table of one's own."""
    commands = steps()
    for theirs, own in OWN:
        assert any(theirs in command for command in commands), f"the README does not say {theirs!r} any more"
        commands = [command.replace(theirs, own) for command in commands]
    return commands


def own_table(rows: int = 120, seed: int = 0) -> pd.DataFrame:
    """Return a table as people have them: names, dates, text, gaps, a constant column, words for the event."""
    rng = np.random.default_rng(seed)
    age = rng.normal(63, 9, rows).round()
    stage = rng.choice(["I", "II", "III"], rows)
    rate = 0.02 * np.exp(0.04 * (age - 63) + 0.7 * (stage == "III"))
    death, lost = rng.exponential(1 / rate), rng.uniform(6, 72, rows)
    frame = pd.DataFrame(
        {
            "patient": [f"P{k:03d}" for k in range(rows)],
            "admitted": pd.Timestamp("2019-01-07") + pd.to_timedelta(rng.integers(0, 900, rows), "D"),
            "months": np.minimum(death, lost).round(1).clip(0.1),
            "status": np.where(death <= lost, "dead", "alive"),
            "age": age,
            "sex": rng.choice(["f", "m"], rows),
            "stage": stage,
            "marker": rng.lognormal(1, 0.5, rows).round(2),
            "clinic": "North",
        }
    )
    frame.loc[rng.random(rows) < 0.15, "marker"] = np.nan
    frame.loc[rng.random(rows) < 0.1, "stage"] = None
    return frame


def walk(folder: Path, *, install: bool) -> list[dict[str, object]]:
    """Type every step in the folder; return what was typed and how long it took.

    Parameters
    ----------
    folder : Path
        A copy of the repository, with the newcomer's table in it.
    install : bool
        Whether the environment is made and filled; if not, those steps are left out and the installed command is used.
    """
    # The versions of the repository's own checks, so that the walk can be repeated.
    variables = {**os.environ, "PIP_CONSTRAINT": str(folder / "constraints.txt"), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    if install:
        variables = {name: value for name, value in variables.items() if name != "PYTHONPATH"}
    else:
        variables["PATH"] = f"{Path(sys.executable).parent}:{variables['PATH']}"
    walked: list[dict[str, object]] = []
    before = "true"
    for command in own_steps():
        activates = "activate" in command
        if not install and (activates or command.startswith("pip ")):
            continue
        began, spent = time.perf_counter(), _cpu_seconds()
        # Each step is a shell of its own, so the environment is activated anew in each.
        done = subprocess.run(
            ["bash", "-c", f"{before} && {command}"],
            cwd=folder,
            env=variables,
            capture_output=True,
            text=True,
            encoding="utf-8",
        )
        seconds, cpu = time.perf_counter() - began, _cpu_seconds() - spent
        if done.returncode:
            raise SystemExit(f"the step {command!r} failed:\n{done.stdout}\n{done.stderr}")
        print(f"{seconds:7.1f} s  {command}", flush=True)
        said = done.stderr.strip().splitlines()
        walked.append({"command": command, "seconds": round(seconds, 1), "cpu_seconds": round(cpu, 1), "said": said})
        if activates:
            before = "source .venv/bin/activate"
    return walked


def _cpu_seconds() -> float:
    """Return what the processes that have ended took of all cores."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def check(folder: Path) -> None:
    """See that there is a model and a picture that shows something."""
    picture = (folder / "curves.png").read_bytes()
    if not picture.startswith(b"\x89PNG") or len(picture) < 10_000:
        raise SystemExit("curves.png is not a picture of curves.")
    if not (folder / "m.neuralsurv").exists():
        raise SystemExit("there is no model file.")


def record(walked: list[dict[str, object]], *, install: bool) -> dict[str, object]:
    """Return what is stored of a walk."""
    return {
        "date": datetime.date.today().isoformat(),
        "install": install,
        "steps": [{name: value for name, value in step.items() if name != "said"} for step in walked],
        "python": platform.python_version(),
        "machine": {"system": platform.system(), "cores": os.cpu_count()},
    }


def page(runs: list[dict[str, object]]) -> str:
    """Return the page of the documentation: the last walk with an installation."""
    last = [run for run in runs if run["install"]][-1]
    walked = last["steps"]
    assert isinstance(walked, list)
    machine = last["machine"]
    assert isinstance(machine, dict)
    total = sum(step["seconds"] for step in walked)
    after = sum(step["seconds"] for step in walked if step["command"].startswith("neuralsurv"))
    rows = [
        f"| {k} | `{step['command']}` | {step['seconds']:.1f} | {step['cpu_seconds']:.1f} |"
        for k, step in enumerate(walked, 1)
    ]
    return f"""# A newcomer's path

<!-- Written by `python benchmarks/newcomer/walk.py --page`; do not edit. -->

From a copy of the repository and a CSV of one's own to a picture of survival curves, as the README says it:
**{len(walked)} commands**, {total:.0f} seconds, of which {after:.0f} after the installation.

| | typed | seconds | CPU seconds |
|--:|---|--:|--:|
{chr(10).join(rows)}

The table has 120 rows, a column of names, one of dates, one with a single value, two of text, gaps in two columns,
and words for the event; nothing had to be prepared. That `predict` draws, and that words in the event column are
answered with what to type, is so because an earlier walk stumbled there.

Measured on {last["date"]} with Python {last["python"]} on {machine["system"]}, {machine["cores"]} cores, beside other
work. The packages came from a mirror close by, in the versions of `constraints.txt`, with torch's CPU build; over a
slow network the installation takes as long as the download of torch. Getting the copy, reading and typing are not in
it.

`python benchmarks/newcomer/walk.py --out benchmarks/newcomer/results.jsonl --page docs/newcomer.md` repeats it; a test
walks the same path without the installation.
"""


def main() -> None:
    """Walk, and store what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--no-install", action="store_true", help="use the command that is installed")
    parser.add_argument("--out", type=Path, help="add a line to this file")
    parser.add_argument("--page", type=Path, help="write the page from that file")
    given = parser.parse_args()
    install = not given.no_install
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "neuralsurv"
        for name in COPIED:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            copy(ROOT / name, folder / name)
        own_table().to_csv(folder / "own.csv", index=False)
        walked = walk(folder, install=install)
        check(folder)
    for step in walked:
        for line in step["said"] if not str(step["command"]).startswith("pip ") else []:  # type: ignore[attr-defined]
            print(f"  said: {line}")
    if given.out is not None:
        with given.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record(walked, install=install)) + "\n")
    if given.page is not None:
        stored = (given.out or Path(__file__).with_name("results.jsonl")).read_text(encoding="utf-8").splitlines()
        given.page.write_text(page([json.loads(line) for line in stored]), encoding="utf-8")


if __name__ == "__main__":
    main()
