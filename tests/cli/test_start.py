"""The command as a script starts it: a real process."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest
from packaging.requirements import Requirement

from cli.run_command import QUICK, cohort_file, run
from neuralsurv import __version__
from neuralsurv.cli.options import complete_column

COMMAND = [sys.executable, "-m", "neuralsurv"]
ROLES = ["--time", "years", "--event", "died"]


def start(*arguments, **options):
    texts = [str(argument) for argument in arguments]
    return subprocess.run([*COMMAND, *texts], capture_output=True, text=True, encoding="utf-8", **options)


def test_help_comes_without_the_heavy_imports():
    code = (
        "import sys\nfrom neuralsurv.cli.start import main\nsys.argv = ['neuralsurv', '--help']\ntry:\n    main()\n"
        "except SystemExit as end:\n    assert not end.code\n"
        "print(sorted({'torch', 'pandas', 'sklearn', 'scipy', 'numpy', 'matplotlib'} & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, encoding="utf-8")
    assert found.stdout.strip().endswith("[]")
    for name in ("demo", "fit", "evaluate", "predict", "report", "explore", "serve", "inspect"):
        assert re.search(rf"\b{name}\b", found.stdout)
    assert "Exit codes: 0 done" in found.stdout


def test_letters_that_the_output_cannot_show_are_escaped(tmp_path):
    table = cohort_file(tmp_path)
    ascii_only = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    ended = start("evaluate", table, *ROLES, "--folds", "2", "--repeats", "1", *QUICK, env=ascii_only)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.isascii()
    assert "concordance \\u2191" in ended.stdout


def test_a_script_gets_json_and_exit_codes(tmp_path):
    table = cohort_file(tmp_path)
    assert run("fit", table, *ROLES, "--out", tmp_path / "m.neuralsurv", *QUICK).code == 0
    good = start("inspect", tmp_path / "m.neuralsurv", "--json")
    assert (good.returncode, good.stderr) == (0, "")
    assert json.loads(good.stdout)["training"]["rows"] == 40
    # Another process closes the pipe after the first line.
    pipe = f"{sys.executable} -m neuralsurv predict {tmp_path}/m.neuralsurv {table} --times 0:1:0.01 | head -n 1"
    cut = subprocess.run(["bash", "-c", f"set -o pipefail; {pipe}"], capture_output=True, text=True, encoding="utf-8")
    assert cut.stdout == "row,time,mean,median,lower,upper,extrapolated,filled_in\n"
    assert cut.stderr.startswith("note: filled in for 2 of 40 people")
    assert cut.stderr.count("\n") == 1
    assert cut.returncode == 0


def test_interrupt_ends_with_130_and_writes_nothing(tmp_path):
    table = cohort_file(tmp_path)
    heavy = ["--folds", "2", "--repeats", "500", *QUICK, "--out", str(tmp_path / "scores.csv")]
    process = subprocess.Popen(
        [*COMMAND, "evaluate", str(table), *ROLES, *heavy],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Tests that run in the background of a shell inherit that interrupts are ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        encoding="utf-8",
    )
    with process:
        # The notes on the columns come before the first fit.
        assert process.stderr is not None
        process.stderr.readline()
        time.sleep(1.0)
        process.send_signal(signal.SIGINT)
        try:
            out, err = process.communicate(timeout=120)
        finally:
            process.kill()
    assert process.returncode == 130, err
    assert err.strip().splitlines()[-1] == "error: interrupted; nothing was written."
    assert "Traceback" not in err
    assert out == ""
    assert list(tmp_path.iterdir()) == [table]


def test_version():
    assert run("--version").out == f"neuralsurv {__version__}\n"


def test_usage_errors_end_with_2():
    unknown = run("ft")
    assert unknown.code == 2
    assert "No such command 'ft'" in unknown.err
    assert run("predict").code == 2
    assert run("fit", "--nothing").code == 2


def test_unexpected_errors_are_one_sentence_unless_debugged(monkeypatch, tmp_path):
    def broken(*_, **__):
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("neuralsurv.cli.commands.inspect.run", broken)
    ended = run("inspect", tmp_path)
    assert ended.code == 1
    assert ended.err == "error: unexpected ZeroDivisionError: a bug. Run neuralsurv --debug … to see where.\n"
    with pytest.raises(ZeroDivisionError, match="a bug"):
        run("--debug", "inspect", tmp_path)


def test_no_memory_is_said(monkeypatch, tmp_path):
    def hungry(*_, **__):
        raise MemoryError

    monkeypatch.setattr("neuralsurv.cli.commands.inspect.run", hungry)
    ended = run("inspect", tmp_path)
    assert ended.code == 2
    assert "there is not enough memory for this; use fewer rows, times or draws." in ended.err


def test_without_typer_the_command_says_what_to_install():
    code = "import sys; sys.modules['typer'] = None; from neuralsurv.cli.start import main; main()"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, encoding="utf-8")
    assert ended.returncode == 2
    assert ended.stderr == "error: the command line needs typer: pip install 'neuralsurv[cli]'.\n"


def test_demo_is_a_command(monkeypatch, tmp_path):
    called = []
    monkeypatch.setattr("neuralsurv.cli.commands.demo.run", lambda folder, rows: called.append((folder, rows)))
    assert run("demo", "--out", tmp_path, "--rows", 30).code == 0
    assert called == [(tmp_path, 30)]


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["neuralsurv", "ev"], ["evaluate"]),
        (["neuralsurv", "fit", "{table}", "--time", "y"], ["years"]),
        (["neuralsurv", "fit", "{table}", "--unit", "w"], ["weeks"]),
    ],
)
def test_shell_completion(tmp_path, words, offered):
    texts = [word.format(table=cohort_file(tmp_path)) for word in words]
    environment = {
        **os.environ,
        "_NEURALSURV_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(texts),
        "COMP_CWORD": str(len(texts) - 1),
    }
    assert start(env=environment).stdout.split() == offered


def test_completion_of_columns_never_fails(tmp_path):
    (tmp_path / "a.tsv").write_text("age\tarm\tdose\n", encoding="utf-8")
    for name, offered in (("nothing.csv", []), ("a.parquet", []), ("a.tsv", ["age", "arm"])):
        context = SimpleNamespace(params={"data": tmp_path / name}, args=[])
        assert complete_column(context, "a") == offered
    assert complete_column(SimpleNamespace(params={}, args=["x"]), "a") == []


def test_no_typer_is_allowed_that_fails_with_newer_versions_of_click():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (typer,) = (Requirement(text) for text in project["optional-dependencies"]["cli"] if text.startswith("typer"))
    # `neuralsurv fit --help` ends with a TypeError: click 8.2 calls make_metavar with a context.
    assert not typer.specifier.contains("0.15.4")
    assert typer.specifier.contains("0.16.0")
