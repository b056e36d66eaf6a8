"""Model files of models with a network of the user's: the numbers come back, the code is given again."""

import copy
import json
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from torch import Tensor, nn

import neuralsurv
from estimator.test_own_network import ROWS, TIMES, outcome, own_model
from modules import CASES, Case, Perceptron, Residual
from neuralsurv import NeuralSurv, OwnNetwork
from neuralsurv.errors import StorageError
from neuralsurv.files.format import read, write

FEW = 8


def few(X: Any) -> Any:
    if isinstance(X, dict):
        return {name: part[:FEW] for name, part in X.items()}
    return tuple(part[:FEW] for part in X) if isinstance(X, tuple) else X[:FEW]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_saved_model_predicts_the_same_with_a_module_of_other_weights(case, tmp_path):
    X = case.inputs(ROWS)
    model = own_model(case, draws=20).fit(X, outcome())
    model.save(tmp_path / "model")
    given = case.make(seed=9)
    before = [p.clone() for p in given.parameters()]
    again = neuralsurv.load(tmp_path / "model", network=given)
    expected = model.predict_survival(few(X), TIMES)
    assert np.array_equal(again.predict_survival(few(X), TIMES).draws, expected.draws)
    assert again.network.module is given
    assert all(torch.equal(a, b) for a, b in zip(before, given.parameters(), strict=True))
    assert again.diagnostics_ == model.diagnostics_
    assert again.encoding_.layout == model.encoding_.layout


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> tuple[NeuralSurv, str]:
    path = str(tmp_path_factory.mktemp("models") / "model")
    model = own_model(CASES[1], bayesian=["head", "block"], draws=5).fit(CASES[1].inputs(ROWS), outcome())
    model.save(path)
    return model, path


def test_the_file_holds_no_code_and_the_parameters_come_back(saved):
    _, path = saved
    with safe_open(path, "np") as file:
        header = json.loads(file.metadata()["neuralsurv"])
    assert header["parameters"]["network"] is None
    assert header["network"]["inner"]["module"] == "Residual"
    again = neuralsurv.load(path, network=CASES[1].make())
    assert again.posterior_.network.inner.names[0] == "block.weight"
    assert again.posterior_.network.inner.trained[0] == "first.weight"


class Deeper(Residual):
    def __init__(self) -> None:
        super().__init__()
        self.more = nn.Linear(4, 4)


class Wider(Residual):
    def __init__(self) -> None:
        super().__init__()
        self.block = nn.Linear(4, 5)


class OtherCode(Residual):
    def forward(self, t: Tensor, x: Tensor) -> Tensor:
        return 2 * super().forward(t, x)


class Broken(Residual):
    def forward(self, t: Tensor, x: Tensor) -> Tensor:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("network", "words"),
    [
        (
            None,
            r"has a network of your own, a Residual, and a file holds no code; .*load\(path, network=Residual\(…\)\)",
        ),
        ("Residual", "network is a str; give the Residual that the model was fitted with"),
        (Deeper(), "only the network that was given has 'more.weight'"),
        (nn.Linear(2, 2), "the networks differ: only the file has 'first.weight'"),
        (Wider(), r"'block.weight' has shape \(4, 4\) in the file and \(5, 4\) in the network"),
        (OtherCode(), "has the weights of the one in the file, but computes other values: its code differs"),
        (Broken(), "but computes other values"),
    ],
)
def test_another_network_is_refused(saved, network, words):
    with pytest.raises(StorageError, match=words):
        neuralsurv.load(saved[1], network=network)


def test_a_device_that_is_not_there(saved):
    with pytest.raises(StorageError, match="device='gpu' is not known to torch"):
        neuralsurv.load(saved[1], network=OwnNetwork(CASES[1].make(), device="gpu"))


@pytest.mark.parametrize("bare", [True, False])
def test_the_settings_of_the_fit_come_back_and_the_device_is_the_one_given(saved, bare):
    module = CASES[1].make()
    given = module if bare else OwnNetwork(module, device="cpu:0", epochs=7, learning_rate=1.0)
    found = neuralsurv.load(saved[1], network=given).get_params()
    assert {name: found[f"network__{name}"] for name in ("bayesian", "epochs", "learning_rate")} == {
        "bayesian": ["head", "block"],
        "epochs": 2,
        "learning_rate": 2e-3,
    }
    assert found["network__device"] == ("cpu" if bare else "cpu:0")
    assert found["network__module"] is module
    # What was given stays as it was.
    assert bare or (given.epochs, given.bayesian) == (7, "all")


def test_a_bare_module_with_the_usual_settings_stays_one(saved, tmp_path):
    header, tensors = read(saved[1])
    header.pop("format")
    for settings in (None, {"bayesian": "all", "epochs": 50, "learning_rate": 2e-3}):
        write(tmp_path / "usual", {**header, "own_network": settings}, tensors)
        module = CASES[1].make()
        assert neuralsurv.load(tmp_path / "usual", network=module).network is module


def test_names_of_parts_in_a_tuple_and_numbers_of_numpy_are_saved(saved, tmp_path):
    model, _ = saved
    network = OwnNetwork(CASES[1].make(), bayesian=("head",), epochs=np.int64(3), learning_rate=np.float32(0.5))
    changed = copy.copy(model).set_params(network=network)
    changed.save(tmp_path / "model")
    again = neuralsurv.load(tmp_path / "model", network=CASES[1].make()).network
    assert (again.bayesian, again.epochs, again.learning_rate) == (["head"], 3, 0.5)


def test_a_network_for_a_model_that_has_the_built_in_one(tmp_path):
    model = NeuralSurv(hidden=(2,), average=False, quadrature_points=4, draws=5, random_state=0, verbose=False)
    model.fit(CASES[1].inputs(ROWS), outcome()).save(tmp_path / "model")
    with pytest.raises(StorageError, match="the model has the built-in network; open it without network="):
        neuralsurv.load(tmp_path / "model", network=Perceptron(3, (2,)))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda h, t: t.pop("module_0"), "'first.weight' of the network is missing"),
        (lambda h, t: h["network"]["inner"].update(bayesian=["elsewhere"]), "'elsewhere' is no weight of the network"),
        (lambda h, t: h["network"]["inner"].update(bayesian=[]), "'bayesian' is no weight of the network"),
        (lambda h, t: h["network"]["inner"].update(differentiation="guess"), "differentiation 'guess' is not known"),
        (lambda h, t: h.update(container="box"), "the container of X is not known"),
        (lambda h, t: h.update(container="dict"), "the container of X is not known"),
        (lambda h, t: h["columns"][0].update(shape=[-1]), "the shape of a column is out of range"),
        (lambda h, t: h["columns"][0].update(shape=[1] * 100), "the shape of a column is out of range"),
        (lambda h, t: h["columns"][0].update(shape=[10**8]), "the shape of a column is out of range"),
        (lambda h, t: h["own_network"].update(epochs=-1), "'epochs' is out of range"),
        (lambda h, t: h["own_network"].update(learning_rate="fast"), "'learning_rate' is not a number"),
        (lambda h, t: h["own_network"].update(bayesian=[1]), "'bayesian'.* is not text"),
        (lambda h, t: h["columns"][0].update(kind="thing"), "neither number nor category nor array"),
    ],
)
def test_damage_is_seen(saved, tmp_path, change, words):
    header, tensors = read(saved[1])
    change(header, tensors)
    header.pop("format")
    write(tmp_path / "damaged", header, tensors)
    with pytest.raises(StorageError, match=words):
        neuralsurv.load(tmp_path / "damaged", network=CASES[1].make())


class Masked(Residual):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mask", torch.full((1,), -torch.inf))


def test_a_buffer_that_is_not_finite_cannot_be_saved(tmp_path):
    case = Case("masked", Masked)
    model = own_model(case, draws=5).fit(case.inputs(ROWS), outcome())
    with pytest.raises(StorageError, match="'mask' of the network holds values that are NaN or infinite"):
        model.save(tmp_path / "model")


class Picky(Residual):
    def forward(self, t: Tensor, x: Tensor) -> Tensor:
        if bool((x.abs() < 1e-12).any()) or len(x) == 3:
            raise ValueError("only real people")
        return super().forward(t, x)


def test_a_module_that_cannot_take_made_up_inputs_is_saved_without_that_check(tmp_path):
    case = Case("picky", Picky)
    model = own_model(case, draws=5).fit(case.inputs(ROWS), outcome())
    model.save(tmp_path / "model")
    assert "module_values" not in read(tmp_path / "model")[1]
    again = neuralsurv.load(tmp_path / "model", network=case.make(3))
    assert np.array_equal(again.predict(case.inputs(2)), model.predict(case.inputs(2)))
