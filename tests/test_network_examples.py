"""The examples of networks run, small; their figures and pictures come from their commands."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from matplotlib import pyplot

FOLDER = Path(__file__).parents[1] / "docs" / "examples"
SMALL = {"rows": 60, "people": 40, "epochs": 1, "draws": 20}


def example(name):
    spec = importlib.util.spec_from_file_location(f"example_{name}", FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.filterwarnings("ignore::neuralsurv.errors.NeuralSurvWarning")
@pytest.mark.parametrize("name", ["digits", "transformer", "image_and_table"])
def test_an_example_runs_and_draws(name, tmp_path):
    module = example(name)
    found = module.run(**SMALL)
    for scores in found["scores"].values():
        assert 0.3 < scores["C"] <= 1
        assert 0 <= scores["IBS"] < 0.5
    module.draw(found, tmp_path / "picture.png")
    pyplot.close("all")
    assert pyplot.imread(tmp_path / "picture.png").std() > 0.01


def test_spoilt_digits_are_what_they_are_called():
    module = example("digits")
    images = module.cohort()[0][:20]
    sets = module.spoilt(images)
    assert np.array_equal(sets["as they are"], images)
    assert np.abs(np.diff(sets["blurred"])).mean() < 0.5 * np.abs(np.diff(images)).mean()
    assert np.allclose(np.rot90(images[0, 0], -1), sets["turned by 90°"][0, 0], atol=1e-9) or np.allclose(
        np.rot90(images[0, 0]), sets["turned by 90°"][0, 0], atol=1e-9
    )
