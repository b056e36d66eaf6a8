"""One value for each row: arrays read as numbers, and refused with a message that counts the rows at fault."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from neuralsurv.errors import InputError


def is_number(values: pd.Series) -> bool:
    """Return whether a column is numeric; true and false are not."""
    return pd.api.types.is_numeric_dtype(values.dtype) and not pd.api.types.is_bool_dtype(values.dtype)


def rows_phrase(bad: np.ndarray) -> str:
    """Say how many rows are at fault and which come first."""
    where = np.flatnonzero(bad)
    shown = ", ".join(str(i) for i in where[:5]) + (", …" if len(where) > 5 else "")
    kind = "row" if len(where) == 1 else "rows"
    return f"{len(where)} {kind} ({kind} {shown}, counting from 0)"


def masked_to_none(array: np.ndarray, source: Any) -> np.ndarray:
    """Return the array with None where `source`, which it was made from, is a masked array and masks a value."""
    if not isinstance(source, np.ma.MaskedArray):
        return array
    array = array.astype(object)
    array[np.ma.getmaskarray(source)] = None
    return array


def as_vector(values: Any, label: str) -> np.ndarray:
    """Return `values` as an array of shape (N,); a single row or column of a matrix is flattened."""
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise InputError(f"{label} cannot be read as one value for each row: {error}") from error
    array = masked_to_none(array, values)
    if array.ndim == 2 and 1 in array.shape:
        array = array.reshape(-1)
    if array.ndim != 1:
        raise InputError(f"{label} has {array.ndim} dimensions; give one value for each row.")
    return array


def as_numbers(values: Any, label: str) -> np.ndarray:
    """Return `values` as a new float64 array of shape (N,), NaN where missing."""
    array = as_vector(values, label)
    try:
        with np.errstate(all="ignore"):
            # Inference sees what an array of objects holds; `to_numeric` reads dates as nanoseconds since 1970.
            series = pd.Series(array).infer_objects()
            refuse_dates_and_complex(series.dtype, label)
            return np.array(pd.to_numeric(series).to_numpy(dtype=np.float64, na_value=np.nan))
    except InputError:
        raise
    except (ValueError, TypeError, OverflowError) as error:
        raise InputError(f"{label} cannot be read as numbers: {error}. Convert the column first.") from error


def refuse_dates_and_complex(dtype: Any, label: str) -> None:
    """Refuse a column whose type is not of real numbers but could be converted to them without an error."""
    if dtype.kind in "mM":
        raise InputError(
            f"{label} holds dates or durations of type {dtype}; turn them into numbers first, "
            "for example days since entry: (end - start).dt.days."
        )
    if dtype.kind == "c":
        raise InputError(f"Complex data not supported: {label} holds complex numbers; give real ones.")


def check_finite(values: np.ndarray, name: str) -> None:
    """Refuse a column of numbers where one is missing or infinite."""
    if np.isnan(values).any():
        raise InputError(
            f"column {name!r} is missing (NaN) in {rows_phrase(np.isnan(values))}; drop these rows or fill them in: "
            f"df = df.dropna(subset=[{name!r}])."
        )
    refuse_infinite(values, name)


def refuse_infinite(values: np.ndarray, name: str) -> None:
    """Refuse a column of numbers where one is infinite."""
    if np.isinf(values).any():
        raise InputError(
            f"column {name!r} is infinite in {rows_phrase(np.isinf(values))}; drop these rows or enter the true value."
        )
