"""The site builds without a warning, and every public name has its place in the reference."""

import ast
import dataclasses
import inspect
import os
import re
import subprocess
import sys
import typing
import zlib
from pathlib import Path

import griffe
import pytest

import neuralsurv
from docs_extensions.docstrings import ReadableDocstrings, as_markdown
from neuralsurv import NeuralSurv, OwnNetwork, PaperNeuralSurv, errors, metrics
from neuralsurv.data import simulate
from neuralsurv.data.outcome import Outcome
from neuralsurv.estimator.summary import Summary
from neuralsurv.posterior.diagnostics import Diagnostics
from neuralsurv.posterior.fitted import Fitted
from neuralsurv.prediction import prediction

ROOT = Path(__file__).parents[1]
REFERENCE = ("reference.html", "metrics.html")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    variables = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return folder


@pytest.fixture(scope="module")
def documented(site):
    """Every name that has an anchor on a page of the reference, from the inventory that other sites link by."""
    data = (site / "objects.inv").read_bytes()
    lines = zlib.decompress(data.split(b"\n", 4)[4]).decode("utf-8").splitlines()
    entries = [re.fullmatch(r"(\S+) \S+ \S+ (\S+) .*", line) for line in lines]
    return {entry[1] for entry in entries if entry and entry[2].split("#")[0] in REFERENCE}


def public(module):
    """Return the classes, functions and constants that a module defines itself and that have no underscore."""
    names = []
    for node in ast.parse(inspect.getsource(module)).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            names.append(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names += [target.id for target in targets if isinstance(target, ast.Name)]
    return [name for name in names if not name.startswith("_")]


def members(owner):
    """Return the methods and properties of a class that are ours to document."""
    found = []
    for name in dir(owner):
        value = inspect.getattr_static(owner, name)
        ours = getattr(getattr(value, "fget", None) or getattr(value, "func", None) or value, "__module__", "")
        if not name.startswith("_") and str(ours).startswith("neuralsurv") and not inspect.isclass(value):
            found.append(name)
    return found


def test_the_top_level_names_are_in_the_reference(documented):
    # The metrics have a page of their own.
    names = set(neuralsurv.__all__) - {"__version__", "metrics"}
    assert {f"neuralsurv.{name}" for name in names} <= documented


@pytest.mark.parametrize("module", [errors, prediction, simulate], ids=lambda module: module.__name__)
def test_every_name_of_the_public_modules_is_in_the_reference(documented, module):
    names = public(module)
    assert names
    missing = [name for name in names if f"{module.__name__}.{name}" not in documented]
    assert missing == []


def test_every_metric_is_in_the_reference(documented):
    missing = [name for name in metrics.__all__ if f"neuralsurv.metrics.{name}" not in documented]
    assert missing == []


@pytest.mark.parametrize(
    ("owner", "path"),
    [
        (NeuralSurv, "neuralsurv.NeuralSurv"),
        (OwnNetwork, "neuralsurv.OwnNetwork"),
        (prediction.Prediction, "neuralsurv.prediction.prediction.Prediction"),
        (Outcome, "neuralsurv.data.outcome.Outcome"),
        (Summary, "neuralsurv.estimator.summary.Summary"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_every_public_method_is_in_the_reference(documented, owner, path):
    names = [name for name in members(owner) if not dataclasses.is_dataclass(getattr(owner, name, None))]
    # What a fit leaves behind is told by `Fitted`.
    names = [name for name in names if not name.endswith("_")]
    missing = [name for name in names if f"{path}.{name}" not in documented]
    assert missing == []
    assert path in documented


def test_the_methods_of_the_second_estimator_are_documented_with_the_first():
    assert set(members(PaperNeuralSurv)) <= set(members(NeuralSurv))


def test_what_a_fit_leaves_behind_is_in_the_reference(documented):
    types = typing.get_type_hints(Fitted)
    assert set(typing.get_type_hints(NeuralSurv)) >= {"fitted_"}
    ours = {Fitted} | {
        kind
        for annotation in types.values()
        for kind in (annotation, *typing.get_args(annotation))
        if getattr(kind, "__module__", "").startswith("neuralsurv")
    }
    assert Diagnostics in ours
    missing = sorted(f"{kind.__module__}.{kind.__qualname__}" for kind in ours)
    assert [name for name in missing if name not in documented] == []


def test_parameters_show_the_default_of_the_signature(site):
    page = (site / "reference.html").read_text(encoding="utf-8")
    row = re.search(r"<code>activation</code>.*?</tr>", page, flags=re.DOTALL)[0]
    assert "None" in row
    assert ":mod:" not in page
    assert ":meth:" not in page


def test_pictures_of_every_page_are_on_the_site(site):
    for path in (ROOT / "docs").rglob("*.md"):
        for name in re.findall(r"!\[.*?\]\((\S+?)\)", path.read_text(encoding="utf-8")):
            assert (site / path.parent.relative_to(ROOT / "docs") / name).exists(), f"{path.name}: {name}"


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("See :func:`neuralsurv.load` or :meth:`fit`.", "See `neuralsurv.load` or `fit`."),
        (
            "A :class:`~neuralsurv.prediction.prediction.Prediction`.",
            "A `neuralsurv.prediction.prediction.Prediction`.",
        ),
        (r"It is :math:`\sigma(g)`.", r"It is `\sigma(g)`."),
        ('kind : {"a"}', 'kind : "a"'),
        ('    mode : {"direct", "em"}, optional', '    mode : "direct" or "em", optional'),
        ("a set {1, 2} in the text", "a set {1, 2} in the text"),
    ],
)
def test_docstrings_for_the_site(written, shown):
    assert as_markdown(written) == shown


def test_the_extension_rewrites_docstrings_and_leaves_code_alone():
    code = (
        'def f(x):\n    """Return :func:`g`.\n\n    Parameters\n    ----------\n    x : {1, 2}\n        One.\n    """\n'
    )
    with griffe.temporary_visited_module(code, extensions=griffe.load_extensions(ReadableDocstrings())) as module:
        assert "Return `g`." in module["f"].docstring.value
        assert "x : 1 or 2" in module["f"].docstring.value
