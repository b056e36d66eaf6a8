"""A fit with the paper's own ReLU network, where a difference in the last bit would be enough to change the mode."""

import numpy as np
import pandas as pd
import pytest

from neuralsurv import PaperNeuralSurv
from neuralsurv.data.simulate import lognormal_cohort

COHORT = lognormal_cohort(60, seed=4)
TABLE = COHORT.x.assign(time=COHORT.time, event=COHORT.event, entry=0.0, weight=1.0)
TIMES = np.array([5.0, 20.0, 60.0])
pytestmark = pytest.mark.filterwarnings("ignore::neuralsurv.errors.NeuralSurvWarning")


def survival(table, unit=1.0):
    model = PaperNeuralSurv(hidden=(16, 16), starts=1, quadrature_points=50, draws=20, max_sweeps=30, random_state=0)
    model.fit(table, time="time", event="event", entry="entry", sample_weight="weight")
    return model.predict_survival(COHORT.x.head(5), TIMES * unit).draws


@pytest.fixture(scope="module")
def wanted():
    return survival(TABLE)


def cut_in_two(row):
    first, second = TABLE.iloc[[row]].copy(), TABLE.iloc[[row]].copy()
    inner = TABLE["time"].iloc[row] * 0.37
    first["time"], first["event"], second["entry"] = inner, False, inner
    return pd.concat([TABLE.drop(index=TABLE.index[row]), second, first])


@pytest.mark.parametrize(
    "table",
    [
        pytest.param(TABLE.sample(frac=1, random_state=1), id="another order"),
        pytest.param(cut_in_two(7), id="a row cut in two"),
    ],
)
def test_the_same_rows_give_the_same_posterior_to_the_last_bit(table, wanted):
    np.testing.assert_array_equal(survival(table), wanted)


def test_another_unit_of_time_gives_the_same_posterior(wanted):
    # Only the times of the prediction, divided by the last training time, may round differently.
    np.testing.assert_allclose(survival(TABLE.assign(time=TABLE["time"] / 365.25), 1 / 365.25), wanted, rtol=1e-9)


def test_a_weight_of_two_is_the_row_twice_to_the_last_bit():
    heavy = TABLE.assign(weight=np.where(np.arange(60) % 3 == 0, 2.0, 1.0))
    twice = pd.concat([TABLE, TABLE[np.arange(60) % 3 == 0]])
    np.testing.assert_array_equal(survival(twice), survival(heavy))
