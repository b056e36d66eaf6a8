"""A table of covariates becomes a float matrix: names, categories, missing values, one scale for all columns.

Everything is learned from the training rows and kept as plain data, so that it can be stored and applied again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from neuralsurv.data.outcome import rows_phrase
from neuralsurv.errors import InputError


@dataclass(frozen=True)
class Column:
    """How one input column is encoded.

    Attributes
    ----------
    name : str
        Name of the column, or its position in a matrix as ``x0``, ``x1``, …
    kind : {"number", "category"}
        Numbers are scaled; categories (text, category and bool columns) become indicators.
    levels : tuple of str
        The values of a category, as text; of two levels only the second gets an indicator.
    has_missing : bool
        Whether training rows lacked a value: then an indicator says so, and the mean stands in.
    """

    name: str
    kind: str
    levels: tuple[str, ...]
    has_missing: bool

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the encoded columns."""
        if self.kind == "number":
            names: tuple[str, ...] = (self.name,)
        else:
            names = tuple(f"{self.name}={level}" for level in self.levels[1 if len(self.levels) == 2 else 0 :])
        return (*names, f"{self.name} missing") if self.has_missing else names


def as_frame(X: Any) -> pd.DataFrame:
    """Return covariates as a DataFrame; a matrix gets the names x0, x1, … and any other table is converted.

    Parameters
    ----------
    X : DataFrame, array-like of shape (N, d), or an object of the dataframe interchange protocol
        The covariates.
    """
    if isinstance(X, pd.DataFrame):
        return X
    if hasattr(X, "__dataframe__"):
        return pd.api.interchange.from_dataframe(X)
    if hasattr(X, "toarray"):
        raise InputError(f"X is a sparse matrix of type {type(X).__name__}; dense data is required: use X.toarray().")
    array = np.asarray(X)
    if array.dtype.kind == "c":
        raise InputError("Complex data not supported: X holds complex numbers; give real ones.")
    if array.ndim != 2:
        raise InputError(
            f"X has {array.ndim} dimension(s), shape {array.shape}; it needs two, rows and columns. Reshape your data: "
            "X.reshape(-1, 1) for a single covariate, X.reshape(1, -1) for a single row."
        )
    return pd.DataFrame(array, columns=[f"x{k}" for k in range(array.shape[1])]).infer_objects()


def _is_category(values: pd.Series) -> bool:
    return bool(
        isinstance(values.dtype, pd.CategoricalDtype)
        or pd.api.types.is_bool_dtype(values.dtype)
        or pd.api.types.is_string_dtype(values.dtype)
        or values.dtype == object
    )


def _labels(values: pd.Series) -> np.ndarray:
    """Return the values of a category as text, None where missing."""
    missing = values.isna().to_numpy()
    return np.array([None if gone else str(value) for value, gone in zip(values, missing, strict=True)], dtype=object)


def _numbers(values: pd.Series, name: str) -> np.ndarray:
    if pd.api.types.is_datetime64_any_dtype(values.dtype) or pd.api.types.is_timedelta64_dtype(values.dtype):
        raise InputError(f"column {name!r} holds dates; turn it into a number first, for example days since entry.")
    if values.dtype.kind == "c":
        raise InputError(f"Complex data not supported: column {name!r} holds complex numbers.")
    try:
        numbers = np.array(values.to_numpy(dtype=np.float64, na_value=np.nan))
    except (TypeError, ValueError) as error:
        raise InputError(f"column {name!r} of type {values.dtype} cannot be read as numbers: {error}") from error
    if np.isinf(numbers).any():
        raise InputError(f"column {name!r} is infinite in {rows_phrase(np.isinf(numbers))}; correct or drop them.")
    return numbers


def _check_names(frame: pd.DataFrame) -> list[str]:
    names = [str(name) for name in frame.columns]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise InputError(f"column {repeated[0]!r} occurs more than once; give every column its own name.")
    return names


@dataclass(frozen=True)
class Encoding:
    """A fitted encoding.

    Attributes
    ----------
    columns : tuple of Column
        The input columns, in order.
    center, scale : ndarray of shape (p,)
        What is taken off and divided by, for each encoded column.
    """

    columns: tuple[Column, ...]
    center: np.ndarray
    scale: np.ndarray

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the encoded columns."""
        return tuple(name for column in self.columns for name in column.outputs)

    @classmethod
    def fit(cls, X: Any, weight: np.ndarray, *, standardise: bool = True) -> Encoding:
        """Learn the encoding from training rows.

        Parameters
        ----------
        X : DataFrame or array-like of shape (N, d)
            Covariates.
        weight : ndarray of shape (N,)
            How much each row counts in means and spreads.
        standardise : bool
            Whether to center and scale; if not, encoded columns are used as they are.
        """
        frame = as_frame(X)
        names = _check_names(frame)
        if len(names) == 0:
            raise InputError("X has 0 feature(s) (columns); a minimum of 1 is required.")
        columns = tuple(_learn(frame.iloc[:, k], name) for k, name in enumerate(names))
        raw = np.hstack([_encode(frame.iloc[:, k], column) for k, column in enumerate(columns)])
        counts = np.where(np.isnan(raw), 0.0, weight[:, None])
        total = np.maximum(counts.sum(0), np.finfo(float).tiny)
        values = np.nan_to_num(raw)
        center = (counts * values).sum(0) / total
        scale = np.sqrt((counts * (values - center) ** 2).sum(0) / total)
        # A column that only varies among rows that were never at risk at an event has no spread to divide by.
        flat = scale <= 1e-12 * np.maximum(np.abs(center), np.abs(values).max(0, initial=0.0))
        scale = np.where(flat, 1.0, scale)
        if not standardise:
            gaps = np.isnan(raw).any(0)
            center, scale = np.where(gaps, center, 0.0), np.ones_like(scale)
            missing_center = center
            encoding = cls(columns, np.zeros_like(center), scale)
            return encoding if not gaps.any() else cls(columns, missing_center, scale)
        return cls(columns, center, scale)

    def transform(self, X: Any) -> np.ndarray:
        """Return the encoded matrix of shape (N, p), float64."""
        frame = as_frame(X)
        names = _check_names(frame)
        expected = [column.name for column in self.columns]
        missing = [name for name in expected if name not in names]
        if missing and not isinstance(X, pd.DataFrame) and len(names) != len(expected):
            raise InputError(
                f"X has {len(names)} features, but this model is expecting {len(expected)} features as input."
            )
        if missing and not isinstance(X, pd.DataFrame):
            frame = frame.set_axis(expected, axis=1)
        elif missing:
            raise InputError(
                f"column {missing[0]!r} is missing ({len(missing)} of {len(expected)} columns are); the model was "
                f"fitted with {', '.join(expected)}."
            )
        blocks = [_encode(frame[column.name], column) for column in self.columns]
        raw = np.hstack(blocks) if len(frame) else np.zeros((0, len(self.outputs)))
        return np.where(np.isnan(raw), 0.0, (raw - self.center) / self.scale)


def _learn(values: pd.Series, name: str) -> Column:
    has_missing = bool(values.isna().any())
    if values.isna().all():
        raise InputError(f"column {name!r} has no value in any of the {len(values)} rows; drop it.")
    if _is_category(values):
        _refuse_objects(values, name)
        if isinstance(values.dtype, pd.CategoricalDtype):
            levels = tuple(str(level) for level in values.cat.remove_unused_categories().cat.categories)
        else:
            levels = tuple(sorted(set(_labels(values.dropna()))))
        if len(levels) == 1:
            raise InputError(f"column {name!r} is constant ({levels[0]} in all {len(values)} rows); drop it.")
        if len(levels) > max(20, len(values) / 2):
            raise InputError(
                f"column {name!r} has {len(levels)} different values in {len(values)} rows and looks like an "
                "identifier; drop it, or turn it into numbers."
            )
        return Column(name, "category", levels, has_missing)
    numbers = _numbers(values, name)
    present = numbers[~np.isnan(numbers)]
    if np.ptp(present) == 0 and len(present) > 1:
        raise InputError(f"column {name!r} is constant ({present[0]:g} in all {len(present)} rows); drop it.")
    return Column(name, "number", (), has_missing)


def _refuse_objects(values: pd.Series, name: str) -> None:
    if values.dtype == object:
        odd = values.dropna().map(lambda value: not isinstance(value, (str, bool, np.bool_)))
        if odd.any():
            example = values.dropna()[odd].iloc[0]
            raise InputError(
                f"column {name!r} mixes text with values of type {type(example).__name__}; argument must be a string "
                "or a number throughout: convert the column first."
            )


def _encode(values: pd.Series, column: Column) -> np.ndarray:
    """Return the raw encoding of one column, shape (N, len(column.outputs)), NaN where a value is missing."""
    gone = values.isna().to_numpy()
    if gone.any() and not column.has_missing:
        raise InputError(
            f"column {column.name!r} is missing in {rows_phrase(gone)}, but had no gap (NaN) when the model was "
            "fitted, so nothing is known of such rows; fill them in."
        )
    is_category = _is_category(values) and not (column.kind == "number" and gone.all())
    if is_category != (column.kind == "category"):
        raise InputError(
            f"column {column.name!r} is of type {values.dtype}, but was a {column.kind} when the model was fitted; "
            "convert it to the same type."
        )
    if column.kind == "number":
        encoded = _numbers(values, column.name)[:, None]
    else:
        labels = _labels(values)
        unseen = np.array([label is not None and label not in column.levels for label in labels], dtype=bool)
        if unseen.any():
            raise InputError(
                f"column {column.name!r} has the value {labels[unseen][0]!r} in {rows_phrase(unseen)}, which was not "
                f"seen in training; known are {', '.join(column.levels)}."
            )
        shown = column.levels[1 if len(column.levels) == 2 else 0 :]
        encoded = (labels[:, None] == np.array(shown, dtype=object)[None, :]).astype(np.float64)
        encoded[gone] = np.nan
    if column.has_missing:
        encoded = np.hstack([encoded, gone[:, None].astype(np.float64)])
    return np.asarray(encoded)
