"""The command line as a person sees it: in a real terminal, with its width, its colours, its keys."""

import re
import sys
from pathlib import Path

import pytest

from cli.run_command import QUICK, cohort_file
from cli.terminal import HIDE_CURSOR, INTERRUPT, SHOW_CURSOR, TAB, Terminal, in_terminal

COMMAND = [sys.executable, "-m", "neuralsurv"]
ROLES = ["--time", "years", "--event", "died"]
COLOUR = re.compile(r"\x1b\[[0-9;]*[1-9][0-9;]*m")


def test_fit_shows_progress_colour_and_the_result(tmp_path):
    out = tmp_path / "m.neuralsurv"
    code, terminal = in_terminal([*COMMAND, "fit", cohort_file(tmp_path), *ROLES, "--out", out, *QUICK])
    assert code == 0, terminal.text
    assert "━" in terminal.seen, "a progress bar"
    assert "\x1b[36mnote: " in terminal.seen
    assert f"wrote {out}" in terminal.text.replace("\n", "")
    assert out.exists()
    assert terminal.seen.rfind(SHOW_CURSOR) > terminal.seen.rfind(HIDE_CURSOR) >= 0, "the cursor is there again"


def test_quiet_shows_no_progress(tmp_path):
    ask = ["fit", cohort_file(tmp_path), *ROLES, "--out", tmp_path / "m.neuralsurv", "--quiet", *QUICK]
    code, terminal = in_terminal([*COMMAND, *ask])
    assert code == 0
    assert "━" not in terminal.seen
    assert HIDE_CURSOR not in terminal.seen
    assert terminal.seen.count("note: ") == 1, "how the event was read"


def test_wrong_input_is_one_sentence(tmp_path):
    ask = ["fit", cohort_file(tmp_path), "--time", "yaers", "--event", "died", "--out", "x"]
    code, terminal = in_terminal([*COMMAND, *ask], columns=300, folder=tmp_path)
    assert code == 2
    assert "\x1b[31merror: " in terminal.seen
    assert "did you mean 'years'?" in terminal.text
    assert "Traceback" not in terminal.text
    assert len(terminal.text.strip().split("\n")) == 1


@pytest.mark.parametrize("columns", [60, 140])
def test_tables_fill_the_width_and_no_more(tmp_path, columns):
    ask = ["fit", cohort_file(tmp_path), *ROLES, "--out", "m.neuralsurv", *QUICK]
    code, terminal = in_terminal([*COMMAND, *ask], columns=columns, folder=tmp_path)
    assert code == 0, terminal.text
    table = terminal.text.split("Covariates (")[1].split("Data\n")[0]
    assert max(len(line.rstrip()) for line in table.split("\n")) <= columns
    # The last cell of a column with gaps is a sentence, which wraps only where it must.
    whole = "scaled; gaps filled with the mean; too few for an indicator"
    assert (whole in table) == (columns == 140)


@pytest.mark.parametrize("columns", [50, 120])
def test_help_fits_the_width(columns):
    code, terminal = in_terminal([*COMMAND, "--help"], columns=columns)
    assert code == 0
    assert max(len(line.rstrip()) for line in terminal.lines) <= columns
    for name in ("demo", "fit", "evaluate", "predict", "report", "inspect"):
        assert re.search(rf"│ {name} ", terminal.text)
    assert COLOUR.search(terminal.seen)


def test_help_of_a_command_groups_its_options():
    code, terminal = in_terminal([*COMMAND, "predict", "-h"])
    assert code == 0
    titles = re.findall(r"╭─ ([A-Z]\w+) ─", terminal.text)
    assert {"Arguments", "Columns", "Prediction", "Run", "Table"} <= set(titles)
    assert "--picture" in terminal.text


def test_no_color_is_heeded(tmp_path):
    ask = ["fit", cohort_file(tmp_path), *ROLES, "--out", tmp_path / "m.neuralsurv", *QUICK]
    code, terminal = in_terminal([*COMMAND, *ask], environment={"NO_COLOR": "1"})
    assert code == 0
    assert "note: left out column 'name'" in terminal.text
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]m", terminal.seen), "a colour"


def test_ctrl_c_ends_with_130_and_gives_the_cursor_back(tmp_path):
    table, out = cohort_file(tmp_path), tmp_path / "scores.csv"
    ask = ["evaluate", table, *ROLES, "--folds", "2", "--repeats", "500", "--out", out, *QUICK]
    with Terminal([*COMMAND, *ask]) as terminal:
        terminal.wait_for("━")
        terminal.type(INTERRUPT)
        code = terminal.finish()
    assert code == 130, terminal.text
    assert terminal.lines[-2] == "error: interrupted; nothing was written."
    assert "Traceback" not in terminal.text
    assert terminal.seen.rfind(SHOW_CURSOR) > terminal.seen.rfind(HIDE_CURSOR) >= 0
    assert list(tmp_path.iterdir()) == [table]


def test_a_shell_completes_commands_and_columns(tmp_path):
    cohort_file(tmp_path)
    places = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"
    environment = {"PATH": places, "PS1": "ready> ", "HISTFILE": "", "BASH_SILENCE_DEPRECATION_WARNING": "1"}
    shell = ["bash", "--norc", "--noprofile", "-i"]
    with Terminal(shell, columns=200, environment=environment, folder=tmp_path) as terminal:
        terminal.wait_for("ready> ")
        terminal.type("source <(neuralsurv --show-completion bash); echo so''urced\n")
        terminal.wait_for("sourced\r\n")
        terminal.type(f"neuralsurv eval{TAB}")
        terminal.wait_for("neuralsurv evaluate ")
        terminal.type(f"people.csv --time ye{TAB}")
        terminal.wait_for("--time years")
