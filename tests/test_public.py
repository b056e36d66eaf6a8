import subprocess
import sys
from importlib import import_module

import pytest

import neuralsurv


def test_public_names_are_there():
    from neuralsurv.estimator.model_file import load
    from neuralsurv.estimator.neuralsurv import NeuralSurv

    assert neuralsurv.NeuralSurv is NeuralSurv
    assert neuralsurv.load is load
    assert dir(neuralsurv) == ["NeuralSurv", "OwnNetwork", "PaperNeuralSurv", "__version__", "load", "metrics"]
    assert neuralsurv.metrics.brier_score is import_module("neuralsurv.metrics").brier_score


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'neuralsurv' has no attribute 'NeuralSurf'"):
        _ = neuralsurv.NeuralSurf


def test_importing_the_package_alone_imports_nothing_heavy():
    code = "import sys, neuralsurv; print(sorted({'torch', 'pandas', 'sklearn', 'scipy', 'numpy'} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, encoding="utf-8")
    assert found.stdout.strip() == "[]"
