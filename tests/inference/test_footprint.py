"""The size of a model file that is foreseen before the fit, beside the file itself."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from neuralsurv import NeuralSurv
from neuralsurv.errors import ApproximationWarning
from neuralsurv.files import packed_gaussian
from neuralsurv.inference.default import footprint
from neuralsurv.inference.default.footprint import default_file_bytes
from neuralsurv.inference.default.settings import DefaultSettings
from neuralsurv.solvers import separable
from small_cohort import quick_default, quick_model


@pytest.mark.parametrize("preset", ["default", "paper"])
@pytest.mark.parametrize(("rows", "columns"), [(30, 400), (60, 40), (60, 5)])
def test_the_file_is_about_as_large_as_was_foreseen(rows, columns, preset, tmp_path, monkeypatch):
    monkeypatch.setattr(packed_gaussian, "_WORTH_PACKING", 0)
    rng = np.random.default_rng(0)
    x = pd.DataFrame(rng.normal(size=(rows, columns)))
    time, event = rng.exponential(size=rows), rng.random(rows) < 0.7
    model = (quick_default if preset == "default" else quick_model)(hidden=(16,)).fit(x, (time, event))
    model.save(tmp_path / "m.neuralsurv")
    foreseen = model._file_bytes(rows, int(event.sum()), columns)
    assert abs(math.log(foreseen / (tmp_path / "m.neuralsurv").stat().st_size)) < math.log(8)


def test_directions_of_a_wide_table_are_foreseen_as_they_are_kept(tmp_path, monkeypatch):
    for module in (separable, footprint):
        monkeypatch.setattr(module, "_MOST_DIRECTIONS", 10)
    monkeypatch.setattr(packed_gaussian, "_WORTH_PACKING", 0)
    rng = np.random.default_rng(0)
    rows, columns = 150, 100
    x = pd.DataFrame(rng.random((rows, columns)) < 0.5)
    time, event = rng.exponential(size=rows), rng.random(rows) < 0.7
    with pytest.warns(ApproximationWarning, match="use fewer columns"):
        model = NeuralSurv(draws=20, random_state=0).fit(x, (time, event))
    model.save(tmp_path / "m.neuralsurv")
    foreseen = model._file_bytes(rows, int(event.sum()), columns)
    assert abs(math.log(foreseen / (tmp_path / "m.neuralsurv").stat().st_size)) < math.log(8)


def test_the_memory_of_a_wide_table_is_not_that_of_a_matrix_of_all_columns(monkeypatch):
    needed = []
    monkeypatch.setattr(footprint, "require_fit", lambda size, points, rows: needed.append(size))
    rng = np.random.default_rng(0)
    rows, columns = 40, 600
    outcome = rng.exponential(size=rows), rng.random(rows) < 0.7
    NeuralSurv(draws=20, random_state=0).fit(rng.normal(size=(rows, columns)), outcome)
    # Effects that are constant, early, and that change with time.
    weights = 3 * columns
    assert 8 * weights * rows < needed[0] < 8 * weights**2 * 2


def test_the_file_grows_with_what_the_model_has():
    settings = DefaultSettings(average=False)
    usual = default_file_bytes(2000, 500, 20, settings)
    # No more than the covariance of all weights, twice.
    assert usual < 2 * 8 * (3 * 20 + 190 + 3 * 100 + 2 * 100) ** 2
    assert default_file_bytes(2000, 500, 20, replace(settings, neighbourhoods=0)) < usual
    assert default_file_bytes(2000, 500, 20, replace(settings, average=True)) > 5 * usual
    assert default_file_bytes(5000, 500, 20, replace(settings, average=True)) == pytest.approx(usual, rel=0.1)
    assert default_file_bytes(2000, 500, 20, replace(settings, random_network=True)) != usual
