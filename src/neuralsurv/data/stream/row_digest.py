"""A digest of rows, to check that every pass over a source sees the same ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from neuralsurv.errors import InputError

_ALL = 2**64


@dataclass(frozen=True)
class RowDigest:
    """A digest of rows that can be added up over chunks and processes.

    Examples
    --------
    >>> import pandas as pd
    >>> from neuralsurv.data.stream.row_digest import RowDigest
    >>> table = pd.DataFrame({"x": [1, 2, 3]})
    >>> one, other = RowDigest.of(table, 0), RowDigest.of(table[::-1], 0)
    >>> one.content == other.content, one.order == other.order
    (True, False)
    """

    rows: int = 0
    content: int = 0  # sum of a digest of every row, modulo 2⁶⁴: the same for the same rows in any order
    order: int = 0  # the same with weights by the place of a row: another one for another order

    @classmethod
    def of(cls, frame: pd.DataFrame, first: int) -> RowDigest:
        """Return the digest of some rows, of which the first has the place `first`."""
        try:
            digest = pd.util.hash_pandas_object(frame, index=False).to_numpy()
        except TypeError:
            # Cells that cannot be hashed, such as lists; they are refused by name when the column is read.
            digest = pd.util.hash_pandas_object(frame.astype(str), index=False).to_numpy()
        place = np.arange(len(frame), dtype=np.uint64) + np.uint64(first % _ALL)
        # Sums and products of whole numbers of 64 bits wrap around, as they should here.
        return cls(len(frame), int(digest.sum()), int((digest * (2 * place + np.uint64(1))).sum()))

    def __add__(self, other: RowDigest) -> RowDigest:
        """Return the digest of both parts."""
        content, order = (self.content + other.content) % _ALL, (self.order + other.order) % _ALL
        return RowDigest(self.rows + other.rows, content, order)

    def check_same(self, other: RowDigest, number: str) -> None:
        """Refuse a later pass, the `number` one, that has seen other rows than this one, the first."""
        if (self.rows, self.content) == (other.rows, other.content):
            return
        seen = f"{other.rows} in the {number}" if other.rows != self.rows else f"other values in the {number}"
        raise InputError(
            f"the rows are not the same in every pass: {self.rows} in the first pass, {seen}. Give "
            "files that do not change meanwhile, a list of batches, or a function that returns a fresh iterator over "
            "the same rows at every call."
        )
