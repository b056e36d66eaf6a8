"""Whether rows that are gone through several times are the same ones each time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from neuralsurv.errors import InputError

_ALL = 2**64


@dataclass(frozen=True)
class Tally:
    """What a pass has seen, in three numbers that can be added up over chunks and processes.

    Attributes
    ----------
    rows : int
        Number of rows.
    content : int
        Sum of a digest of every row, modulo 2⁶⁴: the same for the same rows in any order.
    order : int
        The same with weights by the place of a row: another one for another order.

    Examples
    --------
    >>> import pandas as pd
    >>> from neuralsurv.data.stream.tally import Tally
    >>> table = pd.DataFrame({"x": [1, 2, 3]})
    >>> one, other = Tally.of(table, 0), Tally.of(table[::-1], 0)
    >>> one.content == other.content, one.order == other.order
    (True, False)
    """

    rows: int = 0
    content: int = 0
    order: int = 0

    @classmethod
    def of(cls, frame: pd.DataFrame, first: int) -> Tally:
        """Look at some rows, of which the first has the place `first`."""
        try:
            digest = pd.util.hash_pandas_object(frame, index=False).to_numpy()
        except TypeError:
            # Cells that cannot be hashed, such as lists; whoever reads the column refuses them by name.
            digest = pd.util.hash_pandas_object(frame.astype(str), index=False).to_numpy()
        place = np.arange(len(frame), dtype=np.uint64) + np.uint64(first % _ALL)
        # Sums and products of whole numbers of 64 bits wrap around, as they should here.
        return cls(len(frame), int(digest.sum()), int((digest * (2 * place + np.uint64(1))).sum()))

    def __add__(self, other: Tally) -> Tally:
        """Return the tally of both parts."""
        return Tally(self.rows + other.rows, (self.content + other.content) % _ALL, (self.order + other.order) % _ALL)

    def check_same(self, other: Tally, number: str) -> None:
        """Refuse a later pass, the `number` one, that has seen other rows than this one, the first."""
        if (self.rows, self.content) == (other.rows, other.content):
            return
        seen = f"{other.rows} in the {number}" if other.rows != self.rows else f"other values in the {number}"
        raise InputError(
            f"the rows are not the same each time they are gone through: {self.rows} in the first pass, {seen}. Give "
            "files that nobody changes meanwhile, a list of batches, or a function that returns a fresh iterator over "
            "the same rows at every call."
        )
