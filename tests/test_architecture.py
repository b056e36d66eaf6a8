"""The packages and the order of their imports, as listed in CONTRIBUTING.md."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "neuralsurv"
# What the package gives to those who import it is made of everything up to the estimator.
TOP_LEVEL = ("__init__", "__main__")


def packages():
    """Return the rows of the table of packages, each a list of names, in the order of the table."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = text.split("## Code layout")[1].split("## ")[0]
    heads = re.findall(r"^\| (`.*?) \|", table, re.M)
    return [[name.strip("`").removesuffix("/").removesuffix(".py") for name in head.split(", ")] for head in heads]


def imports(path):
    """Return every package of ours that a file imports, wherever it does so: at the top, in a function, for types."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        modules = []
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            modules = names if node.module == "neuralsurv" else [node.module]
        elif isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        for module in modules:
            top, _, rest = module.partition(".")
            if top == "neuralsurv":
                first = rest.split(".")[0]
                yield first if (SOURCE / first).is_dir() or (SOURCE / f"{first}.py").is_file() else "__init__"


def files():
    for path in sorted(SOURCE.rglob("*.py")):
        package = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        if package not in TOP_LEVEL:
            yield path, package


def test_the_table_names_every_package_once():
    named = [name for row in packages() for name in row]
    there = {path.stem for path in SOURCE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert sorted(named) == sorted(there - set(TOP_LEVEL))


def test_a_package_imports_only_from_packages_above_it():
    place = {name: number for number, row in enumerate(packages()) for name in row}
    front = place["estimator"] + 0.5
    wrong = [
        f"{path.relative_to(SOURCE)} imports {other}"
        for path, package in files()
        for other in imports(path)
        if other != package and place.get(other, front) > place[package]
    ]
    assert wrong == []


def test_packages_of_one_row_follow_each_other():
    for row in packages():
        for path, package in files():
            later = row[row.index(package) + 1 :] if package in row else []
            assert not set(imports(path)) & set(later), path


def test_solvers_know_of_no_other_package():
    for path, package in files():
        if package == "solvers":
            assert set(imports(path)) <= {"solvers", "errors", "memory"}, path


def test_the_reader_of_imports_sees_all_kinds(tmp_path):
    path = tmp_path / "a.py"
    path.write_text(
        "from typing import TYPE_CHECKING\nimport neuralsurv.data.outcome\n"
        "if TYPE_CHECKING:\n    from neuralsurv.estimator.summary import Summary\n"
        "def f():\n    from neuralsurv import metrics, NeuralSurv\n    from neuralsurv.solvers import primal\n",
        encoding="utf-8",
    )
    assert sorted(imports(path)) == ["__init__", "data", "estimator", "metrics", "solvers"]
