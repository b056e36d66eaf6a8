"""A recipe, plain data that fits into a JSON file, becomes the objects that a user would hand over.

A recipe of a cohort holds columns (a name, a type, cells), what they come in, an outcome, the settings of the
estimator, and what is asked of the fitted model. Cells are plain values; ``null`` is a missing one, and a table with
one entry, such as ``{"decimal": "1.5"}``, stands for an object that JSON does not have.
"""

from __future__ import annotations

import datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd

Recipe = dict[str, Any]

NUMBERS = ("float16", "float32", "float64", "longdouble", "int8", "int16", "int32", "int64", "uint8", "uint64")
NULLABLE = ("Int64", "Float32", "Float64", "boolean", "string", "double[pyarrow]", "string[pyarrow]")
OTHERS = (
    ">f8",
    "bool",
    "complex128",
    "str",
    "category",
    "object",
    "datetime64[ns]",
    "timedelta64[ns]",
    "Sparse[float64]",
)
TYPES = (*NUMBERS, *NULLABLE, *OTHERS)
_OBJECTS = {
    "bytes": lambda text: text.encode("latin-1"),
    "complex": complex,
    "date": datetime.date.fromisoformat,
    "decimal": Decimal,
    "fraction": Fraction,
    "list": list,
    "array": lambda cells: np.array(cells, dtype=float),
    "nat": lambda _: pd.NaT,
    "na": lambda _: pd.NA,
    "type": lambda _: type,
    "table": dict,
}


def cell(value: Any) -> Any:
    """Return the object that one cell stands for."""
    if isinstance(value, dict):
        ((kind, content),) = value.items()
        return _OBJECTS[kind](content)
    return value


def number(value: Any, kind: str) -> Any:
    """Return the number that a cell stands for in a column of numbers."""
    try:
        found = np.nan if value is None else float(cell(value))
    except (TypeError, ValueError, OverflowError):
        found = np.nan  # what is no number at all is missing in a column of numbers
    if kind.startswith(("int", "uint", "Int")):
        # An integer column cannot hold what is no integer of its width; the nearest that it can hold stands in.
        limits = np.iinfo(kind.lower())
        whole = 0 if np.isnan(found) else int(np.clip(found, -(2.0**62), 2.0**62))
        return min(max(whole, int(limits.min)), int(limits.max))
    return found


def series(kind: str, cells: list[Any]) -> pd.Series:
    """Return a column of a type."""
    with np.errstate(all="ignore"):
        if kind == "object":
            values = np.empty(len(cells), dtype=object)
            values[:] = [cell(value) for value in cells]
            return pd.Series(values, dtype=object)
        if kind in ("str", "string", "string[pyarrow]", "category"):
            texts = [None if value is None else str(value) for value in cells]
            return pd.Series(texts, dtype=object if kind == "str" else kind)
        if kind in ("bool", "boolean"):
            flags = [None if value is None and kind == "boolean" else bool(value) for value in cells]
            return pd.Series(flags, dtype=kind)
        if kind in ("datetime64[ns]", "timedelta64[ns]"):
            whole = [int(np.clip(np.nan_to_num(number(value, "float64")), -1e6, 1e6)) for value in cells]
            return pd.Series(np.array(whole, dtype="int64")).astype(kind)
        if kind in ("Int64", "Float32", "Float64", "double[pyarrow]"):
            return pd.Series([pd.NA if value is None else number(value, kind) for value in cells], dtype=kind)
        numbers = [number(value, kind) for value in cells]
        if kind == "Sparse[float64]":
            return pd.Series(pd.arrays.SparseArray(np.array(numbers, dtype="float64")))
        # A frame cannot hold long doubles, but an array can.
        return pd.Series(np.array(numbers, dtype=kind))


def _index(kind: str, rows: int) -> pd.Index:
    if kind == "duplicate":
        return pd.Index([k // 2 for k in range(rows)])
    if kind == "text":
        return pd.Index([f"é{k % 2}" for k in range(rows)], dtype=object)
    if kind == "missing":
        return pd.Index([np.nan] * rows)
    if kind == "pairs":
        return pd.MultiIndex.from_tuples([(k // 2, "b") for k in range(rows)], names=["a", "b"])
    if kind == "dates":
        return pd.date_range("2020-01-31", periods=rows)
    return pd.RangeIndex(rows)


def _name(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def frame_of(columns: list[dict[str, Any]], index: str = "plain", wide: int = 0, rows: int = 0) -> pd.DataFrame:
    """Return the table of a recipe, with `wide` more columns of noise; `rows` are those of a table without columns."""
    parts = [series(column["type"], column["cells"]) for column in columns]
    rows = max((len(part) for part in parts), default=rows)
    frame = pd.DataFrame(dict(enumerate(parts)), index=range(rows))
    frame.columns = pd.Index([_name(column["name"]) for column in columns], tupleize_cols=False)
    if wide:
        noise = np.random.default_rng(rows).normal(size=(rows, wide))
        frame = pd.concat([frame, pd.DataFrame(noise, columns=[f"w{k}" for k in range(wide)])], axis=1)
    frame.index = _index(index, rows)
    return frame


def _matrix(columns: list[dict[str, Any]], wide: int) -> np.ndarray:
    kinds = {column["type"] for column in columns}
    if len(kinds) == 1 and (kind := kinds.pop()) in (*NUMBERS, "bool", "complex128", "datetime64[ns]"):
        own = [np.asarray(series(kind, column["cells"])) for column in columns]
        if kind == "longdouble":
            own = [part.astype(np.longdouble) * np.longdouble(1) for part in own]
        # A matrix has no columns of several lengths; the shortest is that of all.
        rows = min(map(len, own), default=0)
        matrix = np.column_stack([part[:rows] for part in own]) if own else np.empty((0, 0))
    else:
        frame = frame_of(columns)
        matrix = np.empty(frame.shape, dtype=object)
        for place in range(frame.shape[1]):
            matrix[:, place] = list(frame.iloc[:, place])
    if wide:
        matrix = np.hstack([matrix, np.random.default_rng(len(matrix)).normal(size=(len(matrix), wide))])
    return matrix


def _laid_out(matrix: np.ndarray, layout: str) -> np.ndarray:
    if layout == "fortran":
        return np.asfortranarray(matrix)
    if layout == "strided":
        return np.repeat(np.repeat(matrix, 2, axis=0), 3, axis=1)[::2, ::3]
    if layout == "reversed":
        return np.ascontiguousarray(matrix[::-1, ::-1])[::-1, ::-1]
    if layout == "big endian" and matrix.dtype.kind in "fiu" and matrix.dtype.itemsize in (2, 4, 8):
        return matrix.astype(matrix.dtype.newbyteorder(">"))
    if layout == "read-only":
        matrix = matrix.copy()
        matrix.flags.writeable = False
    return matrix


def _sparse(matrix: np.ndarray, container: str) -> Any:
    from scipy import sparse

    numbers = (
        np.nan_to_num(np.asarray(matrix, dtype=np.float64)) if matrix.dtype.kind in "fiub" else np.eye(*matrix.shape)
    )
    return getattr(sparse, container)(numbers)


CONTAINERS = (
    *("frame", "array", "list", "tuple", "masked", "matrix", "tensor", "records", "arrow", "dict", "cube", "line"),
    *("nothing", "scalar", "csr_matrix", "csc_array", "coo_matrix", "dok_matrix", "generator"),
)


def covariates(recipe: Recipe) -> Any:
    """Return X."""
    columns, container, wide = recipe["columns"], recipe["container"], recipe.get("wide", 0)
    if container in ("frame", "records", "arrow", "dict"):
        frame = frame_of(columns, recipe.get("index", "plain"), wide, len(recipe["outcome"]["time"]["cells"]))
        return _from_frame(frame, container)
    matrix = _laid_out(_matrix(columns, wide), recipe.get("layout", "plain"))
    if container in ("csr_matrix", "csc_array", "coo_matrix", "dok_matrix"):
        return _sparse(matrix, container)
    return _from_matrix(matrix, container)


def _object_where_uneven(values: Any) -> Any:
    uneven = isinstance(values, list | tuple) and any(isinstance(value, list | tuple) for value in values)
    return object if uneven else None


def _from_frame(frame: pd.DataFrame, container: str) -> Any:
    if container == "records":
        return frame.to_records(index=False) if frame.columns.is_unique and frame.shape[1] else frame
    if container == "arrow":
        import pyarrow

        try:
            return pyarrow.Table.from_pandas(frame, preserve_index=False)
        except (pyarrow.ArrowException, ValueError, TypeError, AttributeError, OverflowError):
            return frame  # what Arrow cannot hold never comes as an Arrow table
    if container == "dict":
        return {frame.columns[k]: frame.iloc[:, k].to_numpy() for k in range(frame.shape[1])}
    return frame


def _from_matrix(matrix: np.ndarray, container: str) -> Any:
    simple: dict[str, Any] = {
        "list": matrix.tolist,
        "tuple": lambda: tuple(map(tuple, matrix.tolist())),
        "masked": lambda: np.ma.masked_array(matrix, mask=np.arange(matrix.size).reshape(matrix.shape) % 7 == 3),
        "cube": lambda: matrix[:, :, None],
        "line": matrix.reshape(-1).copy,
        "nothing": lambda: None,
        "scalar": lambda: 3.5,
        "generator": lambda: (row for row in matrix.tolist()),
    }
    if container == "matrix":
        return np.matrix(matrix) if matrix.ndim == 2 else matrix
    if container == "tensor":
        import torch

        fits = matrix.dtype.kind in "fiub" and matrix.dtype.itemsize <= 8 and matrix.dtype.isnative
        return torch.tensor(matrix.tolist() if matrix.dtype == np.uint64 else matrix.copy()) if fits else matrix
    return simple[container]() if container in simple else matrix


def _role(part: dict[str, Any], layout: str) -> Any:
    values = series(part["type"], part["cells"])
    if layout == "list":
        return values.tolist()
    if layout == "array":
        return np.asarray(values)
    if layout == "read-only":
        array = np.array(values)
        array.flags.writeable = False
        return array
    if layout == "strided":
        return np.repeat(np.asarray(values), 3)[::3]
    if layout == "column":
        return np.asarray(values)[:, None]
    values.index = _index("duplicate", len(values))
    return values


FORMS = ("pair", "triple", "structured", "frame", "keywords", "names", "list of pairs", "nothing")


def outcome(recipe: Recipe, X: Any) -> tuple[Any, dict[str, Any], Any]:
    """Return y, further arguments of `fit`, and X, to which the columns of the outcome are added if they are named."""
    given = recipe["outcome"]
    layout, form = given.get("layout", "series"), given["form"]
    roles = {name: _role(given[name], layout) for name in ("time", "event", "entry", "weight", "id") if given.get(name)}
    rest = {name: roles[name] for name in ("entry", "weight", "id") if name in roles}
    if form == "nothing":
        return None, rest, X
    if form == "keywords":
        return None, roles, X
    if form == "names" and isinstance(X, pd.DataFrame):
        table = X.copy()
        for name, values in roles.items():
            cells = np.asarray(values, dtype=_object_where_uneven(values)).reshape(-1)
            if len(cells) != len(X):
                cells = pd.Series(cells).reindex(range(len(X))).to_numpy()
            table.insert(0, name, cells, True)
        return None, {name: name for name in roles}, table
    if form == "frame":
        longest = max(len(values) for values in roles.values())
        table = pd.DataFrame(
            {
                name: pd.Series(np.asarray(values, dtype=_object_where_uneven(values)).reshape(-1)).reindex(
                    range(longest)
                )
                for name, values in roles.items()
                if name != "id"
            }
        )
        return table, {"id": roles["id"]} if "id" in roles else {}, X
    if form == "structured":
        time, event = (
            np.asarray(roles[name], dtype=_object_where_uneven(roles[name])).reshape(-1) for name in ("time", "event")
        )
        if len(time) == len(event) and time.dtype.kind in "fiu" and event.dtype.kind in "biuf":
            y = np.empty(
                len(time), dtype=[("event", event.dtype if event.dtype.kind != "O" else "f8"), ("time", time.dtype)]
            )
            y["time"], y["event"] = time, event
            return y, rest, X
    if form == "list of pairs":
        return list(zip(np.asarray(roles["event"]).tolist(), np.asarray(roles["time"]).tolist(), strict=False)), rest, X
    if form == "triple" and "entry" in rest:
        return (rest.pop("entry"), roles["time"], roles["event"]), rest, X
    return (roles["time"], roles["event"]), rest, X
