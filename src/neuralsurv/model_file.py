"""What of a fitted model goes into a file, and back."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict, fields
from typing import Any

import numpy as np
import torch

from neuralsurv.data.features import Column, Encoding
from neuralsurv.diagnostics import Diagnostics
from neuralsurv.errors import InputError, StorageError
from neuralsurv.estimator import NeuralSurv
from neuralsurv.model.hazard import ClosedForm, Half, MonteCarlo, Normaliser
from neuralsurv.model.network import MLP
from neuralsurv.model.prior import Gamma, WeightPrior
from neuralsurv.posterior import Posterior
from neuralsurv.solvers.primal import PrimalGaussian
from neuralsurv.solvers.subspace import SubspaceGaussian
from neuralsurv.storage import Fields, read, write

# The only classes a file can name.
_REGISTRY = {"NeuralSurv": NeuralSurv}


def save(model: NeuralSurv, path: str | os.PathLike[str]) -> None:
    """Write a fitted model."""
    posterior = model.posterior_
    network, gaussian = posterior.network, posterior.theta
    if not isinstance(network, MLP) or not isinstance(gaussian, PrimalGaussian | SubspaceGaussian):
        raise StorageError(f"a model with a {type(network).__name__} and a {type(gaussian).__name__} cannot be saved.")
    parameters = model.get_params(deep=False)
    if not (parameters["random_state"] is None or isinstance(parameters["random_state"], (int, np.integer))):
        # A generator has a state, not a value; the fitted model no longer needs it.
        parameters["random_state"] = None
    header = {
        "class": type(model).__name__,
        "parameters": {name: _plain(value) for name, value in parameters.items()},
        "network": {"covariates": network.covariates, "hidden": list(network.hidden), "activation": network.activation},
        "normaliser": _normaliser_name(posterior.normaliser),
        "phi": {"shape": posterior.phi.shape, "rate": posterior.phi.rate},
        "phi_prior": {"shape": model.phi_prior_.shape, "rate": model.phi_prior_.rate},
        "rho": posterior.rho,
        "time_scale": model.time_scale_,
        "draw_seed": model._draw_seed,
        "columns": [asdict(column) for column in model.encoding_.columns],
        "standardise": model.encoding_.standardise,
        "named": hasattr(model, "feature_names_in_"),
        "roles": model.columns_,
        "training": model.training_,
        "diagnostics": asdict(model.diagnostics_),
    }
    tensors = {
        **_gaussian_tensors(gaussian),
        "theta_star": posterior.theta_star.numpy(),
        "elbo": model.elbo_,
        "center": model.encoding_.center,
        "scale": model.encoding_.scale,
        "unique_times": model.unique_times_,
    }
    if isinstance(posterior.normaliser, MonteCarlo):
        header["normaliser_seed"] = posterior.normaliser.seed
    if isinstance(posterior.normaliser, ClosedForm | MonteCarlo):
        tensors["prior_precision"] = posterior.normaliser.prior.precision.numpy()
    write(path, header, tensors)


def load(path: str | os.PathLike[str]) -> NeuralSurv:
    """Open a model file.

    A file is data: opening one, even from a stranger, cannot run anything.

    Parameters
    ----------
    path : path
        A file that :meth:`neuralsurv.NeuralSurv.save` wrote.

    Examples
    --------
    >>> import tempfile, neuralsurv
    >>> from neuralsurv.data.simulate import lognormal_cohort
    >>> cohort = lognormal_cohort(40, seed=1)
    >>> model = neuralsurv.NeuralSurv(hidden=(4,), quadrature_points=50, starts=1, random_state=0)
    >>> model = model.fit(cohort.x, cohort.y)
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
    network = _network(header.table("network"))
    if network.covariates != len(encoding.outputs):
        raise StorageError("the model file is damaged: the network does not fit the covariates.")
    theta = _gaussian(network.size, tensors)
    model.posterior_ = Posterior(
        phi=_gamma(header.table("phi")),
        theta=theta,
        theta_star=torch.from_numpy(_tensor(tensors, "theta_star", (network.size,))),
        network=network,
        normaliser=_normaliser(header.text("normaliser"), network, tensors, header),
        rho=header.positive("rho"),
    )
    model.elbo_ = _tensor(tensors, "elbo", (None,))
    if len(model.elbo_) == 0:
        raise StorageError("the model file is damaged: 'elbo' is empty.")
    model.phi_prior_ = _gamma(header.table("phi_prior"))
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


def _gamma(table: Fields) -> Gamma:
    return Gamma(table.positive("shape"), table.positive("rate"))


def _tensor(tensors: dict[str, np.ndarray], name: str, shape: tuple[int | None, ...]) -> np.ndarray:
    array = tensors.get(name)
    fits = array is not None and len(array.shape) == len(shape)
    if array is None or not fits or any(b not in (None, a) for a, b in zip(array.shape, shape, strict=True)):
        raise StorageError(f"the model file is damaged: {name!r} is missing or has the wrong shape.")
    return array


def _times(tensors: dict[str, np.ndarray]) -> np.ndarray:
    times = _tensor(tensors, "unique_times", (None,))
    if len(times) == 0 or times[0] <= 0 or (np.diff(times) < 0).any():
        raise StorageError("the model file is damaged: 'unique_times' are not positive and in order.")
    return times


def _network(table: Fields) -> MLP:
    hidden = table.items("hidden")
    if len(hidden) > 1000 or not all(type(width) is int and 1 <= width <= 10**7 for width in hidden):
        raise StorageError("the model file is damaged: 'hidden' is out of range.")
    try:
        return MLP(table.whole("covariates", 10**7), tuple(hidden), table.text("activation"))
    except InputError as error:
        raise StorageError(f"the model file is damaged: {error}") from error


def _gaussian_tensors(gaussian: PrimalGaussian | SubspaceGaussian) -> dict[str, np.ndarray]:
    if isinstance(gaussian, PrimalGaussian):
        return {"theta_mean": gaussian.mean.numpy(), "theta_factor": gaussian.factor.numpy()}
    return {
        "theta_precision": gaussian.precision.numpy(),
        "theta_basis": gaussian.basis.contiguous().numpy(),
        "theta_inner_mean": gaussian.inner_mean.numpy(),
        "theta_inner_factor": gaussian.inner_factor.numpy(),
    }


def _factor(tensors: dict[str, np.ndarray], name: str, size: int) -> torch.Tensor:
    factor = _tensor(tensors, name, (size, size))
    if not (np.diagonal(factor) > 0).all() or np.triu(factor, 1).any():
        raise StorageError(f"the model file is damaged: {name!r} is not a Cholesky factor.")
    return torch.from_numpy(factor)


def _gaussian(size: int, tensors: dict[str, np.ndarray]) -> PrimalGaussian | SubspaceGaussian:
    if "theta_basis" not in tensors:
        factor = _factor(tensors, "theta_factor", size)
        return PrimalGaussian(torch.from_numpy(_tensor(tensors, "theta_mean", (size,))), factor)
    precision = _tensor(tensors, "theta_precision", (size,))
    if not (precision > 0).all():
        raise StorageError("the model file is damaged: 'theta_precision' is not positive.")
    basis = torch.from_numpy(_tensor(tensors, "theta_basis", (size, None)))
    rank = basis.shape[1]
    if not torch.allclose(basis.T @ basis, torch.eye(rank, dtype=basis.dtype), atol=1e-5):
        raise StorageError("the model file is damaged: the columns of 'theta_basis' are not orthonormal.")
    mean = torch.from_numpy(_tensor(tensors, "theta_inner_mean", (rank,)))
    return SubspaceGaussian(torch.from_numpy(precision), basis, mean, _factor(tensors, "theta_inner_factor", rank))


def _normaliser_name(normaliser: Normaliser) -> str:
    names: dict[type, str] = {Half: "half", ClosedForm: "closed-form", MonteCarlo: "monte-carlo"}
    if type(normaliser) not in names:
        raise StorageError(f"a model with the normaliser {type(normaliser).__name__} cannot be saved.")
    return names[type(normaliser)]


def _normaliser(name: str, network: MLP, tensors: dict[str, np.ndarray], header: Fields) -> Normaliser:
    if name == "half":
        return Half()
    prior = WeightPrior(torch.from_numpy(_tensor(tensors, "prior_precision", (network.size,))))
    if not bool((prior.precision > 0).all()):
        raise StorageError("the model file is damaged: 'prior_precision' is not positive.")
    if name == "closed-form":
        return ClosedForm(network, prior)
    if name == "monte-carlo":
        return MonteCarlo(network, prior, seed=header.whole("normaliser_seed", 2**63))
    raise StorageError(f"the model file is damaged: the normaliser {name!r} is not known.")


def _encoding(header: Fields, tensors: dict[str, np.ndarray]) -> Encoding:
    columns = []
    for item in header.items("columns"):
        table = Fields(item, "column")
        kind = table.text("kind")
        if kind not in ("number", "category"):
            raise StorageError("the model file is damaged: a column is neither number nor category.")
        columns.append(Column(table.text("name"), kind, table.texts("levels"), table.flag("has_missing")))
    encoding = Encoding(tuple(columns), np.empty(0), np.empty(0))
    size = (len(encoding.outputs),)
    scale = _tensor(tensors, "scale", size)
    if not (scale > 0).all() or not columns:
        raise StorageError("the model file is damaged: 'scale' is not positive.")
    return Encoding(tuple(columns), _tensor(tensors, "center", size), scale, header.flag("standardise"))


def _diagnostics(table: Fields) -> Diagnostics:
    readers: dict[str, Callable[[str], Any]] = {
        "bool": table.flag,
        "int": table.whole,
        "float": table.number,
        "str": table.text,
        "tuple[float, ...]": table.numbers,
        "tuple[str, ...]": table.texts,
    }
    return Diagnostics(**{field.name: readers[str(field.type)](field.name) for field in fields(Diagnostics)})
