"""What of a fitted model goes into a file, and back."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import MISSING, asdict, fields, replace
from typing import Any

import numpy as np

from neuralsurv.data.features import Column, Encoding
from neuralsurv.diagnostics import Diagnostics
from neuralsurv.errors import StorageError
from neuralsurv.estimator import NeuralSurv
from neuralsurv.posterior_file import phi_table, posterior_parts, read_phi, read_posterior, stored_tensor
from neuralsurv.presets import Choices, DefaultChoices
from neuralsurv.storage import Fields, read, write

# The only classes a file can name.
_REGISTRY = {"NeuralSurv": NeuralSurv}


def save(model: NeuralSurv, path: str | os.PathLike[str]) -> None:
    """Write a fitted model."""
    about, arrays = posterior_parts(model.posterior_)
    parameters = model.get_params(deep=False)
    if not (parameters["random_state"] is None or isinstance(parameters["random_state"], (int, np.integer))):
        # A generator has a state, not a value; the fitted model no longer needs it.
        parameters["random_state"] = None
    # A file is data and holds no code: whoever opens it gives the network again.
    parameters["network"] = None
    header = {
        "class": type(model).__name__,
        "parameters": {name: _plain(value) for name, value in parameters.items()},
        **about,
        "phi_prior": phi_table(model.phi_prior_),
        "time_scale": model.time_scale_,
        "draw_seed": model._draw_seed,
        "columns": [asdict(column) for column in model.encoding_.columns],
        "standardise": model.encoding_.standardise,
        "container": model.encoding_.container,
        "parts": list(model.encoding_.parts),
        "named": hasattr(model, "feature_names_in_"),
        "roles": model.columns_,
        "training": model.training_,
        "diagnostics": asdict(model.diagnostics_),
    }
    tensors = {
        **arrays,
        "elbo": model.elbo_,
        "center": model.encoding_.center,
        "scale": model.encoding_.scale,
        "unique_times": model.unique_times_,
    }
    write(path, header, tensors)


def load(path: str | os.PathLike[str], network: Any = None, device: str | None = None) -> NeuralSurv:
    """Open a model file.

    A file is data: opening one, even from a stranger, cannot run anything.

    Parameters
    ----------
    path : path
        A file that :meth:`neuralsurv.NeuralSurv.save` wrote.
    network : torch.nn.Module, optional
        The network of your own that the model was fitted with; its weights come from the file.
    device : str, optional
        Where that network is to run; by default where it ran when the model was fitted.

    Examples
    --------
    >>> import tempfile, neuralsurv
    >>> from neuralsurv.data.simulate import lognormal_cohort
    >>> cohort = lognormal_cohort(40, seed=1)
    >>> model = neuralsurv.NeuralSurv(random_state=0).fit(cohort.x, cohort.y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model.save(folder + "/model.neuralsurv")
    ...     again = neuralsurv.load(folder + "/model.neuralsurv")
    >>> bool((again.predict(cohort.x) == model.predict(cohort.x)).all())
    True
    """
    raw, tensors = read(path)
    header = Fields(raw, "header")
    kind = header.text("class")
    if kind not in _REGISTRY:
        raise StorageError(f"the model file holds a {kind!r}, which this version does not know.")
    model = _REGISTRY[kind]()
    model.set_params(**_parameters(header.table("parameters"), set(model.get_params())))
    encoding = _encoding(header, tensors)
    if device is not None:
        model.set_params(device=device)
    model.posterior_ = read_posterior(header, tensors, encoding.layout, network, model.device)
    model.network = network
    model.elbo_ = stored_tensor(tensors, "elbo", (None,))
    if len(model.elbo_) == 0:
        raise StorageError("the model file is damaged: 'elbo' is empty.")
    model.phi_prior_ = read_phi(header.table("phi_prior"))
    model.time_scale_ = header.positive("time_scale")
    model.unique_times_ = _times(tensors)
    model._draw_seed = header.whole("draw_seed", 2**31)
    model.encoding_ = encoding
    model.n_features_in_ = len(encoding.columns)
    if header.flag("named"):
        model.feature_names_in_ = np.array([column.name for column in encoding.columns], dtype=object)
    model.columns_ = {key: header.table("roles").text(key) for key in header.table("roles").names()}
    training = header.table("training")
    model.training_ = {
        "rows": training.whole("rows", least=1),
        "events": training.whole("events"),
        "truncated": training.whole("truncated"),
        "weighted_events": training.number("weighted_events"),
    }
    model.diagnostics_ = _diagnostics(header.table("diagnostics"))
    return model


def _plain(value: Any) -> Any:
    if isinstance(value, np.integer | np.floating | np.bool_):
        return value.item()
    items = list(value) if isinstance(value, tuple | list | np.ndarray) else None
    if items is not None and not any(isinstance(item, tuple | list | np.ndarray) for item in items):
        return [_plain(item) for item in items]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Choices | DefaultChoices):
        raise StorageError(
            "a model with choices of your own in place of a named preset cannot be saved; name the preset and give the "
            "choices one by one."
        )
    raise StorageError(f"a parameter of type {type(value).__name__} cannot be saved; use plain numbers and text.")


def _parameters(table: Fields, known: set[str]) -> dict[str, Any]:
    parameters = {}
    for name in table.names():
        value = table.raw(name)
        if name not in known:
            raise StorageError(f"the model file is damaged: {name!r} is not a parameter.")
        items = value if isinstance(value, list) else [value]
        if not all(item is None or isinstance(item, bool | int | float | str) for item in items):
            raise StorageError(f"the model file is damaged: parameter {name!r} is not a plain value.")
        parameters[name] = tuple(value) if isinstance(value, list) else value
    draws = parameters.get("draws")
    if type(draws) is not int or not 1 <= draws <= 10**7:
        raise StorageError("the model file is damaged: parameter 'draws' is out of range.")
    return parameters


def _times(tensors: dict[str, np.ndarray]) -> np.ndarray:
    times = stored_tensor(tensors, "unique_times", (None,))
    if len(times) == 0 or times[0] <= 0 or (np.diff(times) < 0).any():
        raise StorageError("the model file is damaged: 'unique_times' are not positive and in order.")
    return times


def _encoding(header: Fields, tensors: dict[str, np.ndarray]) -> Encoding:
    columns = []
    for item in header.items("columns"):
        table = Fields(item, "column")
        kind = table.text("kind")
        if kind not in ("number", "category", "array"):
            raise StorageError("the model file is damaged: a column is neither number nor category nor array.")
        described = (table.text("name"), kind, table.texts("levels"), table.flag("has_missing"))
        columns.append(replace(Column(*described, *_training_range(table)), **_part(table)))
    # Files that were written before there were parts hold one table.
    container = "table" if header.raw("container") is None else header.text("container")
    parts = () if header.raw("parts") is None else header.texts("parts")
    unowned = set(parts) - {column.part for column in columns}
    if container not in ("table", "array", "tuple", "dict") or unowned or (container != "table" and not parts):
        raise StorageError("the model file is damaged: what X came in is not known.")
    encoding = Encoding(tuple(columns), np.empty(0), np.empty(0), True, container, parts)
    size = (len(encoding.outputs),)
    scale = stored_tensor(tensors, "scale", size)
    if not (scale > 0).all() or not columns:
        raise StorageError("the model file is damaged: 'scale' is not positive.")
    return replace(
        encoding, center=stored_tensor(tensors, "center", size), scale=scale, standardise=header.flag("standardise")
    )


def _part(table: Fields) -> dict[str, Any]:
    """Return which part of X a column belongs to, and the shape of its arrays."""
    if table.raw("part") is None:
        return {}
    shape = tuple(table.items("shape"))
    if not all(type(size) is int and size > 0 for size in shape) or math.prod(shape) > 10**7:
        raise StorageError("the model file is damaged: the shape of a column is out of range.")
    return {"part": table.text("part"), "shape": shape, "whole": table.flag("whole")}


def _training_range(table: Fields) -> tuple[float | None, float | None, bool]:
    """Return smallest and largest training value of a column and whether all were whole."""
    # Categories have no range, and files that were written before ranges were kept have none at all.
    if table.raw("low") is None and table.raw("high") is None:
        return None, None, False
    low, high = table.number("low"), table.number("high")
    if not low < high:
        raise StorageError("the model file is damaged: the training range of a column is empty.")
    return low, high, table.flag("whole")


def _diagnostics(table: Fields) -> Diagnostics:
    readers: dict[str, Callable[[str], Any]] = {
        "bool": table.flag,
        "int": table.whole,
        "float": table.number,
        "str": table.text,
        "tuple[float, ...]": table.numbers,
        "tuple[str, ...]": table.texts,
        "dict[str, float]": lambda name: {key: table.table(name).number(key) for key in table.table(name).names()},
    }
    # What has a default may be missing: older files were written before there was such a thing.
    needed = [field for field in fields(Diagnostics) if field.default is MISSING and field.default_factory is MISSING]
    known = needed + [field for field in fields(Diagnostics) if field not in needed and field.name in table.names()]
    return Diagnostics(**{field.name: readers[str(field.type)](field.name) for field in known})
