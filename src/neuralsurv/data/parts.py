"""Covariates in parts: images, sequences and tables side by side, each with one row for every person.

A part is either a table, whose columns are encoded like those of any table, or an array: an image, a sequence, a list
of tokens. Inside the library all parts lie side by side in one matrix of numbers, tables first, so that rows can be
sorted, split and repeated together; a `Layout` says where each part is, and returns it in its own shape.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from neuralsurv.data.row_values import rows_phrase
from neuralsurv.errors import InputError
from neuralsurv.names import counted

if TYPE_CHECKING:
    from torch import Tensor

# The name of the part if X is a single table or array.
_ALONE = "X"


@dataclass(frozen=True)
class PartSlice:
    """The columns of the matrix that hold one part."""

    name: str  # name of the part, or its position in a tuple
    # The first column, and the one after the last.
    start: int
    stop: int
    shape: tuple[int, ...] | None = None  # shape of one row; None for a table, whose rows are flat
    whole: bool = False  # whether the numbers are codes, such as tokens, and are passed to the network as int64

    def take(self, x: Tensor) -> Tensor:
        """Return the part of the rows `x`, shape (P, width of the matrix), as shape (P, *shape)."""
        part = x[:, self.start : self.stop]
        if self.shape is not None:
            part = part.reshape(len(x), *self.shape)
        return part.long() if self.whole else part


@dataclass(frozen=True)
class Layout:
    """Which columns of the matrix hold which part of X."""

    container: str  # what the parts came in, and are passed to the network in: "table", "array", "tuple" or "dict"
    parts: tuple[PartSlice, ...]  # in the order of X

    @property
    def width(self) -> int:
        """Number of columns of the matrix."""
        return max(part.stop for part in self.parts)

    @property
    def tabular(self) -> int:
        """Number of columns, the first ones, that come from tables."""
        return max((part.stop for part in self.parts if part.shape is None), default=0)

    def unpack(self, x: Tensor) -> Tensor | tuple[Tensor, ...] | dict[str, Tensor]:
        """Return the parts of the rows `x`, shape (P, width), in the container that they came in."""
        found = [part.take(x) for part in self.parts]
        if self.container == "dict":
            return {part.name: one for part, one in zip(self.parts, found, strict=True)}
        return tuple(found) if self.container == "tuple" else found[0]


def table_layout(width: int) -> Layout:
    """Return the layout of a single table of `width` encoded columns."""
    return Layout("table", (PartSlice(_ALONE, 0, width),))


def is_data_frame(X: Any) -> bool:
    """Return whether X is a data frame of any library, whose columns have names of their own."""
    return isinstance(X, pd.DataFrame) or hasattr(X, "__dataframe__")


def container_of(X: Any) -> str:
    """Return what the covariates came in: "table", "array" (three axes or more), "tuple" or "dict"."""
    # Some sparse matrices are dicts; the table says that they are refused.
    if isinstance(X, Mapping) and not _is_sparse(X):
        return "dict"
    if isinstance(X, tuple) and X and all(np.ndim(part) >= 1 and hasattr(part, "shape") for part in X):
        # A tuple of plain arrays of one axis each is a matrix, row by row.
        return "tuple" if any(np.ndim(part) >= 2 for part in X) else "table"
    return "array" if (isinstance(X, np.ndarray) or is_tensor(X)) and X.ndim >= 3 else "table"


def named_parts(X: Any) -> dict[str, Any]:
    """Return the parts of X by name, in its order; those of a tuple are called 0, 1 and so on."""
    kind = container_of(X)
    if kind == "array":
        return {_ALONE: X}
    parts = dict(X) if kind == "dict" else {str(k): part for k, part in enumerate(X)}
    if not parts:
        raise InputError("X is a dict without parts; give at least one array or table.")
    wrong = [name for name in parts if not isinstance(name, str)]
    if wrong:
        raise InputError(f"the part {wrong[0]!r} of X has a name that is not text; call it {str(wrong[0])!r}.")
    return parts


def is_tabular(part: Any) -> bool:
    """Return whether a part is a table: a data frame, or an array of one or two axes that does not hold codes."""
    if is_data_frame(part):
        return True
    array = as_array(part)
    return array.ndim <= 2 and not holds_codes(array)


def is_tensor(value: Any) -> bool:
    """Return whether a value is a tensor of torch, without importing torch: who has a tensor has done so."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _is_sparse(value: Any) -> bool:
    """Return whether a value is a sparse matrix of scipy, as above."""
    sparse = sys.modules.get("scipy.sparse")
    return sparse is not None and bool(sparse.issparse(value))


def as_array(part: Any) -> np.ndarray:
    """Return an array or a tensor, on whatever device, as a numpy array."""
    if is_tensor(part):
        return np.asarray(part.detach().cpu().numpy())
    return np.asarray(part)


def holds_codes(array: np.ndarray) -> bool:
    """Return whether numbers are codes: whole, and of more than the one byte that the pixels of an image have."""
    return array.dtype.kind in "iu" and array.dtype.itemsize > 1


def as_cells(part: Any, name: str) -> np.ndarray:
    """Return a part that is no table as an array of N objects, each the array of one row; checked."""
    array = as_array(part)
    if array.dtype.kind not in "fiub":
        raise InputError(f"part {name!r} of X is of type {array.dtype}; give numbers.")
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim == 0 or array[:1].size == 0:
        raise InputError(f"part {name!r} of X has shape {array.shape}; give one row, not empty, for each person.")
    bad = ~np.isfinite(array.reshape(len(array), -1)).all(axis=1)
    if bad.any():
        raise InputError(
            f"part {name!r} of X is missing (NaN) or infinite in {rows_phrase(bad)}; correct or drop them."
        )
    cells = np.empty(len(array), dtype=object)
    cells[:] = list(array)
    return cells


def check_parts(X: Any, container: str, names: tuple[str, ...]) -> None:
    """Refuse covariates that do not have the parts of training."""
    kind = container_of(X)
    given = () if kind == "table" else tuple(named_parts(X))
    missing = [name for name in names if name not in given]
    if kind != container or missing or (container == "tuple" and len(given) != len(names)):
        lack = f"; part {missing[0]!r} is missing" if missing and kind == container else ""
        raise InputError(
            f"X comes as {_words(kind, given)}, but came as {_words(container, names)} when the model was fitted{lack}."
        )


def _words(container: str, names: tuple[str, ...]) -> str:
    if container in ("array", "table"):
        return f"one {container}"
    return f"a {container} of {counted(len(names), 'part')} ({', '.join(names)})"
