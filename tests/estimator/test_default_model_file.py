"""Models of the default model in files: they come back the same, and damaged or forged files are refused."""

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import neuralsurv
from neuralsurv import NeuralSurv
from neuralsurv.errors import StorageError
from neuralsurv.files.format import read, write
from neuralsurv.files.stored_posterior import posterior_parts
from neuralsurv.model.additive import Additive
from neuralsurv.model.hazard import Constant
from neuralsurv.model.prior import PointMass
from neuralsurv.solvers.gaussian_mixture import MixtureGaussian
from neuralsurv.solvers.primal import PrimalGaussian
from neuralsurv.solvers.subspace import SubspaceGaussian
from small_cohort import quick_default, small_cohort

COHORT = small_cohort()
X = COHORT.x.assign(site=np.resize(["oslo", "rome", "bonn"], 40))
TIMES = [0.0, 0.2, 1.0, 3.0]


@pytest.fixture(scope="module")
def model() -> NeuralSurv:
    return quick_default(hidden=(3,)).fit(X, COHORT.y)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.neuralsurv"


@pytest.fixture
def parts(model: NeuralSurv, path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    model.save(path)
    return read(path)


def assert_same_model(one: NeuralSurv, other: NeuralSurv) -> None:
    assert (one.predict_survival(X, TIMES).draws == other.predict_survival(X, TIMES).draws).all()
    assert (one.predict(X) == other.predict(X)).all()
    (about, arrays), (others, other_arrays) = (posterior_parts(each.posterior_) for each in (one, other))
    assert about == others
    assert arrays.keys() == other_arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, other_arrays[name], err_msg=name)
    assert one.diagnostics_ == other.diagnostics_
    assert one.phi_prior_ == other.phi_prior_
    assert one.get_params() == other.get_params()
    assert str(one.summary()) == str(other.summary())
    assert vars(one).keys() == vars(other).keys()


# -------------------------------------------------------------------------------------------------- round trips


@pytest.mark.parametrize(
    "parameters",
    [{}, {"hidden": ()}, {"hidden": (3, 2), "activation": "tanh"}, {"average": False}, {"headroom": 60.0}],
    ids=str,
)
def test_a_model_comes_back_the_same(path: Path, parameters: dict[str, Any]) -> None:
    model = quick_default(**{"hidden": (3,)} | parameters).fit(X, COHORT.y)
    model.save(path)
    again = neuralsurv.load(path)
    assert_same_model(model, again)
    posterior = again.posterior_
    assert isinstance(posterior.network, Additive)
    assert isinstance(posterior.phi, PointMass)
    assert isinstance(posterior.normaliser, Constant)
    assert type(posterior.theta) is (MixtureGaussian if parameters.get("average", True) else SubspaceGaussian)
    before = path.read_bytes()
    again.save(path)
    assert path.read_bytes() == before, "a loaded model makes the same file"


@pytest.fixture(scope="module")
def near() -> NeuralSurv:
    """A model with curves and neighbourhoods, as the default is."""
    return quick_default(hidden=None, neighbourhoods=6, average=False).fit(X, COHORT.y)


def test_a_model_with_neighbourhoods_comes_back_the_same(path: Path, near: NeuralSurv) -> None:
    near.save(path)
    again = neuralsurv.load(path)
    assert_same_model(near, again)
    assert isinstance(again.posterior_.network, Additive)
    assert again.posterior_.network.near is not None
    assert again.posterior_.network.curves is not None
    assert again.posterior_.network.early > 0
    assert "2 curves and neighbourhoods of 6 rows" in str(again.summary())


@pytest.mark.parametrize("name", ["values", "ranks", "centres", "relevance", "mix", "mean"])
def test_damaged_neighbourhoods(path: Path, near: NeuralSurv, name: str) -> None:
    near.save(path)
    header, tensors = read(path)
    key = f"near_{name}"
    fewer = {other: array for other, array in tensors.items() if other != key}
    assert_refused(path, header, fewer, f"'{key}' is missing or has the wrong shape")
    assert_refused(path, header, {**tensors, key: np.ones((1, 1, 1))}, f"'{key}' is missing or has the wrong shape")


def test_neighbourhoods_out_of_order(path: Path, near: NeuralSurv) -> None:
    near.save(path)
    header, tensors = read(path)
    message = "values or relevances of the neighbourhoods are out of order"
    assert_refused(path, header, {**tensors, "near_values": -tensors["near_values"]}, message)
    assert_refused(path, header, {**tensors, "near_relevance": -tensors["near_relevance"]}, message)
    nothing = {"near_mix": tensors["near_mix"][:, :0], "near_mean": tensors["near_mean"][:0]}
    assert_refused(path, header, {**tensors, **nothing}, message)


def test_a_loaded_model_can_be_fitted_again(model: NeuralSurv, path: Path) -> None:
    model.save(path)
    again = neuralsurv.load(path).fit(X, COHORT.y)
    assert (again.predict(X) == model.predict(X)).all()


# ------------------------------------------------------------------------------------------------------- saving


def refused(model: NeuralSurv, path: Path, message: str) -> None:
    with pytest.raises(StorageError, match=message):
        model.save(path)
    assert list(path.parent.iterdir()) == []


def with_posterior(model: NeuralSurv, **changed: Any) -> NeuralSurv:
    odd = copy.copy(model)
    odd.fitted_ = replace(odd.fitted_, posterior=replace(model.posterior_, **changed))
    return odd


def test_a_mixture_of_other_gaussians(model: NeuralSurv, path: Path) -> None:
    size = model.posterior_.network.size
    plain = PrimalGaussian(torch.zeros(size).double(), torch.eye(size).double())
    mixture = MixtureGaussian((1.0,), (plain,))
    refused(with_posterior(model, theta=mixture), path, "a mixture whose parts do not share one basis cannot be saved")


def test_parts_with_bases_of_their_own(model: NeuralSurv, path: Path) -> None:
    theta = model.posterior_.theta
    assert isinstance(theta, MixtureGaussian)
    first, *rest = theta.parts
    assert isinstance(first, SubspaceGaussian)
    odd = MixtureGaussian(theta.weights, (replace(first, basis=first.basis.clone()), *rest))
    refused(with_posterior(model, theta=odd), path, "a mixture whose parts do not share one basis cannot be saved")


# ------------------------------------------------------------------------------------------------------ forgery


def changed(table: dict[str, Any], where: list[Any], value: Any) -> dict[str, Any]:
    """Return the header with one value replaced, or left out if `value` is Ellipsis."""
    result = copy.deepcopy(table)
    *parents, last = where
    inner = result
    for key in parents:
        inner = inner[key]
    if value is ...:
        del inner[last]
    else:
        inner[last] = value
    return result


def assert_refused(path: Path, header: dict[str, Any], tensors: dict[str, np.ndarray], message: str) -> None:
    write(path, header, tensors)
    with pytest.raises(StorageError, match=message):
        neuralsurv.load(path)


Parts = tuple[dict[str, Any], dict[str, np.ndarray]]


def test_unchanged_parts_are_a_model(path: Path, parts: Parts, model: NeuralSurv) -> None:
    write(path, *parts)
    assert_same_model(model, neuralsurv.load(path))


@pytest.mark.parametrize(
    ("where", "value", "message"),
    [
        (["network", "covariates"], 3, "the network does not fit the covariates"),
        (["network", "covariates"], 10**9, "'network' 'covariates' is out of range"),
        (["network", "offset"], "x", "'network' 'offset' is not a number"),
        (["network", "linear"], 1, "'network' 'linear' is not true or false"),
        (["network", "inner"], "x", "'network' 'inner' is not a table"),
        (["network", "inner"], None, "'origin' is missing or has the wrong shape"),
        (["network", "inner"], ..., "'origin' is missing or has the wrong shape"),
        (["network", "inner", "hidden"], [4], "'origin' is missing or has the wrong shape"),
        (["network", "inner", "hidden"], [0], "'hidden' is out of range"),
        (["network", "time", "center"], 1e308, "a number of 'time' or 'offset' is out of range"),
        (["network", "offset"], -1e308, "a number of 'time' or 'offset' is out of range"),
        (["network", "inner", "hidden"], [1] * 1001, "'hidden' is out of range"),
        (["network", "inner", "activation"], "cosh", "is damaged: activation 'cosh' is not known"),
        # An additive network within another one: files cannot be nested without end.
        (["network", "inner"], {"time": {}, "inner": None}, "'inner' 'hidden' is not a list"),
        (["network", "inner", "covariates"], 4, "the network does not fit the covariates"),
        (["network", "time"], [], "'network' 'time' is not a table"),
        (["network", "time", "shift"], 0.0, "'time' 'shift' is not positive"),
        (["network", "time", "shift"], 1.5, "the shift of 'time' is out of range"),
        (["network", "time", "spread"], -1.0, "'time' 'spread' is not positive"),
        (["network", "time", "width"], 0, "'time' 'width' is not positive"),
        (["network", "time", "center"], "x", "'time' 'center' is not a number"),
        (["network", "time", "bumps"], ["x"], "'bumps' '0' is not a number"),
        (["network", "time", "bumps"], [0.0], "'theta_star' is missing or has the wrong shape"),
        (["phi"], {"held": 0.0}, "'phi' 'held' is not positive"),
        (["phi"], {"held": "x"}, "'phi' 'held' is not a number"),
        (["phi"], {}, "'phi' 'shape' is not a number"),
        (["phi_prior"], {"held": -1.0}, "'phi_prior' 'held' is not positive"),
        (["mixture"], [], "is damaged: a mixture of 0 Gaussians has 0 weights"),
        (["mixture"], [0.0] * 10_001, "is damaged: a mixture of 10001 parts"),
        (["mixture"], [0.9], "is damaged: the weights of a mixture must be 0 or more and add up to 1"),
        (["mixture"], ["x"], "'mixture' '0' is not a number"),
        (["mixture"], ..., "'theta_precision' is missing or has the wrong shape"),
        (["normaliser"], "half-and-half", "'prior_precision' is missing or has the wrong shape"),
        (["normaliser_value"], 0.0, "'normaliser_value' is not positive"),
        (["normaliser_value"], ..., "'normaliser_value' is not a number"),
        (["diagnostics", "scales"], [1], "'diagnostics' 'scales' is not a table"),
        (["diagnostics", "scales"], {"trend": "x"}, "'scales' 'trend' is not a number"),
        (["diagnostics", "settings"], "x", "'diagnostics' 'settings' is not a whole number"),
    ],
    ids=str,
)
def test_header(path: Path, parts: Parts, where: list[Any], value: Any, message: str) -> None:
    header, tensors = parts
    assert_refused(path, changed(header, where, value), tensors, message)


def test_the_covariates_of_the_table_and_of_the_network(path: Path, parts: Parts) -> None:
    header, tensors = parts
    both = changed(header, ["network", "covariates"], 4)
    both["network"]["inner"]["covariates"] = 4
    more = {**tensors, "origin": np.zeros((4 + 2) * 3 + 4)}
    assert_refused(path, both, more, "the network does not fit the covariates")


def test_an_unknown_normaliser_with_all_it_needs(path: Path, parts: Parts, model: NeuralSurv) -> None:
    header, tensors = parts
    more = {**tensors, "prior_precision": np.ones(model.posterior_.network.size)}
    assert_refused(path, changed(header, ["normaliser"], "third"), more, "the normaliser 'third' is not known")
    negative = {**tensors, "prior_precision": -np.ones(model.posterior_.network.size)}
    assert_refused(path, changed(header, ["normaliser"], "closed-form"), negative, "'prior_precision' is not positive")


def test_tensors(path: Path, parts: Parts) -> None:
    header, tensors = parts
    names = [name for name in tensors if name.startswith("theta")]
    assert {"theta_basis", "theta_precision_0", "theta_inner_mean_0", "theta_inner_factor_0"} <= set(names)
    for name in ("origin", "theta_star", "theta_precision_1", "theta_inner_mean_1", "theta_inner_factor_1"):
        fewer = {key: array for key, array in tensors.items() if key != name}
        assert_refused(path, header, fewer, f"'{name}' is missing or has the wrong shape")
        assert_refused(path, header, {**tensors, name: np.ones(2)}, f"'{name}' is missing or has the wrong shape")
    # Without a basis the file would have to hold a plain Gaussian.
    fewer = {key: array for key, array in tensors.items() if key != "theta_basis"}
    assert_refused(path, header, fewer, "'theta_factor' is missing or has the wrong shape")
    twisted = {**tensors, "theta_basis": 2 * tensors["theta_basis"]}
    assert_refused(path, header, twisted, "the columns of 'theta_basis' are not orthonormal")
    negative = {**tensors, "theta_precision_2": -tensors["theta_precision_2"]}
    assert_refused(path, header, negative, "'theta_precision_2' is not positive")
    upper = {**tensors, "theta_inner_factor_0": tensors["theta_inner_factor_0"].T.copy()}
    assert_refused(path, header, upper, "'theta_inner_factor_0' is not a Cholesky factor")
    flipped = {**tensors, "theta_inner_factor_0": -tensors["theta_inner_factor_0"]}
    assert_refused(path, header, flipped, "'theta_inner_factor_0' is not a Cholesky factor")


def test_any_value_anywhere_is_a_model_or_a_storage_error(path: Path, parts: Parts) -> None:
    header, tensors = parts
    places = [["mixture"], ["normaliser_value"], ["phi"], ["network"], ["network", "inner"], ["network", "time"]]
    for where in [*places, *(["network", key] for key in header["network"]), ["diagnostics", "scales"]]:
        for value in (None, True, -1, 10**300, 1e308, "os.system", [], [[]], {}, {"a": {}}):
            write(path, changed(header, where, value), tensors)
            try:
                neuralsurv.load(path)
            except StorageError:
                continue


def test_damage_is_found_out(path: Path, model: NeuralSurv) -> None:
    model.save(path)
    good = path.read_bytes()
    rng = np.random.default_rng(9)
    for where in rng.choice(8 * len(good), 60, replace=False):
        data = bytearray(good)
        data[where // 8] ^= 1 << (where % 8)
        path.write_bytes(bytes(data))
        with pytest.raises(StorageError):
            neuralsurv.load(path)
