"""The registry has every method once, and says so if it does not."""

import importlib
import pkgutil
import types

import pytest

from neuralsurv.errors import InputError
from neuralsurv_bench import methods
from neuralsurv_bench.methods import registry
from neuralsurv_bench.methods.interface import Method

PAPER = (
    "MTLR",
    "DeepHit",
    "DeepSurv",
    "Logistic Hazard",
    "CoxTime",
    "CoxCC",
    "PMF",
    "PCHazard",
    "BCESurv",
    "DySurv",
    "Sumo-Net",
    "DQS",
    "CoxPH",
    "Weibull AFT",
    "RSF",
    "SSVM",
)


def test_the_methods_of_the_paper_are_there_in_its_order():
    names = list(registry.METHODS)
    assert [name for name in names if name in PAPER] == list(PAPER)
    assert "Kaplan-Meier" in names
    assert all(isinstance(method, Method) and method.name == name for name, method in registry.METHODS.items())
    assert registry.METHODS is registry.METHODS


def test_no_file_with_methods_is_left_out():
    with_methods = {
        module.name
        for module in pkgutil.iter_modules(methods.__path__)
        if module.name != "registry"
        and hasattr(importlib.import_module(f"neuralsurv_bench.methods.{module.name}"), "METHODS")
    }
    assert with_methods == set(registry.FILES)


def test_two_methods_of_one_name_are_refused(monkeypatch):
    twin = types.ModuleType("neuralsurv_bench.methods.twin")
    twin.METHODS = (Method("MTLR", "deep", None),)
    monkeypatch.setitem(importlib.sys.modules, twin.__name__, twin)
    with pytest.raises(InputError, match=r"Two methods are called 'MTLR', one in mtlr\.py and one in twin\.py"):
        registry.collect(("mtlr", "twin"))


def test_a_missing_file_is_an_error():
    with pytest.raises(ModuleNotFoundError, match=r"neuralsurv_bench\.methods\.nothing"):
        registry.collect(("mtlr", "nothing"))


def test_other_names_are_not_made_up():
    with pytest.raises(AttributeError, match="has no attribute 'OTHERS'"):
        _ = registry.OTHERS
