"""Every method of the benchmark by name, in the order of the paper's tables; those that the paper lacks come last."""

from __future__ import annotations

from importlib import import_module

from neuralsurv.errors import InputError
from neuralsurv_bench.methods.interface import Method

FILES = (
    "mtlr",
    "deephit",
    "deepsurv",
    "logistic_hazard",
    "coxtime",
    "coxcc",
    "pmf",
    "pchazard",
    "bcesurv",
    "dysurv",
    "sumonet",
    "dqs",
    "neuralsurv_paper",
    "neuralsurv_default",
    "coxph",
    "weibull_aft",
    "forest",
    "survival_svm",
    "kaplan_meier",
    "elastic_net_cox",
    "gradient_boosting",
)
"""The files of this package that hold methods, each in a tuple `METHODS`."""

METHODS: dict[str, Method]


def collect(files: tuple[str, ...] = FILES) -> dict[str, Method]:
    """Import the files and return their methods by name.

    A file that cannot be imported is an error: a table that silently lacks a method would look complete.

    Parameters
    ----------
    files : tuple of str
        Names of modules of this package.
    """
    methods: dict[str, Method] = {}
    origin: dict[str, str] = {}
    for file in files:
        for method in import_module(f"neuralsurv_bench.methods.{file}").METHODS:
            if method.name in methods:
                raise InputError(
                    f"Two methods are called {method.name!r}, one in {origin[method.name]}.py and one in {file}.py; "
                    "results are stored by name, so give one of them another."
                )
            methods[method.name] = method
            origin[method.name] = file
    return methods


def __getattr__(name: str) -> dict[str, Method]:
    # METHODS is made when it is first asked for: one method can be worked on while the file of another is broken.
    if name != "METHODS":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    methods = collect()
    globals()["METHODS"] = methods
    return methods
