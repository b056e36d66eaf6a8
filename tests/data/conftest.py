import numpy as np
import pytest

from data.encodings import WEIGHT, frame
from neuralsurv.data.features import Encoding


@pytest.fixture
def training():
    return frame(
        age=[50.0, np.nan, 61.0, 45.0],
        dose=[1, 2, 3, 7],
        site=["oslo", "rome", "bonn", "rome"],
        sex=["f", None, "m", "m"],
        smoker=[True, False, False, True],
    )


@pytest.fixture
def encoding(training):
    return Encoding.fit(training, WEIGHT)
