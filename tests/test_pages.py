import doctest
import importlib
import pkgutil
import shutil
from pathlib import Path

import pytest
from matplotlib import pyplot

import neuralsurv
import pages

ROOT = Path(__file__).parents[1]
EVERY_PAGE = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES = [path for path in EVERY_PAGE if pages.blocks(path)]
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
