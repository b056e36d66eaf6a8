import doctest
import importlib
import pkgutil
import re
import shutil
import tomllib
from pathlib import Path

import pytest
from matplotlib import pyplot

import neuralsurv
import pages
from cli.run_command import run
from neuralsurv.cli.config import read_config

ROOT = Path(__file__).parents[1]
EVERY_PAGE = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES = [path for path in EVERY_PAGE if pages.blocks(path)]
COMMANDS = {"demo", "fit", "predict", "evaluate", "report", "inspect"}
# They run until somebody ends them; their own tests start them.
SERVERS = {"explore", "serve"}
MODULES = [name for _, name, _ in pkgutil.walk_packages(neuralsurv.__path__, "neuralsurv.")]


def name_of(page):
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_python_block_of_a_page_runs(page, tmp_path):
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    copy = tmp_path / page.relative_to(ROOT)
    shutil.copy(page, copy)
    pages.run(copy)
    pyplot.close("all")


def quicker(words):
    """Return a command with fewer draws or rows; all else as it is written."""
    return [
        *words,
        *{"fit": ["--draws", "40"], "evaluate": ["--draws", "40"], "demo": ["--rows", "30"]}.get(words[0], []),
    ]


def test_every_command_of_the_pages_runs(tmp_path, monkeypatch):
    for table in (ROOT / "docs" / "data").iterdir():
        shutil.copy(table, tmp_path)
    shutil.copytree(ROOT / "docs" / "data", tmp_path / "docs" / "data")
    monkeypatch.chdir(tmp_path)
    # A command that several pages have is run once; what they write is the same.
    commands = list(dict.fromkeys(tuple(words[1:]) for page in EVERY_PAGE for words in neuralsurv_lines(page)))
    for words in sorted(commands, key=lambda words: words[0] not in ("fit", "demo")):
        assert words[0] in COMMANDS, f"this test does not know 'neuralsurv {words[0]}'"
        written = [tmp_path / words[k + 1] for k, word in enumerate(words) if word in ("--out", "--picture")]
        for path in written:
            # Two pages may give one name to what they write.
            path.unlink(missing_ok=True)
        ended = run(*quicker(words))
        assert ended.code == 0, f"neuralsurv {' '.join(words)}\n{ended.err}"
        assert all(path.exists() for path in written)
    assert {words[0] for words in commands} == COMMANDS


def neuralsurv_lines(page):
    """Return the lines that call the command, of those whose process ends by itself."""
    return [words for words in pages.shell_lines(page) if words[0] == "neuralsurv" and words[1] not in SERVERS]


@pytest.mark.parametrize("page", [page for page in EVERY_PAGE if pages.shell_lines(page)], ids=name_of)
def test_other_commands_of_the_pages_exist(page):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    for program, *words in pages.shell_lines(page):
        if program == "make":
            assert set(words) <= set(targets)
        elif program == "pip":
            (what,) = words[1:]
            extras = re.fullmatch(r"(?:\.|neuralsurv)(?:\[(.*)\])?", what)
            assert extras is not None, what
            assert not extras[1] or set(extras[1].split(",")) <= set(project["optional-dependencies"])


def test_the_config_file_of_the_page_is_one(tmp_path):
    (block,) = pages.fenced(ROOT / "docs" / "command-line.md", "toml")
    path = tmp_path / "run.toml"
    path.write_text(block, encoding="utf-8")
    found = read_config(path)
    assert found.data.time == "days"
    assert found.model["hidden"] == [4] or found.model["hidden"] == (4,)


def test_tutorial_goes_from_csv_to_picture_in_ten_lines(tmp_path):
    first = pages.blocks(ROOT / "docs" / "tutorial.md")[0]
    lines = [line for line in first.splitlines() if line.strip()]
    assert len(lines) <= 10
    assert "read_csv" in first
    assert "plot_survival" in first


@pytest.mark.parametrize("module", MODULES)
def test_examples_in_docstrings_run(module):
    results = doctest.testmod(importlib.import_module(module))
    assert results.failed == 0
