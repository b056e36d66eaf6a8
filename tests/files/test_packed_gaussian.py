"""Large Gaussians in model files: few numbers, the same predictions, and forged parts are refused."""

import math

import numpy as np
import pandas as pd
import pytest

import neuralsurv
from neuralsurv.errors import NotEnoughMemoryError, StorageError
from neuralsurv.files import packed_gaussian
from neuralsurv.files.format import read, write
from neuralsurv.files.packed_gaussian import pack, unpack
from neuralsurv.files.stored_posterior import posterior_parts
from small_cohort import quick_default, quick_model

ROWS, COLUMNS = 30, 400


@pytest.fixture(scope="module")
def wide():
    rng = np.random.default_rng(0)
    x = pd.DataFrame(rng.normal(size=(ROWS, COLUMNS)), columns=[f"g{k}" for k in range(COLUMNS)])
    return x, rng.exponential(size=ROWS), rng.random(ROWS) < 0.7


@pytest.fixture(scope="module", params=["default", "paper"])
def model(request, wide):
    x, time, event = wide
    make = quick_default if request.param == "default" else quick_model
    return make(hidden=(16,)).fit(x, (time, event))


@pytest.fixture
def always(monkeypatch):
    monkeypatch.setattr(packed_gaussian, "_WORTH_PACKING", 0)


def test_a_wide_table_has_a_small_file(wide, model, tmp_path, monkeypatch):
    monkeypatch.setattr(packed_gaussian, "_WORTH_PACKING", math.inf)
    model.save(tmp_path / "dense.neuralsurv")
    monkeypatch.setattr(packed_gaussian, "_WORTH_PACKING", 0)
    model.save(tmp_path / "packed.neuralsurv")
    dense, packed = (tmp_path / f"{name}.neuralsurv" for name in ("dense", "packed"))
    assert packed.stat().st_size < 0.4 * dense.stat().st_size
    times = [0.2, 0.5, 1.0]
    for path in (dense, packed):
        found = neuralsurv.load(path)
        wanted, ours = (each.predict_survival(wide[0], times).draws for each in (model, found))
        np.testing.assert_allclose(ours, wanted, rtol=0, atol=1e-9)


def test_everything_comes_back(model, always):
    network = model.posterior_.network
    packed = posterior_parts(model.posterior_)[1]
    whole = unpack(packed, network)
    theta = model.posterior_.theta
    first = getattr(theta, "parts", (theta,))[0]
    np.testing.assert_allclose(whole["theta_basis"], first.basis, rtol=0, atol=1e-12)
    again = pack(whole, network)
    assert again.keys() == packed.keys()
    for number, part in enumerate(getattr(theta, "parts", (theta,))):
        place = f"_{number}" if hasattr(theta, "parts") else ""
        np.testing.assert_array_equal(whole[f"theta_precision{place}"], part.precision)
        np.testing.assert_array_equal(whole[f"theta_inner_factor{place}"], part.inner_factor)


def test_a_basis_without_structure_is_kept_as_it_is(model, always):
    network = model.posterior_.network
    basis = np.random.default_rng(1).normal(size=(network.size, 5))
    precision = np.random.default_rng(2).random(network.size)
    arrays = {"theta_basis": basis, "theta_precision": precision, "theta_inner_factor": np.tril(np.ones((5, 5)))}
    packed = pack(arrays, network)
    assert "theta_basis_inputs" not in packed
    assert packed["theta_precision"] is precision
    for name, array in unpack(packed, network).items():
        np.testing.assert_array_equal(array, arrays[name])


def test_a_small_gaussian_is_stored_as_it_is(model):
    arrays = {"theta_basis": np.ones((3, 2)), "theta_precision": np.ones(3)}
    assert pack(arrays, model.posterior_.network) is arrays
    assert unpack(arrays, model.posterior_.network) is arrays


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("theta_basis_rest", lambda a: a[1:], "the parts of 'theta_basis' do not fit each other"),
        ("theta_basis_rest", lambda a: a[0], "the parts of 'theta_basis' do not fit each other"),
        ("theta_basis_core", lambda a: a[1:], "the parts of 'theta_basis' do not fit each other"),
        ("theta_basis_core", lambda a: a[0], "the parts of 'theta_basis' do not fit each other"),
        ("theta_basis_inputs", lambda a: a[1:], "the parts of 'theta_basis' do not fit each other"),
        ("theta_basis_columns", lambda a: a + 1e9, "the parts of 'theta_basis' do not fit each other"),
        ("theta_basis_columns", lambda a: a + 0.5, "the parts of 'theta_basis' do not fit each other"),
        ("theta_basis_columns", lambda a: a[::-1].copy(), "the parts of 'theta_basis' do not fit each other"),
        ("theta_basis_inputs", lambda a: 2 * a, "the columns of 'theta_basis' are not orthonormal"),
        ("theta_precision*_runs", lambda a: a[:, 1:], "the parts of 'theta_precision.*_runs' do not fit"),
        ("theta_precision*_runs", lambda a: a * [[1], [0.5]], "the parts of 'theta_precision.*_runs' do not fit"),
        ("theta_precision*_runs", lambda a: a[0], "the parts of 'theta_precision.*_runs' do not fit"),
        ("theta_precision*_runs", lambda a: -a * [[1], [-1]], "'theta_precision.*' is not positive"),
        ("theta_inner_factor*_lower", lambda a: a[1:], "the parts of 'theta_inner_factor.*_lower' do not fit"),
        ("theta_inner_factor*_lower", lambda a: -a, "'theta_inner_factor.*' is not a Cholesky factor"),
    ],
)
def test_forged_parts(model, always, tmp_path, name, change, message):
    path = tmp_path / "m.neuralsurv"
    model.save(path)
    header, tensors = read(path)
    begin, _, end = name.partition("*")
    real = next(key for key in tensors if key.startswith(begin) and key.endswith(end))
    write(path, header, {**tensors, real: change(tensors[real])})
    with pytest.raises(StorageError, match=message):
        neuralsurv.load(path)


def test_parts_that_would_fill_the_memory(model, always, monkeypatch):
    packed = posterior_parts(model.posterior_)[1]
    monkeypatch.setattr("neuralsurv.memory._NEGLIGIBLE", 0.0)
    monkeypatch.setenv("NEURALSURV_MEMORY_GIB", "0.000001")
    with pytest.raises(NotEnoughMemoryError, match="opening this model file needs about"):
        unpack(packed, model.posterior_.network)
