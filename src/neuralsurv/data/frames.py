"""Covariates in any accepted form (data frames of any library, matrices, parts) become one DataFrame."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd

from neuralsurv.data.parts import as_array, as_cells, container_of, is_data_frame, is_tabular, named_parts
from neuralsurv.data.row_values import masked_to_none
from neuralsurv.errors import InputError
from neuralsurv.names import counted


def as_frame(X: Any) -> pd.DataFrame:
    """Return covariates as a DataFrame; a matrix gets the names x0, x1, … and any other table is converted.

    Of parts (a dict, a tuple, an array with three axes or more), the columns of tables come first, then one column of
    arrays for every other part.
    """
    if isinstance(X, pd.DataFrame):
        return _native(X)
    if container_of(X) != "table":
        return _join_parts(named_parts(X))
    if is_data_frame(X):
        with warnings.catch_warnings():
            # Newer versions announce that the interchange protocol will give way to Arrow's; this call then uses that.
            warnings.simplefilter("ignore", DeprecationWarning)
            return pd.api.interchange.from_dataframe(X)
    if hasattr(X, "toarray"):
        raise InputError(f"X is a sparse matrix of type {type(X).__name__}; dense data is required: use X.toarray().")
    array = _as_matrix(X)
    try:
        return pd.DataFrame(array, columns=[f"x{k}" for k in range(array.shape[1])]).infer_objects()
    except OverflowError as error:
        raise InputError(f"X holds a number that is out of range: {error}; correct it.") from error


def part_columns(name: str, part: Any) -> dict[str, Any]:
    """Return the columns of one part by the names that they have in the joined table."""
    if not is_tabular(part):
        return {name: as_cells(part, name)}
    if is_data_frame(part):
        frame = as_frame(part)
        return {f"{name}.{column}": frame.iloc[:, k].array for k, column in enumerate(frame.columns)}
    array = as_array(part)
    if array.ndim < 2:
        return {name: array.reshape(-1)}
    return {f"{name}[{k}]": array[:, k] for k in range(array.shape[1])}


def _join_parts(parts: dict[str, Any]) -> pd.DataFrame:
    columns = {name: part_columns(name, part) for name, part in parts.items()}
    rows = {name: len(next(iter(part.values()), ())) for name, part in columns.items()}
    first = next(iter(rows))
    for name, count in rows.items():
        if count != rows[first]:
            raise InputError(
                f"part {name!r} of X has {counted(count, 'row')} and part {first!r} has {rows[first]}; every part "
                "needs one for each person."
            )
    index = next((part.index for part in parts.values() if isinstance(part, pd.DataFrame)), None)
    ordered = sorted(parts, key=lambda name: not is_tabular(parts[name]))
    joined: dict[str, Any] = {}
    for name in ordered:
        for column, values in columns[name].items():
            if column in joined:
                raise InputError(f"part {name!r} of X makes a second column {column!r}; give the part another name.")
            joined[column] = values
    return pd.DataFrame({column: _series(values, index) for column, values in joined.items()}, index=index)


def _series(values: Any, index: pd.Index | None) -> pd.Series:
    try:
        return pd.Series(values, index=index)
    except OverflowError:
        # A whole number beyond the range of floats, among words: refused later, when the column is read.
        return pd.Series(values, index=index, dtype=object)


def _native(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a table in the byte order of this machine: pandas can hold another one but cannot select rows of it."""
    foreign = {k: dtype for k, dtype in enumerate(frame.dtypes) if isinstance(dtype, np.dtype) and not dtype.isnative}
    if not foreign:
        return frame
    columns = {k: frame.iloc[:, k] for k in range(frame.shape[1])}
    for k, dtype in foreign.items():
        columns[k] = pd.Series(np.asarray(columns[k]).astype(dtype.newbyteorder("=")), index=frame.index)
    return pd.DataFrame(columns, index=frame.index).set_axis(frame.columns, axis=1)


def _as_matrix(X: Any) -> np.ndarray:
    try:
        array = np.asarray(X)
        if array.dtype.kind in "US" and not isinstance(X, np.ndarray):
            # NumPy turned the numbers among the text of a list into text.
            array = np.asarray(X, dtype=object)
    except ValueError as error:
        raise InputError(f"X cannot be read as rows and columns: {error}; give every row the same length.") from error
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if array.ndim != 2:
        raise InputError(
            f"X has {array.ndim} dimension(s), shape {array.shape}; it needs two, rows and columns. Reshape your data: "
            "X.reshape(-1, 1) for a single covariate, X.reshape(1, -1) for a single row."
        )
    return masked_to_none(array, X)
