"""Models of several causes in files: they come back the same, and damaged files are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import neuralsurv
from neuralsurv import NeuralSurv
from neuralsurv.data.simulate.competing import competing_cohort
from neuralsurv.errors import StorageError
from neuralsurv.files.format import read, write

COHORT = competing_cohort(60, seed=4)
TIMES = [0.5, 2.0]
pytestmark = pytest.mark.filterwarnings("ignore::neuralsurv.errors.CausesWarning")


@pytest.fixture(scope="module")
def model() -> NeuralSurv:
    model = NeuralSurv(random_state=0, draws=50, average=False, verbose=False)
    return model.fit(COHORT.x, time=COHORT.time, event=COHORT.event)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.neuralsurv"


def test_a_model_comes_back_the_same(model: NeuralSurv, path: Path) -> None:
    model.save(path)
    again = neuralsurv.load(path)
    assert again.causes_ == model.causes_
    assert again.fitted_.causes == model.fitted_.causes
    assert str(again.summary()) == str(model.summary())
    for predict in ("predict_cumulative_incidence", "predict_survival", "predict_hazard"):
        one, other = (getattr(each, predict)(COHORT.x.head(4), TIMES).draws for each in (model, again))
        assert (one == other).all()


def test_numbers_stay_numbers(path: Path) -> None:
    codes = np.select([COHORT.event == "death", COHORT.event == "relapse"], [1, 2], 0)
    model = NeuralSurv(random_state=0, draws=50, average=False, verbose=False)
    model.fit(COHORT.x, time=COHORT.time, event=codes).save(path)
    assert sorted(neuralsurv.load(path).causes_) == [1, 2]


def test_files_of_one_cause_do_not_mention_causes(path: Path) -> None:
    model = NeuralSurv(random_state=0, draws=50, average=False, verbose=False)
    model.fit(COHORT.x, time=COHORT.time, event=COHORT.event == "death").save(path)
    header, _ = read(path)
    assert "causes" not in header
    assert "levels" not in header["network"]
    assert neuralsurv.load(path).causes_ == ()


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (["causes"], [["a", 1]], "its network has other causes than its header"),
        (["causes"], [], "its network has other causes than its header"),
        (["causes"], [["a", 3], ["a", 4]], "'causes' are not names with numbers of events"),
        (["causes"], [["a", 3], ["b", 0]], "'causes' are not names with numbers of events"),
        (["causes"], [["a", 3], [None, 4]], "'causes' are not names with numbers of events"),
        (["causes"], [["a", 3], "b"], "'causes' are not names with numbers of events"),
        (["network", "levels"], [-3.0], "'levels' of the causes are out of range"),
        (["network", "levels"], [-3.0, 1e9], "'levels' of the causes are out of range"),
        (["network", "levels"], [-3.0] * 11, "'levels' of the causes are out of range"),
        (["normaliser"], "closed-form", "several causes go with a constant normaliser only"),
    ],
)
def test_damaged_causes(model: NeuralSurv, path: Path, place: list[str], value: Any, message: str) -> None:
    model.save(path)
    header, arrays = read(path)
    table = header
    for name in place[:-1]:
        table = table[name]
    table[place[-1]] = value
    arrays["prior_precision"] = np.ones(len(arrays["theta_star"]))
    write(path, header, arrays, replace=True)
    with pytest.raises(StorageError, match=message):
        neuralsurv.load(path)


def test_exact_draws_of_several_causes_are_damage(model: NeuralSurv, path: Path) -> None:
    model.save(path)
    header, arrays = read(path)
    arrays["theta_draws"], arrays["phi_draws"] = np.zeros((2, len(arrays["theta_star"]))), np.ones(2)
    write(path, header, arrays, replace=True)
    with pytest.raises(StorageError, match="exact draws have one cause"):
        neuralsurv.load(path)
