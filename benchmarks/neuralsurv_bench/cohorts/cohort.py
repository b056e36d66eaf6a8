"""A cohort as the benchmark uses it, and the checksum that tells whether its rows are the expected ones."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

# A simulated covariate may differ in its last bits from one processor to the next; such a difference crosses a
# rounding boundary at this number of decimals once in thousands of machines, and no real change of data is smaller.
_DECIMALS = 4


@dataclass(frozen=True)
class Cohort:
    """Rows of one study, in the order of their source.

    Attributes
    ----------
    name : str
        As in the paper's tables.
    frame : DataFrame of shape (N, d)
        Covariates as float64, categories encoded as 0/1 columns, not standardised.
    time : ndarray of shape (N,)
        Observed times in the unit of the source (days; months in METABRIC and GBSG; none in SAC3).
    event : ndarray of bool, shape (N,)
        Whether the event was seen.
    group : ndarray of int, shape (N,), or None
        Which rows belong to one patient; None if every row is another patient.
    """

    name: str
    frame: pd.DataFrame
    time: NDArray[np.float64]
    event: NDArray[np.bool_]
    group: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.time)


def checksum(cohort: Cohort) -> str:
    """Return the SHA-256 of names, values (to four decimals) and order of all columns and rows of a cohort."""
    digest = hashlib.sha256()
    columns: dict[str, NDArray[np.float64]] = {name: cohort.frame[name].to_numpy() for name in cohort.frame}
    columns |= {"time": cohort.time, "event": cohort.event.astype(float)}
    if cohort.group is not None:
        columns["group"] = cohort.group.astype(float)
    for name, values in columns.items():
        digest.update(f"{name}:{len(values)};".encode())
        # Adding 0 turns a negative zero, which rounding can leave, into the zero that it is equal to.
        digest.update((np.round(values, _DECIMALS) + 0.0).astype("<f8").tobytes())
    return digest.hexdigest()
