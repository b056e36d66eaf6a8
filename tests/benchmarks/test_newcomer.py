"""A newcomer's path: what the README says, typed for a table of one's own, leads to a curve in few steps."""

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "benchmarks" / "newcomer"


def readme_commands():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return re.search(r"```sh\n(.*?)```", text, flags=re.DOTALL)[1].strip().split("\n")


def test_the_path_of_the_readme_leads_to_a_curve_for_a_table_of_ones_own(tmp_path):
    out = tmp_path / "results.jsonl"
    command = [sys.executable, str(FOLDER / "walk.py"), "--no-install", "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8")
    assert done.returncode == 0, done.stdout + done.stderr
    record = json.loads(out.read_text(encoding="utf-8"))
    fit, predict = record["steps"]
    assert fit["command"] == "neuralsurv fit own.csv --time months --event status --event-value dead --out m.neuralsurv"
    assert predict["command"] == "neuralsurv predict m.neuralsurv own.csv --picture curves.png"
    # What could not be used is said; text and gaps are used without a word from the newcomer.
    said = [line.removeprefix("  said: ") for line in done.stdout.splitlines() if line.startswith("  said: ")]
    assert said[0] == "note: status: dead (65) → event; alive (55) → censored."
    left_out = [f" left out column {name!r}" for name in ("patient", "admitted", "clinic")]
    assert [line.split(":")[1] for line in said[1:4]] == left_out
    assert said[4].startswith("note: filled in for 25 of 120 people who lack values: marker (16), stage (10).")
    assert said[5:] == ["note: the picture shows the first 3 of 120 people."]


def test_the_readme_needs_four_commands():
    commands = readme_commands()
    assert len(commands) == 4
    assert [command.split()[0] for command in commands] == ["python3", "pip", "neuralsurv", "neuralsurv"]


def test_the_stored_walk_is_of_the_path_that_the_readme_has():
    runs = [json.loads(line) for line in (FOLDER / "results.jsonl").read_text(encoding="utf-8").splitlines()]
    last = [run for run in runs if run["install"]][-1]
    typed = [step["command"] for step in last["steps"]]
    own = [
        command.replace("docs/data/veterans.csv", "own.csv").replace("docs/data/people.csv", "own.csv")
        .replace("--time days", "--time months").replace("--event died", "--event status --event-value dead")
        for command in readme_commands()
    ]  # fmt: skip
    assert typed == own
    page = (ROOT / "docs" / "newcomer.md").read_text(encoding="utf-8")
    assert f"**{len(typed)} commands**" in page
    for step in last["steps"]:
        assert f"| `{step['command']}` | {step['seconds']:.1f} |" in page
