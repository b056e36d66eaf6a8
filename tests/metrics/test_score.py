"""`NeuralSurv.score` hands weights and late entry on, and does not ask for curves at every event time."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from neuralsurv import NeuralSurv
from neuralsurv.data.outcome import Outcome
from neuralsurv.metrics import antolini_concordance


class Scored(NeuralSurv):
    """Predicts given curves without a fit, and keeps what it was asked for."""

    causes_ = ()
    pace: np.ndarray
    asked: np.ndarray

    def predict_mean_survival(self, X: Any, times: Any) -> pd.DataFrame:
        self.asked = np.asarray(times)
        return pd.DataFrame(np.exp(-np.outer(self.pace, self.asked)), columns=self.asked)


def scored(n: int) -> tuple[Scored, pd.DataFrame, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    model = Scored()
    model.pace = rng.uniform(0.2, 2, n)
    time, event = rng.exponential(size=n) + 0.1, rng.random(n) < 0.7
    return model, pd.DataFrame({"x": model.pace}), time, event


def test_weights_from_either_place():
    model, x, time, event = scored(60)
    weight = np.random.default_rng(1).integers(0, 3, 60).astype(float)
    rows = np.repeat(np.arange(60), weight.astype(int))
    by_argument = model.score(x, (time, event), sample_weight=weight)
    by_outcome = model.score(x, Outcome(time, event, np.zeros(60), weight))
    model.pace = model.pace[rows]
    repeated = model.score(x.iloc[rows], (time[rows], event[rows]))
    assert by_argument == by_outcome == pytest.approx(repeated, rel=1e-12)
    model.pace = x["x"].to_numpy()
    assert by_argument != pytest.approx(model.score(x, (time, event)), abs=1e-4)


def test_an_event_of_weight_zero_asks_for_no_curve():
    model, x, time, event = scored(20)
    event[time.argmax()] = True
    weight = np.ones(20)
    weight[time.argmax()] = 0
    model.score(x, (time, event), sample_weight=weight)
    assert model.asked.max() < time.max()


def test_late_entry():
    model, x, time, event = scored(60)
    entry = time * 0.7
    times = np.unique(time[event])
    table = np.exp(-np.outer(model.pace, times))
    found = model.score(x, (entry, time, event))
    assert found == pytest.approx(antolini_concordance(time, event, table, times, entry=entry), rel=1e-12)
    assert found != pytest.approx(model.score(x, (time, event)), abs=1e-4)


def test_curves_are_asked_for_at_128_times_at_most():
    model, x, time, event = scored(400)
    found = model.score(x, (time, event))
    times = np.unique(time[event])
    assert len(times) > 200
    assert len(model.asked) == 128
    assert (model.asked[0], model.asked[-1]) == (times[0], times[-1])
    exact = antolini_concordance(time, event, np.exp(-np.outer(model.pace, times)), times)
    assert found == pytest.approx(exact, abs=2e-3)
