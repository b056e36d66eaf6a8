"""The paper's synthetic experiment: two log-normal groups whose hazards cross, with the rows that the paper used."""

from __future__ import annotations

from functools import cache

import numpy as np
import pandas as pd

from neuralsurv.data.simulate import lognormal_survival
from neuralsurv.errors import InputError
from neuralsurv_bench.cohorts import threefry
from neuralsurv_bench.cohorts.cohort import Cohort
from neuralsurv_bench.methods.interface import Floats

SIZES = (25, 50, 100, 150)
COLUMNS = ("x0", "x1", "x2", "x3")

_SEED = 12
_HELD_OUT_ROWS = 100
_LOCATION, _SCALE = (3.0, 3.5), (0.8, 1.0)
_CENSORING_RATE = 0.025
# The paper drew the training rows of these sizes again, with further keys split off one after the other, because their
# last time was before the last test time; the published rows are those of this further key, counted from 0.
_FURTHER_KEY = {25: 1, 100: 3}


def true_survival(x: Floats, times: Floats) -> Floats:
    """Return the true S(t | x), shape (len(x), len(times)); only the group, the first column of `x`, matters."""
    groups = np.stack([lognormal_survival(group, times) for group in (0, 1)])
    return np.asarray(groups[x[:, 0].astype(int)])


def parts(n: int) -> tuple[Cohort, Cohort, Cohort]:
    """Return training (n rows), validation and test rows (100 each, the same for every n) of the paper's experiment.

    `x0` is the group: event times are LogNormal(3, 0.8²) where it is 0 and LogNormal(3.5, 1²) where it is 1. `x1` to
    `x3` are standard normal noise. Censoring is exponential with rate 0.025.

    Parameters
    ----------
    n : {25, 50, 100, 150}
        Training rows.
    """
    if n not in SIZES:
        raise InputError(
            f"the synthetic experiment has no training set of {n} rows; the {len(SIZES)} sizes there are: "
            f"{', '.join(map(str, SIZES))}."
        )
    drawn = _all_parts()
    return drawn[str(n)], drawn["validation"], drawn["test"]


@cache
def _all_parts() -> dict[str, Cohort]:
    key, *keys = threefry.split(threefry.key_of(_SEED), len(SIZES) + 3)
    further = []
    for _ in range(max(_FURTHER_KEY.values()) + 1):
        key, own = threefry.split(key)
        further.append(own)
    first = dict(zip((*SIZES, "test", "validation"), keys, strict=True))
    drawn = {str(n): _draw(str(n), further[_FURTHER_KEY[n]] if n in _FURTHER_KEY else first[n], n) for n in SIZES}
    return drawn | {part: _draw(part, first[part], _HELD_OUT_ROWS) for part in ("test", "validation")}


def _draw(name: str, key: threefry.Words, n: int) -> Cohort:
    key, covariate_key = threefry.split(key)
    _, event_key, censoring_key = threefry.split(key, 3)
    x = threefry.normal(covariate_key, n * len(COLUMNS)).reshape(n, len(COLUMNS))
    x[:, 0] = x[:, 0] > 0
    # Both groups' times are drawn for everybody, each with its own key.
    _, *group_keys = threefry.split(event_key, 3)
    of_group = [
        np.exp(location + scale * threefry.normal(group_key, n))
        for group_key, location, scale in zip(group_keys, _LOCATION, _SCALE, strict=True)
    ]
    event_time = np.where(x[:, 0] == 0, *of_group)
    censoring_time = threefry.exponential(censoring_key, n) / _CENSORING_RATE
    frame = pd.DataFrame(x, columns=list(COLUMNS))
    return Cohort(name, frame, np.minimum(event_time, censoring_time), event_time <= censoring_time)
