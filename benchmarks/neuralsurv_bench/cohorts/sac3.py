"""SAC3, the simulation study of 100,000 rows: simulated once, then read from a file in the user's cache."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from filelock import FileLock

from neuralsurv_bench.cohorts.cohort import Cohort

CACHE_VARIABLE = "NEURALSURV_BENCH_CACHE"
_ROWS = 100_000
_SEED = 1234


def cached_file(rows: int = _ROWS) -> Path:
    """Return where SAC3 is kept: in $NEURALSURV_BENCH_CACHE, else in ~/.cache/neuralsurv-bench."""
    named = os.environ.get(CACHE_VARIABLE)
    folder = Path(named) if named else Path.home() / ".cache" / "neuralsurv-bench"
    return folder / f"sac3_{rows}.parquet"


def sac3(rows: int = _ROWS) -> Cohort:
    """Return SAC3, from the cache if it is there, else simulated (half a minute, 3 GB of memory) and put there.

    Parameters
    ----------
    rows : int
        Rows to simulate. Fewer rows are not the first rows of more: the paper's cohort is that of 100,000.
    """
    file = cached_file(rows)
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        # One process simulates, the others wait for it: two at once need twice the memory.
        with FileLock(file.with_suffix(".lock")):
            if not file.exists():
                _write_whole(_simulated(rows), file)
    table = pd.read_parquet(file)
    frame = table.drop(columns=["time", "event"])
    return Cohort("SAC3", frame, table["time"].to_numpy(np.float64), table["event"].to_numpy(bool))


def true_survival(x: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Return the survival probabilities, of shape (people, times), from which SAC3 was drawn.

    Parameters
    ----------
    x : numpy.ndarray
        Covariates as they are in the cohort, not standardised, of shape (people, 45).
    times : numpy.ndarray
        Times; the simulation's probabilities change in steps of a tenth.
    """
    law = _seeded_study(lambda study: study.sim_surv)
    parts = (law, *law.sims)
    columns = iter(np.split(np.asarray(x), sum(part.num_weights for part in parts), axis=1))
    curves = law.covs2surv_df([[next(columns) for _ in range(part.num_weights)] for part in parts])
    steps = np.searchsorted(law.times, np.asarray(times) + 1e-6, side="right") - 1
    return np.asarray(curves.to_numpy().T[:, steps])


def _write_whole(table: pd.DataFrame, file: Path) -> None:
    """Write beside and rename: a run that is killed leaves no half file under the name."""
    unfinished = file.with_suffix(".unfinished")
    table.to_parquet(unfinished)
    os.replace(unfinished, file)


def _simulated(rows: int) -> pd.DataFrame:
    drawn = _seeded_study(lambda study: study.simulate(rows))
    table = pd.DataFrame(drawn["covs"], columns=[f"x{k}" for k in range(drawn["covs"].shape[1])])
    # The paper's source holds times in single precision.
    return table.assign(time=drawn["durations"].astype(np.float32), event=drawn["events"].astype(bool))


def _seeded_study(use: Callable[[Any], Any]) -> Any:
    """Make the study, which draws its coefficients, and use it, all from SAC3's seed."""
    from pycox.simulations import SimStudySACCensorConst

    # The simulation draws from numpy's global generator, whose state is put back for the sake of the caller.
    state = np.random.get_state()  # noqa: NPY002
    np.random.seed(_SEED)  # noqa: NPY002
    try:
        return use(SimStudySACCensorConst())
    finally:
        np.random.set_state(state)  # noqa: NPY002
