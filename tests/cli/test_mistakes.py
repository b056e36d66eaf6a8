"""A mistake on the command line is answered before torch is imported, by every command."""

import inspect
import subprocess
import sys

import pytest
from typer.main import get_command

from neuralsurv import NeuralSurv, PaperNeuralSurv
from neuralsurv.cli.command_line import app
from neuralsurv.cli.config import MODEL_SETTINGS
from small_cohort import small_cohort

START = """
import sys
from neuralsurv.cli.start import main
try:
    main()
finally:
    assert "torch" not in sys.modules, "torch was imported"
"""
OUTCOME = ["--time", "years", "--event", "died"]
OUT = ["--out", "OUT/m.neuralsurv"]
PAGE = ["--out", "OUT/r.html"]
# Of each command, what is wrong and the beginning of what it says. MODEL, DATA and FEW are files that are there.
MISTAKES = {
    "demo": [
        (["--rows", "3"], "Invalid value for '--rows'"),
        (["--out", "DATA"], "is a file; name a folder"),
    ],
    "fit": [
        (["DATA", *OUTCOME], "say where the model goes"),
        (["none.csv", *OUTCOME, *OUT], "there is no file 'none.csv'"),
        (["DATA", "--event", "died", *OUT], "say which column holds the time"),
        (["DATA", "--time", "years", *OUT], "say which column holds the event"),
        (["DATA", "--time", "yearz", "--event", "died", *OUT], "there is no column 'yearz'"),
        (["DATA", *OUTCOME, *OUT, "--drop", "agee"], "there is no column 'agee'"),
        (["DATA", *OUTCOME, *OUT, "--set", "foo=1"], "there is no setting 'foo'"),
        (["DATA", *OUTCOME, *OUT, "--preset", "foo"], "preset 'foo' is not known"),
        (["DATA", *OUTCOME, *OUT, "--hidden", "x"], "--hidden 'x' must be whole numbers"),
        (["DATA", *OUTCOME, *OUT, "--passes", "3"], "are for rows that stream"),
        (["DATA", *OUTCOME, "--out", "DATA"], "is also read by this command"),
        (["DATA", *OUTCOME, "--out", "none/m.neuralsurv"], "the folder 'none' does not exist"),
        (["DATA", *OUTCOME, *OUT, "--config", "none.toml"], "the config file 'none.toml' cannot be read"),
        (["none.parquet", *OUTCOME, *OUT, "--stream"], "there is no Parquet file"),
        (["DATA", *OUTCOME, *OUT, "--stream", "--preset", "paper"], "--stream is for the default model"),
    ],
    "evaluate": [
        (["none.csv", *OUTCOME], "there is no file 'none.csv'"),
        (["DATA", "--event", "died"], "say which column holds the time"),
        (["DATA", "--time", "yearz", "--event", "died"], "there is no column 'yearz'"),
        (["DATA", *OUTCOME, "--folds", "1"], "1 fold and 1 repeat cannot be run"),
        (["DATA", *OUTCOME, "--set", "foo=1"], "there is no setting 'foo'"),
    ],
    "predict": [
        (["none.neuralsurv", "DATA"], "there is no file 'none.neuralsurv'"),
        (["MODEL", "none.csv"], "there is no file 'none.csv'"),
        (["DATA", "DATA"], "is not a model file"),
        (["MODEL", "FEW"], "there is no column 'dose' (used by the model)"),
        (["MODEL", "DATA", "--id", "foo"], "there is no column 'foo' (--id)"),
        (["MODEL", "DATA", "--quantity", "foo"], "there is no quantity 'foo'"),
        (["MODEL", "DATA", "--times", "x"], "--times 'x' is not understood"),
        (["MODEL", "DATA", "--level", "2"], "level=2.0 must lie strictly between 0 and 1"),
        (["MODEL", "DATA", "--picture", "OUT/x.doc"], "--picture 'x.doc' must end with"),
        (["MODEL", "DATA", "--out", "MODEL"], "is also read by this command"),
    ],
    "report": [
        (["none.neuralsurv", "DATA", *PAGE], "there is no file 'none.neuralsurv'"),
        (["MODEL", "none.csv", *PAGE], "there is no file 'none.csv'"),
        (["MODEL", "DATA"], "Missing option '--out'"),
        (["DATA", "DATA", *PAGE], "is not a model file"),
        (["MODEL", "FEW", *PAGE], "there is no column 'dose' (used by the model)"),
        (["MODEL", "DATA", *PAGE, "--times", "x"], "--times 'x' is not understood"),
        (["MODEL", "DATA", *PAGE, "--people", "x"], "--people 'x' must be row numbers"),
        (["MODEL", "DATA", *PAGE, "--level", "2"], "level=2.0 must lie strictly between 0 and 1"),
        (["MODEL", "DATA", *PAGE, "--rows", "3"], "--rows 3 is too few"),
    ],
    "explore": [(["none.neuralsurv"], "there is no file 'none.neuralsurv'"), (["DATA"], "is not a model file")],
    "serve": [
        (["none.neuralsurv"], "there is no file 'none.neuralsurv'"),
        (["DATA"], "is not a model file"),
        (["MODEL", "--host", "0.0.0.0"], "can be reached from other machines"),
        (["MODEL", "--timeout", "0"], "--timeout 0 must be above 0"),
        (["MODEL", "--workers", "0"], "Invalid value for '--workers'"),
        (["MODEL", "--token-file", "none"], "the token file 'none' cannot be read"),
        (["MODEL", "--host", "no.such.host.invalid", "--no-token"], "is not an address of this machine"),
    ],
    "inspect": [(["none.neuralsurv"], "there is no file 'none.neuralsurv'"), (["DATA"], "is not a model file")],
}
COMMANDS = sorted(get_command(app).commands)  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mistakes")
    cohort = small_cohort(40)
    cohort.frame().to_csv(folder / "people.csv", index=False)
    cohort.frame().drop(columns="dose").to_csv(folder / "few.csv", index=False)
    NeuralSurv(draws=10, verbose=False, random_state=0).fit(cohort.frame(), time="years", event="died").save(
        folder / "m.neuralsurv"
    )
    (folder / "out").mkdir()
    files = {"MODEL": "m.neuralsurv", "DATA": "people.csv", "FEW": "few.csv", "OUT": "out"}
    return {name: str(folder / file) for name, file in files.items()}


def test_every_command_has_its_mistakes():
    assert sorted(MISTAKES) == COMMANDS


def said(arguments, places):
    """Run a command in a process of its own, and return its exit code and what it says, on one line."""
    filled = []
    for argument in map(str, arguments):
        name, slash, rest = argument.partition("/")
        filled.append(places.get(name, name) + slash + rest)
    # Wide enough that no sentence is cut.
    ended = subprocess.run(
        [sys.executable, "-c", START, *filled], capture_output=True, text=True, env=_environment(), check=False
    )
    return ended.returncode, " ".join(ended.stderr.replace("│", " ").split())


def _environment():
    import os

    return {name: value for name, value in os.environ.items() if name != "NEURALSURV_TOKEN"} | {"COLUMNS": "1000"}


@pytest.mark.parametrize("command", COMMANDS)
def test_torch_is_not_imported_for_an_option_that_does_not_exist(command, places):
    code, text = said([command, "--no-such-option"], places)
    assert code == 2
    assert "No such option: --no-such-option" in text


@pytest.mark.parametrize(
    ("command", "arguments", "sentence"),
    [(command, *mistake) for command, mistakes in MISTAKES.items() for mistake in mistakes],
)
def test_torch_is_not_imported_for_a_mistake(command, arguments, sentence, places):
    code, text = said([command, *arguments], places)
    assert "torch was imported" not in text
    assert sentence in text
    assert code == 2


def test_settings_are_those_of_the_estimators():
    for preset, estimator in {"default": NeuralSurv, "paper": PaperNeuralSurv}.items():
        every = [name for name in inspect.signature(estimator).parameters]
        assert list(MODEL_SETTINGS[preset]) == [
            name for name in every if name not in ("verbose", "warm_start", "network")
        ]
