"""Curves and early effects in model files: they come back the same, damaged ones are refused, older files load."""

import copy
import math
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
from neuralsurv.model.covariate_curves import CovariateCurves
from neuralsurv.model.hazard import Constant
from neuralsurv.model.prior import PointMass
from neuralsurv.model.time_basis import TimeBasis
from neuralsurv.posterior.gaussian import Posterior
from neuralsurv.solvers.primal import PrimalGaussian
from posteriors import g_moments
from small_cohort import small_cohort

COHORT = small_cohort()
X = COHORT.x.assign(site=np.resize(["oslo", "rome", "bonn"], 40))
TIMES = [0.0, 0.2, 1.0, 3.0]

Parts = tuple[dict[str, Any], dict[str, np.ndarray]]


def fitted(**parameters: Any) -> NeuralSurv:
    settings = {"neighbourhoods": 6, "draws": 30, "verbose": False, "random_state": 0}
    return NeuralSurv(**settings | parameters).fit(X, COHORT.y)


@pytest.fixture(scope="module")
def model() -> NeuralSurv:
    return fitted()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.neuralsurv"


@pytest.fixture
def parts(model: NeuralSurv, path: Path) -> Parts:
    model.save(path)
    return read(path)


def assert_same_model(one: NeuralSurv, other: NeuralSurv, x: Any = X) -> None:
    assert (one.predict_survival(x, TIMES).draws == other.predict_survival(x, TIMES).draws).all()
    assert (one.predict(x) == other.predict(x)).all()
    (about, arrays), (others, other_arrays) = (posterior_parts(each.posterior_) for each in (one, other))
    assert about == others
    assert arrays.keys() == other_arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, other_arrays[name], err_msg=name)


def network_of(model: NeuralSurv) -> Additive:
    network = model.posterior_.network
    assert isinstance(network, Additive)
    return network


def assert_refused(path: Path, header: dict[str, Any], tensors: dict[str, np.ndarray], message: str) -> None:
    write(path, header, tensors)
    with pytest.raises(StorageError, match=message):
        neuralsurv.load(path)


# -------------------------------------------------------------------------------------------------- round trips


@pytest.mark.parametrize("parameters", [{}, {"average": False}, {"neighbourhoods": 0}], ids=str)
def test_a_model_with_curves_comes_back_the_same(path: Path, parameters: dict[str, Any]) -> None:
    model = fitted(**parameters)
    model.save(path)
    again = neuralsurv.load(path)
    assert_same_model(model, again)
    # Beyond the training rows too, and at values between theirs.
    beyond = X.head(6).assign(age=np.linspace(-100, 300, 6), dose=np.linspace(-0.05, 0.05, 6))
    assert_same_model(model, again, beyond)
    curves, wanted = network_of(again).curves, network_of(model).curves
    assert isinstance(curves, CovariateCurves)
    assert isinstance(wanted, CovariateCurves)
    assert curves.which.dtype == torch.int64
    assert curves.which.tolist() == wanted.which.tolist() == [0, 1]
    assert network_of(again).early == network_of(model).early > 0
    assert "2 curves" in str(again.summary())
    before = path.read_bytes()
    again.save(path)
    assert path.read_bytes() == before, "a loaded model makes the same file"


def test_unchanged_parts_are_a_model(path: Path, parts: Parts, model: NeuralSurv) -> None:
    write(path, *parts)
    assert_same_model(model, neuralsurv.load(path))


# ----------------------------------------------------------------------------------------------------- older files


def test_a_file_that_knows_nothing_of_curves_and_early_effects(path: Path) -> None:
    """As older versions wrote them: a network, no `early` in the header, no arrays of curves."""
    model = NeuralSurv(hidden=(3,), draws=30, verbose=False, random_state=0).fit(X, COHORT.y)
    network = network_of(model)
    assert network.curves is None
    assert network.early == 0
    model.save(path)
    header, tensors = read(path)
    assert not any(name.startswith("curves_") for name in tensors)
    older = copy.deepcopy(header)
    del older["network"]["early"]
    write(path, older, tensors)
    assert_same_model(model, neuralsurv.load(path))


def test_an_additive_network_without_curves_in_an_older_file(path: Path, parts: Parts, model: NeuralSurv) -> None:
    """The linear path and time alone, constructed by hand and put into a file without any of the later fields."""
    header, tensors = copy.deepcopy(parts[0]), parts[1]
    encoded = model.encoding_.transform(X)
    basis = TimeBasis(0.05, -1.0, 0.9, (-1.0, 0.5), 0.8)
    network = Additive(encoded.shape[1], basis, -math.log(29), None, torch.zeros(0).double(), varying=True)
    generator = torch.Generator().manual_seed(1)
    mean = torch.randn(network.size, generator=generator, dtype=torch.float64)
    theta = PrimalGaussian(mean, 5 * torch.eye(network.size, dtype=torch.float64))
    zeros = torch.zeros_like(mean)
    posterior = Posterior(PointMass(2.0), theta, zeros, network, Constant(1 / 30), 1.0)
    values, arrays = posterior_parts(posterior)
    for name in ("early", "pairs"):
        del values["network"][name]
    old = {key: value for key, value in header.items() if key != "mixture"} | values
    others = ("theta", "near_", "curves_", "origin")
    kept = {name: array for name, array in tensors.items() if not name.startswith(others)}
    write(path, old, kept | arrays)
    found = neuralsurv.load(path).posterior_
    assert isinstance(found.network, Additive)
    assert found.network.describe().values == network.describe().values
    assert (found.network.curves, found.network.near, found.network.early) == (None, None, 0.0)
    time, x = torch.linspace(0.1, 1, 40, dtype=torch.float64), torch.from_numpy(encoded)
    for one, other in zip(g_moments(found, time, x), g_moments(posterior, time, x), strict=True):
        assert torch.equal(one, other)


# -------------------------------------------------------------------------------------------------------- damage


@pytest.mark.parametrize("name", ["which", "values", "ranks", "centres", "mix", "mean"])
def test_damaged_curves(path: Path, parts: Parts, name: str) -> None:
    header, tensors = parts
    key = f"curves_{name}"
    message = f"'{key}' is missing or has the wrong shape"
    fewer = {other: array for other, array in tensors.items() if other != key}
    assert_refused(path, header, fewer, message)
    assert_refused(path, header, {**tensors, key: np.ones((1, 1, 1))}, message)
    assert_refused(path, header, {**tensors, key: np.float64(1)[None][0:0].reshape(0, 0, 0)}, message)


@pytest.mark.parametrize(
    ("name", "cut", "message"),
    [
        ("which", np.s_[:1], "'curves_which' is missing"),
        ("ranks", np.s_[:, :-1], "'curves_ranks' is missing"),
        ("centres", np.s_[:1], "'curves_centres' is missing"),
        ("centres", np.s_[:, :-1], "'curves_mix' is missing"),
        ("mix", np.s_[:-1], "'curves_mix' is missing"),
        ("mean", np.s_[:-1], "'curves_mean' is missing"),
        ("values", np.s_[:1], "'curves_ranks' is missing"),
    ],
    ids=str,
)
def test_shapes_that_do_not_fit_each_other(path: Path, parts: Parts, name: str, cut: Any, message: str) -> None:
    header, tensors = parts
    key = f"curves_{name}"
    assert_refused(path, header, {**tensors, key: tensors[key][cut].copy()}, message)


@pytest.mark.parametrize("which", [[0, 5], [-1, 0], [0, 0.5], [0, 1e300]], ids=str)
def test_covariates_that_are_none(path: Path, parts: Parts, which: list[float]) -> None:
    """Two numeric covariates and three sites are columns 0 to 4."""
    header, tensors = parts
    forged = {**tensors, "curves_which": np.array(which, dtype=float)}
    assert_refused(path, header, forged, "covariates or values of the curves are out of order")


def test_values_that_fall_and_nothing_at_all(path: Path, parts: Parts) -> None:
    header, tensors = parts
    message = "covariates or values of the curves are out of order"
    assert_refused(path, header, {**tensors, "curves_values": -tensors["curves_values"]}, message)
    single = {f"curves_{name}": tensors[f"curves_{name}"][:, :1].copy() for name in ("values", "ranks")}
    assert_refused(path, header, {**tensors, **single}, message)
    nothing = {"curves_mix": tensors["curves_mix"][:, :0], "curves_mean": tensors["curves_mean"][:0]}
    assert_refused(path, header, {**tensors, **nothing}, message)
    no_centres = {"curves_centres": tensors["curves_centres"][:, :0], "curves_mix": tensors["curves_mix"][:0]}
    assert_refused(path, header, {**tensors, **no_centres}, message)


def test_a_column_too_few_and_the_weights_do_not_fit(path: Path, parts: Parts) -> None:
    header, tensors = parts
    fewer = {"curves_mix": tensors["curves_mix"][:, 1:].copy(), "curves_mean": tensors["curves_mean"][1:].copy()}
    assert_refused(path, header, {**tensors, **fewer}, "'theta_star' is missing or has the wrong shape")


def test_without_curves_and_all_their_weights(path: Path, parts: Parts) -> None:
    header, tensors = parts
    none = {name: array for name, array in tensors.items() if not name.startswith("curves_")}
    assert_refused(path, header, none, "'theta_star' is missing or has the wrong shape")


@pytest.mark.parametrize(
    ("early", "message"),
    [
        (-0.1, "'early' is out of range"),
        (1.5, "'early' is out of range"),
        (1e308, "'early' is out of range"),
        ("x", "'network' 'early' is not a number"),
        (None, "'network' 'early' is not a number"),
        (True, "'network' 'early' is not a number"),
        ([], "'network' 'early' is not a number"),
        (0.0, "'theta_star' is missing or has the wrong shape"),
        (..., "'theta_star' is missing or has the wrong shape"),
    ],
    ids=str,
)
def test_damaged_early(path: Path, parts: Parts, early: Any, message: str) -> None:
    header, tensors = copy.deepcopy(parts[0]), parts[1]
    if early is ...:
        del header["network"]["early"]
    else:
        header["network"]["early"] = early
    assert_refused(path, header, tensors, message)
