"""The examples of networks run, small; their figures and pictures come from their commands."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch
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


def test_waves_are_the_same_for_every_network_and_know_less_of_each_other_the_farther_images_are_apart():
    module = example("digits")
    one, other = module.Convolutional(waves=4096), module.Convolutional(waves=4096)
    assert bool((one.direction == other.direction).all())
    assert module.Convolutional().height is None
    images = torch.zeros(3, 64)
    images[1, 0], images[2, 0] = 1.0, 10.0
    waves = 2**0.5 * torch.cos(images @ one.direction + one.phase)
    near, far = (float((waves[0] * waves[k]).mean()) for k in (1, 2))
    # A Gaussian of the distance over the length, 5; the error of a mean of 4,096 is 0.016 or less.
    assert near == pytest.approx(np.exp(-((1 / 5) ** 2) / 2), abs=0.08)
    assert far == pytest.approx(np.exp(-((10 / 5) ** 2) / 2), abs=0.08)
