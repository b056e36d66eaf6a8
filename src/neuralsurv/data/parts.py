"""Covariates in parts: images, sequences and tables side by side, each with one row for every person.

A part is either a table, whose columns are encoded like those of any table, or an array: a picture, a sequence, a list
of tokens. Inside the library all parts lie side by side in one matrix of numbers, tables first, so that rows can be
sorted, cut and repeated in one go; a `Layout` says where each part is, and gives it back in its own shape.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.sparse import issparse
from torch import Tensor

from neuralsurv.data.outcome import rows_phrase
from neuralsurv.errors import InputError

# The name of an array that comes alone.
ALONE = "X"


@dataclass(frozen=True)
class Block:
    """Where one part lies among the columns of the matrix.

    Attributes
    ----------
    name : str
        Name of the part, or its position in a tuple.
    start, stop : int
        Its columns.
    shape : tuple of int or None
        Shape of one row; None for a table, whose rows are flat.
    whole : bool
        Whether the numbers are whole (tokens, codes) and given out as int64.
    """

    name: str
    start: int
    stop: int
    shape: tuple[int, ...] | None = None
    whole: bool = False


@dataclass(frozen=True)
class Layout:
    """How the columns of a matrix make up the parts that the user gave.

    Attributes
    ----------
    container : {"table", "array", "tuple", "dict"}
        What the parts came in, and are given out in.
    blocks : tuple of Block
        The parts, in the user's order.

    Examples
    --------
    >>> import torch
    >>> from neuralsurv.data.parts import Block, Layout
    >>> layout = Layout("dict", (Block("image", 2, 6, (1, 2, 2)), Block("table", 0, 2)))
    >>> parts = layout.unpack(torch.zeros(5, 6))
    >>> {name: tuple(part.shape) for name, part in parts.items()}
    {'image': (5, 1, 2, 2), 'table': (5, 2)}
    """

    container: str
    blocks: tuple[Block, ...]

    @property
    def width(self) -> int:
        """Number of columns of the matrix."""
        return max(block.stop for block in self.blocks)

    @property
    def tabular(self) -> int:
        """Number of columns, the first ones, that come from tables."""
        return max((block.stop for block in self.blocks if block.shape is None), default=0)

    def unpack(self, x: Tensor) -> Tensor | tuple[Tensor, ...] | dict[str, Tensor]:
        """Return the parts of the rows `x`, shape (P, width), in the container that they came in."""
        parts = [self._part(block, x) for block in self.blocks]
        if self.container == "dict":
            return {block.name: part for block, part in zip(self.blocks, parts, strict=True)}
        return tuple(parts) if self.container == "tuple" else parts[0]

    @staticmethod
    def _part(block: Block, x: Tensor) -> Tensor:
        part = x[:, block.start : block.stop]
        if block.shape is not None:
            part = part.reshape(len(x), *block.shape)
        return part.long() if block.whole else part


def table_layout(width: int) -> Layout:
    """Return the layout of one table of so many encoded columns."""
    return Layout("table", (Block(ALONE, 0, width),))


def container_of(X: Any) -> str:
    """Return what the covariates came in: "table", "array" (three axes or more), "tuple" or "dict"."""
    # Some sparse matrices are dicts; the table says that they are refused.
    if isinstance(X, Mapping) and not issparse(X):
        return "dict"
    if isinstance(X, tuple) and X and all(np.ndim(part) >= 1 and hasattr(part, "shape") for part in X):
        # A tuple of plain arrays of one axis each is a matrix, row by row.
        return "tuple" if any(np.ndim(part) >= 2 for part in X) else "table"
    return "array" if isinstance(X, np.ndarray | Tensor) and X.ndim >= 3 else "table"


def named_parts(X: Any) -> dict[str, Any]:
    """Return the parts of X by name, in its order; those of a tuple are called 0, 1 and so on."""
    kind = container_of(X)
    if kind == "array":
        return {ALONE: X}
    parts = dict(X) if kind == "dict" else {str(k): part for k, part in enumerate(X)}
    if not parts:
        raise InputError("X is a dict without parts; give at least one array or table.")
    wrong = [name for name in parts if not isinstance(name, str)]
    if wrong:
        raise InputError(f"the part {wrong[0]!r} of X has no text as its name; call it {str(wrong[0])!r}.")
    return parts


def is_tabular(part: Any) -> bool:
    """Return whether a part is a table: a data frame, or numbers with decimals on one axis or two."""
    if isinstance(part, pd.DataFrame) or hasattr(part, "__dataframe__"):
        return True
    array = as_array(part)
    return array.ndim <= 2 and not _whole(array)


def as_array(part: Any) -> np.ndarray:
    """Return an array or a tensor, wherever that lives, as a numpy array."""
    if isinstance(part, Tensor):
        return np.asarray(part.detach().cpu().numpy())
    return np.asarray(part)


def _whole(array: np.ndarray) -> bool:
    """Return whether numbers are codes: whole, and of more than the one byte that the pixels of a picture have."""
    return array.dtype.kind in "iu" and array.dtype.itemsize > 1


def as_cells(part: Any, name: str) -> np.ndarray:
    """Return an array with one object for each row, itself an array, shape (N,); checked."""
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


def holds_arrays(series: pd.Series) -> bool:
    """Return whether the cells of a column are arrays."""
    return (
        bool(pd.api.types.is_object_dtype(series.dtype)) and len(series) > 0 and isinstance(series.iloc[0], np.ndarray)
    )


def stack_cells(series: pd.Series, name: str) -> np.ndarray:
    """Return the cells of a column of arrays as one array, shape (N, …)."""
    cells = series.to_numpy()
    shapes = {np.shape(cell) for cell in cells}
    if len(shapes) > 1:
        listed = " and ".join(str(shape) for shape in sorted(shapes, key=str)[:2])
        raise InputError(f"column {name!r} holds arrays of different shapes, {listed}; give all rows the same shape.")
    stacked = np.stack(list(cells))
    if stacked.dtype.kind not in "fiub":
        raise InputError(f"column {name!r} holds arrays of type {stacked.dtype}; give numbers.")
    return stacked


def whole_cells(series: pd.Series) -> bool:
    """Return whether the arrays of a column are codes, to be given out as whole numbers."""
    return _whole(series.iloc[0])


def check_shape(array: np.ndarray, name: str, shape: tuple[int, ...]) -> None:
    """Refuse rows of another shape than in training."""
    if array.shape[1:] != shape:
        raise InputError(
            f"part {name!r} of X has rows of shape {array.shape[1:]}, but {shape} when the model was fitted."
        )


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
    return f"a {container} of {len(names)} parts ({', '.join(names)})"
