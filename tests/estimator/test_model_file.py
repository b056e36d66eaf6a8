"""Fitted models in files: they come back the same, and a file that is not one of ours does nothing at all."""

import contextlib
import copy
import json
import os
import pickle
import struct
import sys
import warnings
from dataclasses import fields
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import neuralsurv
from neuralsurv import NeuralSurv, PaperNeuralSurv
from neuralsurv.data.features import Encoding
from neuralsurv.errors import NeuralSurvWarning, StorageError
from neuralsurv.files.format import read, write
from neuralsurv.model.hazard import ClosedForm, Constant, MonteCarlo

RNG = np.random.default_rng(2)
ROWS = 30
X = pd.DataFrame(
    {
        "site": RNG.choice(["oslo", "rome", "bonn"], ROWS),
        "age": np.where(RNG.uniform(size=ROWS) < 0.2, np.nan, RNG.normal(60, 10, ROWS)),
        "smoker": RNG.uniform(size=ROWS) < 0.5,
    }
)
Y = (RNG.exponential(10, ROWS), RNG.uniform(size=ROWS) < 0.6)
TIMES = [0.0, 1.0, 5.0, 12.0]


def small_model(**parameters):
    defaults = {
        "hidden": (2,),
        "quadrature_points": 20,
        "starts": 1,
        "draws": 20,
        "random_state": 0,
        "verbose": False,
    }
    return PaperNeuralSurv(**{**defaults, **parameters})


def fitted(model, *args, **kwargs):
    with warnings.catch_warnings():
        # Twenty points are few, and a fit may say so; what it is worth does not matter here.
        warnings.simplefilter("ignore", NeuralSurvWarning)
        return model.fit(*args, **kwargs)


@pytest.fixture(scope="module")
def model():
    return fitted(small_model(), X, Y)


@pytest.fixture(scope="module")
def good(model, tmp_path_factory):
    """The bytes of a good file."""
    path = tmp_path_factory.mktemp("good") / "model.neuralsurv"
    model.save(path)
    return path.read_bytes()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.neuralsurv"


def predictions(model, rows):
    return [
        model.predict(rows),
        model.predict_survival(rows, TIMES).draws,
        model.predict_hazard(rows, TIMES[1:]).draws,
        model.predict_event_time(rows).draws,
        model.predict_survival_function(rows, return_array=True),
    ]


def assert_same_model(one, other, rows):
    for found, wanted in zip(predictions(other, rows), predictions(one, rows), strict=True):
        np.testing.assert_array_equal(found, wanted)
    assert torch.equal(one.posterior_.theta_star, other.posterior_.theta_star)
    left, right = one.posterior_.theta, other.posterior_.theta
    assert type(left) is type(right)
    for field in fields(left):
        assert torch.equal(getattr(left, field.name), getattr(right, field.name)), field.name
    assert one.posterior_.phi == other.posterior_.phi
    assert one.posterior_.rho == other.posterior_.rho
    assert type(one.posterior_.normaliser) is type(other.posterior_.normaliser)
    assert one.posterior_.network == other.posterior_.network
    for name in ("phi_prior_", "time_scale_", "training_", "columns_", "diagnostics_", "n_features_in_"):
        assert getattr(one, name) == getattr(other, name), name
    for name in ("elbo_", "unique_times_"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    assert one.encoding_.columns == other.encoding_.columns
    assert one.encoding_.standardise == other.encoding_.standardise
    assert str(one.summary()) == str(other.summary())
    assert vars(one).keys() == vars(other).keys()


def round_trip(model, path):
    model.save(path)
    return neuralsurv.load(path)


class TestRoundTrip:
    def test_frame(self, model, path):
        again = round_trip(model, path)
        assert_same_model(model, again, X)
        assert again.get_params() == model.get_params()
        assert again.feature_names_in_.tolist() == ["site", "age", "smoker"]

    def test_a_loaded_model_makes_the_same_file(self, model, path, good):
        round_trip(model, path).save(path)
        assert path.read_bytes() == good

    def test_matrix(self, path):
        matrix = np.random.default_rng(3).normal(size=(ROWS, 2))
        model = fitted(small_model(), matrix, Y)
        again = round_trip(model, path)
        assert_same_model(model, again, matrix)
        assert not hasattr(again, "feature_names_in_")

    def test_columns_named_by_numbers(self, path):
        frame = pd.DataFrame(np.random.default_rng(3).normal(size=(ROWS, 2)))
        model = fitted(small_model(), frame, Y)
        assert_same_model(model, round_trip(model, path), frame)

    @pytest.mark.parametrize(
        ("name", "kind"), [("half", Constant), ("closed-form", ClosedForm), ("monte-carlo", MonteCarlo)]
    )
    def test_normalisers(self, path, name, kind):
        model = fitted(small_model(normaliser=name), X, Y)
        again = round_trip(model, path)
        assert_same_model(model, again, X)
        assert type(again.posterior_.normaliser) is kind
        assert again.get_params() == model.get_params()

    def test_every_parameter(self, path):
        parameters = {
            **{"hidden": (3, 2), "activation": "tanh", "rho": 1.5, "phi_prior": (2.0, 0.5), "max_sweeps": 400},
            **{"quadrature": "gauss-legendre", "quadrature_points": 5, "mode": "em", "spread": "prior"},
            **{
                "tolerance": 1e-2,
                "mode_tolerance": 1e-5,
                "accelerate": False,
                "solver": "low-rank",
                "standardise": False,
                "draws": np.int64(7),
                "warm_start": True,
                "starts": np.int64(2),
            },
        }
        frame = X.assign(age=X["age"] / 60)
        model = fitted(small_model(**parameters), frame, Y)
        again = round_trip(model, path)
        assert_same_model(model, again, frame)
        assert again.get_params() == model.get_params()
        assert type(again.draws) is int
        assert again.hidden == (3, 2)
        assert {*parameters, "normaliser", "verbose", "random_state"} == set(model.get_params())

    @pytest.mark.parametrize("solver", ["primal", "dual", "low-rank"])
    def test_every_solver(self, path, solver):
        model = fitted(small_model(solver=solver), X, Y)
        assert model.diagnostics_.solver == solver
        again = round_trip(model, path)
        assert_same_model(model, again, X)
        assert again.diagnostics_ == model.diagnostics_

    def test_widths_as_an_array(self, path):
        model = fitted(small_model(hidden=np.array([2])), X, Y)
        again = round_trip(model, path)
        assert again.hidden == (2,)
        assert_same_model(model, again, X)

    @pytest.mark.parametrize("state", [None, 5, np.int32(5), np.random.RandomState(5)], ids=lambda s: type(s).__name__)
    def test_random_states(self, path, state):
        model = fitted(small_model(random_state=state), X, Y)
        again = round_trip(model, path)
        assert_same_model(model, again, X)
        # A generator has a state, not a value: the loaded model has none.
        assert again.random_state == (None if isinstance(state, np.random.RandomState) else state)
        assert model.random_state is state

    def test_roles_of_columns(self, path):
        table = X.assign(days=Y[0], died=Y[1], start=0.0)
        model = fitted(small_model(), table, time="days", event="died", entry="start")
        assert model.columns_ == {"time": "days", "event": "died", "entry": "start"}
        assert_same_model(model, round_trip(model, path), table)

    def test_a_loaded_model_can_be_fitted_further(self, model, path):
        again = round_trip(model, path).set_params(warm_start=True)
        assert fitted(again, X, Y).diagnostics_.converged

    def test_names_from_all_over(self, path):
        # Half a pair of surrogates, which the text columns of pandas 3 do not take.
        frame = X.set_axis(pd.Index(["größe 性 \ud800", "", "smoker"], dtype=object), axis=1)
        model = fitted(small_model(), frame, Y)
        assert_same_model(model, round_trip(model, path), frame)

    def test_training_ranges(self, model, path):
        _, age, _ = round_trip(model, path).encoding_.columns
        assert (age.low, age.high, age.whole) == (X["age"].min(), X["age"].max(), False)

    def test_a_file_of_before_ranges_were_kept(self):
        old = neuralsurv.load(Path(__file__).parents[1] / "fixtures" / "before_ranges.neuralsurv")
        assert {(c.low, c.high, c.whole) for c in old.encoding_.columns} == {(None, None, False)}
        rows = pd.DataFrame({"age": [50.0, 70.0], "dose": [0.1, np.nan], "stage": ["II", "III"]})
        found = old.predict_survival(rows, [0.5, 1.0]).mean.to_numpy()
        # What it said when it was written; then, the mean stood in for a missing value in every draw.
        np.testing.assert_allclose(found[0], [0.9246791631118685, 0.8540001835776196], rtol=1e-9)
        np.testing.assert_allclose(found[1], [0.4336517585778526, 0.19025993476451944], atol=5e-4)


class TestSaving:
    def test_not_fitted(self, path):
        from sklearn.exceptions import NotFittedError

        with pytest.raises(NotFittedError, match="not fitted"):
            small_model().save(path)
        assert os.listdir(path.parent) == []

    def refused(self, model, path, message):
        with pytest.raises(StorageError, match=message):
            model.save(path)
        assert os.listdir(path.parent) == []

    @pytest.mark.parametrize("value", [{"a": 1}, object(), 1j, b"x", ((1, 2), (3,)), np.eye(2), (1, object())])
    def test_parameter_that_is_not_plain(self, model, path, value):
        odd = copy.copy(model).set_params(hidden=value)
        self.refused(odd, path, r"a parameter of type \w+ cannot be saved; use plain numbers and text")

    def test_parameter_that_is_not_a_number(self, model, path):
        odd = copy.copy(model).set_params(rho=float("nan"))
        self.refused(odd, path, r"the model holds a value that cannot be saved: Out of range float values")


class TestDamage:
    """Accidents: whatever happens to the bytes is found out."""

    def assert_refused(self, path, data):
        path.write_bytes(data)
        with pytest.raises(StorageError) as caught:
            neuralsurv.load(path)
        assert "model" in str(caught.value)

    def test_the_file_is_good_to_begin_with(self, path, good, model):
        path.write_bytes(good)
        assert_same_model(model, neuralsurv.load(path), X)

    def test_cut_off(self, path, good):
        for size in [*range(0, len(good), 97), len(good) - 1]:
            self.assert_refused(path, good[:size])

    def test_something_at_the_end(self, path, good):
        for more in (b"\0", b"x" * 8, good):
            self.assert_refused(path, good + more)

    def test_flipped_bits(self, path, good):
        rng = np.random.default_rng(9)
        for where in rng.choice(8 * len(good), 300, replace=False):
            data = bytearray(good)
            data[where // 8] ^= 1 << (where % 8)
            self.assert_refused(path, bytes(data))

    def test_parts_overwritten(self, path, good):
        rng = np.random.default_rng(10)
        for filler in (b"\0", b"\xff", b"[", b'"', b" "):
            for start in rng.integers(0, len(good) - 64, 8):
                data = good[:start] + filler * 64 + good[start + 64 :]
                if data != good:
                    self.assert_refused(path, data)

    @settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(data=st.data())
    def test_any_change(self, path, good, data):
        if data.draw(st.booleans(), label="from scratch"):
            changed = data.draw(st.binary(max_size=300), label="bytes")
        else:
            start = data.draw(st.integers(0, len(good)), label="start")
            stop = data.draw(st.integers(start, min(len(good), start + 200)), label="stop")
            changed = good[:start] + data.draw(st.binary(max_size=200), label="bytes") + good[stop:]
        if changed == good:
            return
        self.assert_refused(path, changed)


class Derived(PaperNeuralSurv):
    """A class of the user's that adds a method."""

    def risk_groups(self, X):
        return self.predict(X) > 1


class WithMore(PaperNeuralSurv):
    """A class of the user's with a parameter of its own."""

    def __init__(self, flavour="plain"):
        super().__init__()
        self.flavour = flavour


class TestSubclasses:
    def test_comes_back_as_what_it_is_without_its_code(self, path):
        model = fitted(Derived(**small_model().get_params()), X, Y)
        message = r"a file holds no code: load\(\) will give a PaperNeuralSurv, without what Derived adds or changes"
        with pytest.warns(NeuralSurvWarning, match=message) as caught:
            model.save(path)
        assert caught[0].filename == __file__
        again = neuralsurv.load(path)
        assert type(again) is PaperNeuralSurv
        np.testing.assert_array_equal(again.predict(X), model.predict(X))
        assert again.get_params() == model.get_params()

    def test_parameters_of_its_own(self, path, model):
        model = copy.deepcopy(model)
        model.__class__, model.flavour = WithMore, "odd"
        with pytest.raises(StorageError, match=r"a WithMore cannot be saved: .* no place for its parameter 'flavour'"):
            model.save(path)
        assert not path.exists()


def test_more_draws_than_a_file_may_ask_for(model, path):
    many = copy.deepcopy(model).set_params(draws=10**6 + 1)
    with pytest.raises(StorageError, match=r"draws=1000001 cannot be saved; use set_params\(draws=…\) with at most"):
        many.save(path)


def changed(header, where, value):
    """The header with one value replaced, or left out if `value` is Ellipsis."""
    result = copy.deepcopy(header)
    *parents, last = where
    table = result
    for key in parents:
        table = table[key]
    if value is ...:
        del table[last]
    else:
        table[last] = value
    return result


class TestForgery:
    """Files whose digest is right and whose content is not: somebody made them on purpose."""

    @pytest.fixture
    def parts(self, path, good):
        path.write_bytes(good)
        return read(path)

    def assert_refused(self, path, header, tensors, message):
        write(path, header, tensors)
        with pytest.raises(StorageError, match=message):
            neuralsurv.load(path)

    def test_unchanged_parts_are_a_model(self, path, parts, model):
        write(path, *parts)
        assert_same_model(model, neuralsurv.load(path), X)

    @pytest.mark.parametrize(
        ("where", "value", "message"),
        [
            (["class"], "os.system", r"the model file holds a 'os\.system', which this version does not know"),
            (
                ["class"],
                "neuralsurv.estimator.neuralsurv.NeuralSurv",
                r"holds a 'neuralsurv\.estimator\.neuralsurv\.NeuralSurv', which this",
            ),
            (["class"], ["NeuralSurv"], r"header 'class' is not text"),
            (["parameters"], [], r"header 'parameters' is not a table"),
            (["parameters", "command"], "rm", r"the model file is damaged: 'command' is not a parameter"),
            (["parameters", "__class__"], "x", r"'__class__' is not a parameter"),
            (["parameters", "posterior_"], 1, r"'posterior_' is not a parameter"),
            (["parameters", "hidden"], {"a": 1}, r"parameter 'hidden' is not a plain value"),
            (["parameters", "hidden"], [[2]], r"parameter 'hidden' is not a plain value"),
            (["parameters", "draws"], 10**6 + 1, r"parameter 'draws' is out of range"),
            (["parameters", "draws"], 10**12, r"parameter 'draws' is out of range"),
            (["parameters", "draws"], 0, r"parameter 'draws' is out of range"),
            (["parameters", "draws"], "20", r"parameter 'draws' is out of range"),
            (["parameters", "draws"], True, r"parameter 'draws' is out of range"),
            (["parameters", "draws"], None, r"parameter 'draws' is out of range"),
            (["parameters", "draws"], ..., r"parameter 'draws' is out of range"),
            (["network"], "MLP", r"header 'network' is not a table"),
            (["network", "hidden"], [10**9], r"'hidden' is out of range"),
            (["network", "hidden"], [0], r"'hidden' is out of range"),
            (["network", "hidden"], [-2], r"'hidden' is out of range"),
            (["network", "hidden"], ["2"], r"'hidden' is out of range"),
            (["network", "hidden"], [True], r"'hidden' is out of range"),
            (["network", "hidden"], [1] * 1001, r"'hidden' is out of range"),
            (["network", "hidden"], 2, r"header 'network' 'hidden' is not a list"),
            (["network", "hidden"], [10**7] * 1000, r"'theta_star' is missing or has the wrong shape"),
            (["network", "hidden"], [3], r"'theta_star' is missing or has the wrong shape"),
            (["network", "covariates"], 10**12, r"header 'network' 'covariates' is out of range"),
            (["network", "covariates"], 6, r"the network does not fit the covariates"),
            (["network", "activation"], "os.system", r"is damaged: activation 'os\.system' is not known"),
            (["normaliser"], "quarter", r"'prior_precision' is missing or has the wrong shape"),
            (["normaliser"], "closed-form", r"'prior_precision' is missing or has the wrong shape"),
            (["phi", "shape"], 0, r"header 'phi' 'shape' is not positive"),
            (["phi", "rate"], "1", r"header 'phi' 'rate' is not a number"),
            (["phi", "rate"], 10**400, r"header 'phi' 'rate' is too large"),
            (["phi_prior", "shape"], -1.0, r"header 'phi_prior' 'shape' is not positive"),
            (["rho"], 0.0, r"header 'rho' is not positive"),
            (["time_scale"], None, r"header 'time_scale' is not a number"),
            (["draw_seed"], -1, r"header 'draw_seed' is out of range"),
            (["draw_seed"], 2**64, r"header 'draw_seed' is out of range"),
            (["draw_seed"], 1.5, r"header 'draw_seed' is not a whole number"),
            (["columns"], {}, r"header 'columns' is not a list"),
            (["columns"], [], r"'scale' is missing or has the wrong shape"),
            (["columns"], [3], r"column is not a table"),
            (["columns", 0, "kind"], "code", r"a column is neither number nor category"),
            (["columns", 0, "name"], 3, r"column 'name' is not text"),
            (["columns", 0, "levels"], "abc", r"column 'levels' is not a list"),
            (["columns", 0, "levels"], ["a", 2], r"column 'levels' '1' is not text"),
            (["columns", 0, "levels"], ["a", "b", "c", "d"], r"'scale' is missing or has the wrong shape"),
            (["columns", 0, "levels"], ["a", "b", "b"], r"levels of column 'site' are too few, or one is repeated"),
            (["columns", 0, "levels"], ["a"], r"levels of column 'site' are too few, or one is repeated"),
            (["columns", 1, "name"], "site", r"a column or a part of X is repeated"),
            (["columns", 1, "name"], "site=oslo", r"would both be encoded as 'site=oslo'; rename one"),
            (["parts"], ["", ""], r"a column or a part of X is repeated"),
            (["columns", 0, "has_missing"], 1, r"column 'has_missing' is not true or false"),
            (["columns", 1, "low"], ..., r"column 'low' is not a number"),
            (["columns", 1, "high"], None, r"column 'high' is not a number"),
            (["columns", 1, "low"], 10**6, r"the training range of a column is empty"),
            (["columns", 1, "whole"], 0, r"column 'whole' is not true or false"),
            (["standardise"], 1, r"header 'standardise' is not true or false"),
            (["named"], "yes", r"header 'named' is not true or false"),
            (["roles"], [], r"header 'roles' is not a table"),
            (["roles"], {"time": 3}, r"header 'roles' 'time' is not text"),
            (["training", "rows"], 0, r"header 'training' 'rows' is out of range"),
            (["training", "events"], "many", r"header 'training' 'events' is not a whole number"),
            (["diagnostics"], None, r"header 'diagnostics' is not a table"),
            (["diagnostics", "converged"], 1, r"header 'diagnostics' 'converged' is not true or false"),
            (["diagnostics", "sweeps"], 2.5, r"header 'diagnostics' 'sweeps' is not a whole number"),
            (["diagnostics", "mode_objectives"], ["x"], r"'diagnostics' 'mode_objectives' '0' is not a number"),
            (["diagnostics", "mode_objectives"], [10**400], r"'diagnostics' 'mode_objectives' '0' is too large"),
            (["diagnostics", "messages"], [3], r"header 'diagnostics' 'messages' '0' is not text"),
            (["format"], 2, r"has format 2, but this version of neuralsurv reads up to 1"),
        ],
        ids=lambda value: json.dumps(value, default=str)[:40] if not isinstance(value, str) else None,
    )
    def test_header(self, path, parts, where, value, message):
        header, tensors = parts
        self.assert_refused(path, changed(header, where, value), tensors, message)

    def test_missing_keys(self, path, parts):
        header, tensors = parts
        nested = ("network", "phi", "phi_prior", "training", "diagnostics")
        # What older files do not have may be missing.
        newer = {
            "format",
            "container",
            "sampling",
            "importance",
            "trust",
            "epochs",
            "modes",
            "parts",
            "kinds",
            "null_share",
        }
        places = [[key] for key in header if key not in newer]
        places += [[table, key] for table in nested for key in header[table] if key not in newer]
        # Files of before ranges were kept lack them, and the first column is a category, which has none.
        places += [["columns", 0, key] for key in ("name", "kind", "levels", "has_missing")]
        assert len(places) > 35
        for where in places:
            message = rf"the model file is damaged: .*'{where[-1]}' is not "
            self.assert_refused(path, changed(header, where, ...), tensors, message)

    def test_any_value_anywhere(self, path, parts):
        header, tensors = parts
        nested = ("network", "phi", "phi_prior", "training", "diagnostics", "parameters", "roles")
        places = [[key] for key in header] + [[table, key] for table in nested for key in header[table]]
        places += [["columns", k, key] for k in range(3) for key in header["columns"][k]]
        for where in places:
            for value in (None, True, -1, 10**300, 1e308, "os.system", [], [[]], {}, {"a": {}}):
                write(path, changed(header, where, value), tensors)
                try:
                    loaded = neuralsurv.load(path)
                except StorageError:
                    continue
                assert type(loaded) in (NeuralSurv, PaperNeuralSurv)
                str(loaded.summary())

    @pytest.mark.parametrize(
        ("name", "change", "message"),
        [
            ("theta_mean", lambda a: a[:-1], r"'theta_mean' is missing or has the wrong shape"),
            ("theta_mean", lambda a: a[:, None], r"'theta_mean' is missing or has the wrong shape"),
            ("theta_star", lambda a: np.append(a, 0), r"'theta_star' is missing or has the wrong shape"),
            ("theta_factor", lambda a: a[:, :-1], r"'theta_factor' is missing or has the wrong shape"),
            ("theta_factor", lambda a: a.reshape(-1), r"'theta_factor' is missing or has the wrong shape"),
            ("theta_factor", lambda a: a.T, r"'theta_factor' is not a Cholesky factor"),
            ("theta_factor", lambda a: -a, r"'theta_factor' is not a Cholesky factor"),
            ("theta_factor", lambda a: 0 * a, r"'theta_factor' is not a Cholesky factor"),
            ("scale", lambda a: 0 * a, r"'scale' is not positive"),
            ("scale", lambda a: a[1:], r"'scale' is missing or has the wrong shape"),
            ("center", lambda a: a[1:], r"'center' is missing or has the wrong shape"),
            ("unique_times", lambda a: a[::-1], r"'unique_times' are not positive and in order"),
            ("unique_times", lambda a: a - a[0], r"'unique_times' are not positive and in order"),
            ("unique_times", lambda a: a[:0], r"'unique_times' are not positive and in order"),
            ("unique_times", lambda a: a[:, None], r"'unique_times' is missing or has the wrong shape"),
            ("elbo", lambda a: a[:0], r"'elbo' is empty"),
            ("event_quartiles", lambda a: a[:2], r"'event_quartiles' is missing or has the wrong shape"),
            ("event_quartiles", lambda a: -a, r"'event_quartiles' are not positive and in order"),
            ("event_quartiles", lambda a: a[::-1].copy(), r"'event_quartiles' are not positive and in order"),
            ("elbo", lambda a: a[None], r"'elbo' is missing or has the wrong shape"),
        ],
    )
    def test_tensors(self, path, parts, name, change, message):
        header, tensors = parts
        self.assert_refused(path, header, {**tensors, name: change(tensors[name])}, message)

    def test_missing_tensors(self, path, parts):
        header, tensors = parts
        # An older file has no quartiles of the event times.
        for name in tensors.keys() - {"event_quartiles"}:
            left = {key: array for key, array in tensors.items() if key != name}
            self.assert_refused(path, header, left, rf"'{name}' is missing or has the wrong shape")

    def test_no_columns(self, path, parts):
        header, tensors = parts
        none = {**tensors, "scale": np.zeros(0), "center": np.zeros(0)}
        self.assert_refused(path, changed(header, ["columns"], []), none, r"'scale' is not positive")

    def test_normalisers(self, path, parts):
        header, tensors = parts
        size = len(tensors["theta_mean"])
        ones = {**tensors, "prior_precision": np.ones(size)}
        self.assert_refused(
            path,
            changed(header, ["normaliser"], "closed-form"),
            {**tensors, "prior_precision": np.zeros(size)},
            r"'prior_precision' is not positive",
        )
        self.assert_refused(path, changed(header, ["normaliser"], "os"), ones, r"the normaliser 'os' is not known")
        monte_carlo = changed(header, ["normaliser"], "monte-carlo")
        self.assert_refused(path, monte_carlo, ones, r"header 'normaliser_seed' is not a whole number")
        monte_carlo["normaliser_seed"] = 2**65
        self.assert_refused(path, monte_carlo, ones, r"header 'normaliser_seed' is out of range")
        write(path, {**monte_carlo, "normaliser_seed": 2**63}, ones)
        assert np.isfinite(neuralsurv.load(path).predict(X[:1])).all()

    def test_numbers_with_flipped_bits(self, path, parts):
        header, tensors = parts
        rng = np.random.default_rng(11)
        names = sorted(tensors)
        loaded = 0
        for _ in range(100):
            name = names[rng.integers(len(names))]
            bits = tensors[name].copy().view(np.uint64)
            bits.reshape(-1)[rng.integers(bits.size)] ^= np.uint64(1) << np.uint64(rng.integers(64))
            write(path, header, {**tensors, name: bits.view(np.float64)})
            try:
                model = neuralsurv.load(path)
            except StorageError:
                continue
            loaded += 1
            assert model.predict(X).shape == (ROWS,)
        assert 20 < loaded < 100

    def test_pickle_is_not_opened(self, path, tmp_path):
        class Trap:
            def __reduce__(self):
                return (open, (str(tmp_path / "sprung"), "w"))

        path.write_bytes(pickle.dumps(Trap()))
        with pytest.raises(StorageError, match="is not a model file"):
            neuralsurv.load(path)
        assert not (tmp_path / "sprung").exists()

    def test_pickle_within_a_header(self, path, parts, tmp_path):
        header, tensors = parts
        trap = f"cbuiltins\nopen\n(V{tmp_path / 'sprung'}\nVw\ntR."
        for where in (["class"], ["normaliser"], ["network", "activation"], ["parameters", "random_state"]):
            write(path, changed(header, where, trap), tensors)
            if where[0] != "parameters":
                with pytest.raises(StorageError):
                    neuralsurv.load(path)
            else:
                assert neuralsurv.load(path).random_state == trap
        assert not (tmp_path / "sprung").exists()

    @pytest.mark.parametrize("module", ["this", "antigravity", "xmlrpc", "idlelib"])
    def test_no_module_is_imported_by_name(self, path, parts, module):
        header, tensors = parts
        neuralsurv.load(path)
        assert module not in sys.modules
        before = set(sys.modules)
        for where in (["class"], ["normaliser"], ["network", "activation"], ["columns", 0, "kind"], ["roles", "time"]):
            for name in (module, f"{module}.Thing", f"{module}:Thing"):
                write(path, changed(header, where, name), tensors)
                with contextlib.suppress(StorageError):
                    neuralsurv.load(path)
        assert set(sys.modules) == before

    def test_nothing_is_called_by_name(self, path, parts, monkeypatch):
        header, tensors = parts

        def called(*args):
            raise AssertionError("the file called a function")

        monkeypatch.setattr(os, "system", called)
        for where in (["class"], ["normaliser"], ["network", "activation"], ["columns", 0, "kind"]):
            self.assert_refused(path, changed(header, where, "os.system"), tensors, "model file")

    def test_bomb_of_nested_lists(self, path):
        text = json.dumps('{"format": 1, "class": ' + "[" * 100_000)
        outer = f'{{"__metadata__": {{"neuralsurv": {text}}}}}'.encode()
        path.write_bytes(struct.pack("<Q", len(outer)) + outer)
        with pytest.raises(StorageError, match="its header cannot be read"):
            neuralsurv.load(path)


def test_missing_file(path):
    with pytest.raises(StorageError, match=r"there is no file"):
        neuralsurv.load(path)


def test_missing_folder(model, tmp_path):
    with pytest.raises(StorageError, match=r"the folder '.*nowhere' does not exist; make it first"):
        model.save(tmp_path / "nowhere" / "model.neuralsurv")


def test_gaps_are_filled_in_the_same_way(path):
    model = fitted(small_model(standardise=False), X.assign(age=X["age"] / 60), Y)
    again = round_trip(model, path)
    assert isinstance(again.encoding_, Encoding)
    assert again.encoding_.standardise is False
    np.testing.assert_array_equal(again.encoding_.transform(X), model.encoding_.transform(X))
