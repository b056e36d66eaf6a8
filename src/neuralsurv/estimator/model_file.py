"""Saving a fitted model to a file and loading it again."""

from __future__ import annotations

import copy
import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields
from typing import Any

import numpy as np

from neuralsurv.data.features import Encoding
from neuralsurv.errors import InputError, NeuralSurvWarning, StorageError
from neuralsurv.estimator.base import SurvivalEstimator
from neuralsurv.estimator.neuralsurv import NeuralSurv
from neuralsurv.estimator.own_network import OwnNetwork, own_network
from neuralsurv.estimator.paper import PaperNeuralSurv
from neuralsurv.files.format import Arrays, Fields, read, stored_array, write
from neuralsurv.files.stored_columns import stored_causes, stored_columns, stored_roles
from neuralsurv.files.stored_posterior import posterior_parts, read_phi, read_posterior
from neuralsurv.posterior.concerns import WARNINGS
from neuralsurv.posterior.diagnostics import Diagnostics
from neuralsurv.posterior.fitted import Fitted

# The only classes a file can name.
_REGISTRY: dict[str, type[NeuralSurv] | type[PaperNeuralSurv]] = {
    "NeuralSurv": NeuralSurv,
    "PaperNeuralSurv": PaperNeuralSurv,
}
# A forged file could ask for any number of draws.
_MOST_DRAWS = 10**6
# What older files do not say of their fit.
_NEWER = ("sampling", "importance", "trust", "epochs", "modes", "kinds", "null_share")


def save(model: SurvivalEstimator, path: str | os.PathLike[str], *, replace: bool = True) -> None:
    """Write a fitted model to a file; with ``replace=False``, an existing file is not overwritten."""
    fitted = model.fitted_
    encoding, (about, arrays) = fitted.encoding, posterior_parts(fitted.posterior)
    parameters = _own_parameters(model)
    if not (parameters["random_state"] is None or isinstance(parameters["random_state"], (int, np.integer))):
        # A generator has a state, not a value; the fitted model no longer needs it.
        parameters["random_state"] = None
    # A file is data and holds no code: the network is passed again when it is opened.
    own = own_network(parameters.get("network"))
    if "network" in parameters:
        parameters["network"] = None
    header = {
        "class": _known_class(model).__name__,
        "parameters": {name: _plain(value) for name, value in parameters.items()},
        **about,
        "phi_prior": fitted.phi_prior.describe(),
        "time_scale": fitted.time_scale,
        "draw_seed": fitted.draw_seed,
        "columns": [asdict(column) for column in encoding.columns],
        "standardise": encoding.standardise,
        "container": encoding.container,
        "parts": list(encoding.parts),
        "named": fitted.named,
        "roles": fitted.roles,
        "training": fitted.training,
        "diagnostics": asdict(fitted.diagnostics),
    } | ({} if own is None else {"own_network": _network_settings(own)})
    if fitted.causes:
        header["causes"] = [[name, count] for name, count in fitted.causes.items()]
    arrays |= {"elbo": fitted.trace, "center": encoding.center, "scale": encoding.scale, "unique_times": fitted.times}
    if fitted.event_quartiles is not None:
        arrays["event_quartiles"] = fitted.event_quartiles
    write(path, header, arrays, replace=replace)


def load(path: str | os.PathLike[str], network: Any = None) -> SurvivalEstimator:
    """Open a model file.

    A file is data: opening one, even from an untrusted source, cannot run anything.

    Parameters
    ----------
    path : path
        A file that :meth:`neuralsurv.NeuralSurv.save` wrote.
    network : torch.nn.Module or OwnNetwork, optional
        The network of your own that the model was fitted with; its weights, and the settings of its training, come from
        the file. ``OwnNetwork(module, device="cuda")`` says where it is to run.

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
    model = _estimator(header)
    encoding = _encoding(header, tensors)
    own = own_network(network)
    module, device = (None, "cpu") if own is None else (own.module, own.device)
    if own is not None:
        known = "network" in model.get_params(deep=False)
        model.set_params(**{"network": _with_settings(network, own, header)} if known else {})
    trace = stored_array(tensors, "elbo", (None,))
    if len(trace) == 0:
        raise StorageError("the model file is damaged: 'elbo' is empty.")
    training = header.table("training")
    model.fitted_ = Fitted(
        posterior=read_posterior(header, tensors, encoding.layout, module, device),
        phi_prior=read_phi(header.table("phi_prior")),
        encoding=encoding,
        time_scale=header.positive("time_scale"),
        times=_rising(tensors, "unique_times", None),
        # Files written before they were stored have none.
        event_quartiles=_rising(tensors, "event_quartiles", 3) if "event_quartiles" in tensors else None,
        trace=trace,
        diagnostics=_diagnostics(header.table("diagnostics")),
        training={
            "rows": training.whole("rows", least=1),
            "events": training.whole("events"),
            "truncated": training.whole("truncated"),
            "weighted_events": training.number("weighted_events"),
        },
        roles=stored_roles(header),
        named=header.flag("named"),
        draw_seed=header.whole("draw_seed", 2**31),
        causes=stored_causes(header),
    )
    if max(1, len(model.fitted_.causes)) != model.fitted_.posterior.network.causes:
        raise StorageError("the model file is damaged: its network has other causes than its header.")
    return model


def _estimator(header: Fields) -> SurvivalEstimator:
    """Return the estimator that a file names, with its parameters, not yet fitted."""
    kind, table = header.text("class"), header.table("parameters")
    if kind not in _REGISTRY:
        raise StorageError(f"the model file holds a {kind!r}, which this version does not know.")
    if "preset" not in table.names():
        model = _REGISTRY[kind]()
        model.set_params(**_parameters(table, set(model.get_params(deep=False))))
        return model
    # Written when one class had the parameters of both, None where the default of the model was meant.
    model = PaperNeuralSurv() if table.text("preset") == "paper" else NeuralSurv()
    values = _parameters(table, set(table.names()))
    known = model.get_params(deep=False)
    model.set_params(**{name: value for name, value in values.items() if name in known and value is not None})
    return model


def _known_class(model: SurvivalEstimator) -> type[NeuralSurv] | type[PaperNeuralSurv]:
    """Return the class of this package that a model is of, or is derived from."""
    return next(kind for kind in _REGISTRY.values() if kind in type(model).__mro__)


def _own_parameters(model: SurvivalEstimator) -> dict[str, Any]:
    """Return the parameters of a model; those that a subclass adds have no place in a file."""
    base = _known_class(model)
    known = base().get_params(deep=False)
    parameters = {name: vars(model)[name] for name in known}
    if type(model) is not base:
        kind = type(model).__name__
        added = [name for name in model.get_params(deep=False) if name not in known]
        if added:
            raise StorageError(
                f"a {kind} cannot be saved: a model file has no place for its parameter {added[0]!r}. Pickle it, or "
                f"save a {base.__name__}."
            )
        warnings.warn(
            f"a file holds no code: load() will give a {base.__name__}, without what {kind} adds or changes.",
            NeuralSurvWarning,
            stacklevel=4,
        )
    draws = parameters["draws"]
    if isinstance(draws, int | np.integer) and draws > _MOST_DRAWS:
        raise StorageError(f"draws={draws} cannot be saved; use set_params(draws=…) with at most {_MOST_DRAWS} first.")
    return parameters


def _network_settings(own: OwnNetwork) -> dict[str, Any]:
    """Return how a network was trained; the device is left out, since it belongs to the machine."""
    several = isinstance(own.bayesian, Sequence) and not isinstance(own.bayesian, str)
    return {"bayesian": _plain(list(own.bayesian) if several else own.bayesian), **asdict(own.training)}


def _with_settings(network: Any, own: OwnNetwork, header: Fields) -> Any:
    """Return the network that was given, with the settings of the fit; a bare module stays one if they are default."""
    if header.raw("own_network") is None:
        # A file written before they were stored.
        return network
    table = header.table("own_network")
    named = isinstance(table.raw("bayesian"), str)
    used = copy.copy(own).set_params(
        bayesian=table.text("bayesian") if named else list(table.texts("bayesian")),
        epochs=table.whole("epochs"),
        learning_rate=table.positive("learning_rate"),
    )
    bare = not isinstance(network, OwnNetwork)
    return network if bare and used.get_params(deep=False) == own.get_params(deep=False) else used


def _plain(value: Any) -> Any:
    if isinstance(value, np.integer | np.floating | np.bool_):
        return value.item()
    items = list(value) if isinstance(value, tuple | list | np.ndarray) else None
    if items is not None and not any(isinstance(item, tuple | list | np.ndarray) for item in items):
        return [_plain(item) for item in items]
    if value is None or isinstance(value, bool | int | float | str):
        return value
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
    if type(draws) is not int or not 1 <= draws <= _MOST_DRAWS:
        raise StorageError("the model file is damaged: parameter 'draws' is out of range.")
    return parameters


def _rising(tensors: Arrays, name: str, length: int | None) -> np.ndarray:
    found = stored_array(tensors, name, (length,))
    if len(found) == 0 or found[0] <= 0 or (np.diff(found) < 0).any():
        raise StorageError(f"the model file is damaged: {name!r} are not positive and in order.")
    return found


def _encoding(header: Fields, tensors: Arrays) -> Encoding:
    columns = stored_columns(header)
    # Files written before there were parts hold one table.
    container = "table" if header.raw("container") is None else header.text("container")
    parts = () if header.raw("parts") is None else header.texts("parts")
    unowned = set(parts) - {column.part for column in columns}
    if container not in ("table", "array", "tuple", "dict") or unowned or (container != "table" and not parts):
        raise StorageError("the model file is damaged: the container of X is not known.")
    if len({column.name for column in columns}) < len(columns) or len(set(parts)) < len(parts):
        raise StorageError("the model file is damaged: a column or a part of X is repeated.")
    # Counted before any name is created: a shape of a few digits can stand for millions of columns.
    size = (sum(column.width for column in columns),)
    scale, center = stored_array(tensors, "scale", size), stored_array(tensors, "center", size)
    if not (scale > 0).all() or not columns:
        raise StorageError("the model file is damaged: 'scale' is not positive.")
    try:
        return Encoding(columns, center, scale, header.flag("standardise"), container, parts)
    except InputError as error:
        raise StorageError(f"the model file is damaged: {error}") from error


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
    known = [field for field in fields(Diagnostics) if field.name not in _NEWER or field.name in table.names()]
    found = Diagnostics(**{field.name: readers[str(field.type)](field.name) for field in known})
    if len(found.kinds) != len(found.messages) or not set(found.kinds) <= set(WARNINGS):
        raise StorageError("the model file is damaged: its warnings are not of a kind that is known.")
    return found
