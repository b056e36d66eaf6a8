"""Every parameter does something in every kind of fit, or is refused by name: all of them are tried, in all kinds."""

import inspect
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from modules import Perceptron
from neuralsurv import NeuralSurv, OwnNetwork, PaperNeuralSurv
from neuralsurv.errors import InputError, NeuralSurvWarning
from neuralsurv.estimator import own_network, streaming
from neuralsurv.inference.stream import passes

NAMES = {"time": "years", "event": "died"}
CHAINS = {"chains": 2, "warmup": 3, "thin": 1}
QUICK = {"draws": 8, "verbose": False, "random_state": 0, "quadrature_points": 6}
SMALL = {"hidden": (2,), "activation": "tanh"}


@cache
def network(seed):
    torch.manual_seed(seed)
    return Perceptron(2, (2,))


@cache
def table(rows):
    rng = np.random.default_rng(4)
    x = rng.normal(size=(rows, 2)) * 1.5 + 0.3
    death, leave = rng.exponential(np.exp(-x[:, 0])), rng.exponential(2.0, size=rows)
    return pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "years": np.minimum(death, leave), "died": death <= leave})


@dataclass(frozen=True)
class Kind:
    """A kind of fit: the estimator, parameters that make it quick, how it is fitted, and what it refuses."""

    estimator: type
    given: dict[str, Any]
    fit: Callable[[Any], Any]
    refused: frozenset[str] = frozenset()
    unset: dict[str, Any] = field(default_factory=dict)

    def fitted(self, **given):
        model = self.estimator(**QUICK | self.given | given)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NeuralSurvWarning)
            self.fit(model)
            # Once more, for a start that is warm.
            return self.fit(model) if "warm_start" in given else model


def in_memory(model):
    return model.fit(table(25), **NAMES)


def exactly(model):
    return model.fit_exact(table(25), **NAMES, **CHAINS)


def streamed_by(method):
    return lambda model: model.fit_stream([table(300)], **NAMES, training_passes=1, method=method)


OWN = {"network": OwnNetwork(network(0), epochs=2)}
PAPER = {**SMALL, "quadrature": "gauss-legendre", "mode_tolerance": 1e-2}
BUILT_IN = frozenset({"hidden", "activation", "neighbourhoods"})
PLACED = frozenset({"neighbourhoods"})
IN_MEMORY = frozenset({"network", "average", "neighbourhoods"})
KINDS = {
    "default": Kind(NeuralSurv, {}, in_memory),
    "default, exact draws": Kind(NeuralSurv, {}, exactly),
    "random network": Kind(NeuralSurv, SMALL, in_memory, PLACED, unset=dict.fromkeys(SMALL)),
    "random network, exact draws": Kind(NeuralSurv, SMALL, exactly, PLACED, unset=dict.fromkeys(SMALL)),
    "own network": Kind(NeuralSurv, OWN, in_memory, BUILT_IN),
    "own network, exact draws": Kind(NeuralSurv, OWN, exactly, BUILT_IN),
    "paper": Kind(PaperNeuralSurv, PAPER, in_memory),
    "paper, exact draws": Kind(PaperNeuralSurv, PAPER, exactly),
    "stream, sweeps": Kind(NeuralSurv, SMALL, streamed_by("exact"), IN_MEMORY),
    "stream, steps": Kind(NeuralSurv, SMALL, streamed_by("mini-batch"), IN_MEMORY | {"tolerance", "max_sweeps"}),
}
OTHER = {
    "hidden": (3,),
    "activation": "relu",
    "rho": 1.3,
    "phi_prior": (2.0, 1.5),
    "quadrature": "trapezoid",
    "quadrature_points": 9,
    "normaliser": "monte-carlo",
    "mode": "em",
    "starts": 4,
    "mode_tolerance": 1e-9,
    "spread": "prior",
    "tolerance": 1e-10,
    "max_sweeps": 1,
    "accelerate": False,
    "solver": "dual",
    "headroom": 50.0,
    "neighbourhoods": 3,
    "average": False,
    "network": network(1),
    "standardise": False,
    "draws": 9,
    "warm_start": True,
    "verbose": True,
    "random_state": 1,
}
CASES = [(kind, name) for kind, this in KINDS.items() for name in inspect.signature(this.estimator).parameters]


def recorded(model):
    """Return all that a fit leaves behind, as text."""
    draws = model.predict_survival(table(25), [0.1, 0.5, 1.5]).draws
    seen = {"draws": draws, "elbo": model.elbo_, "star": model.posterior_.theta_star.numpy(), **asdict(model.encoding_)}
    return repr({name: np.asarray(value).tolist() for name, value in seen.items()}) + repr(model.diagnostics_)


@cache
def usual(kind):
    return recorded(KINDS[kind].fitted())


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_a_parameter_does_something_or_is_refused(kind, name, monkeypatch, capsys):
    this, given = KINDS[kind], {name: OTHER[name]}
    if name in this.refused:
        with pytest.raises(InputError, match=rf"^{name}="):
            this.fitted(**given)
        return
    if name == "network":
        given |= this.unset
    before = usual(kind)
    capsys.readouterr()
    after = recorded(this.fitted(**given).set_params(verbose=False))
    if name == "verbose":
        assert capsys.readouterr().err
    else:
        assert after != before


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_fit_is_recorded_alike(kind):
    # Without which the test above could not fail.
    assert recorded(KINDS[kind].fitted()) == usual(kind)


@pytest.mark.parametrize("name", ["module", "bayesian", "device", "epochs", "learning_rate"])
@pytest.mark.parametrize("kind", ["own network", "own network, exact draws"])
def test_a_setting_of_an_own_network_does_something(kind, name, monkeypatch):
    seen = []
    value = {"module": network(1), "bayesian": ["layers.0"], "device": "cuda", "epochs": 1, "learning_rate": 0.3}[name]
    # There need not be another device here: it must reach what puts the network there.
    wrap = own_network.wrap_module

    def spy(*args, device, **others):
        seen.append(device)
        return wrap(*args, device="cpu", **others)

    monkeypatch.setattr(own_network, "wrap_module", spy)
    other = OwnNetwork(**{"module": network(0), "epochs": 2} | {name: value})
    after = recorded(KINDS[kind].fitted(network=other))
    if name == "device":
        assert seen == ["cuda"]
    else:
        assert after != usual(kind)


@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.parametrize("kind", ["default, exact draws", "own network, exact draws", "paper, exact draws"])
def test_an_argument_of_fit_exact_does_something(kind, name):
    this = KINDS[kind]
    model = this.estimator(**QUICK | this.given)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NeuralSurvWarning)
        model.fit_exact(table(25), **NAMES, **CHAINS | {name: CHAINS[name] + 1})
    assert recorded(model) != usual(kind)


ARGUMENTS = {
    "time": "entered",
    "event": "flag",
    "entry": "entered",
    "sample_weight": "w",
    "features": ["a"],
    "method": None,
    "training_passes": 2,
    "passes": 1,
    "batch_size": 256,
    "training_batch_size": 512,
    "directions": 1,
    "modes": 2,
    "checkpoint": "state",
    "checkpoint_seconds": 0,
    "scratch": "elsewhere",
    "shards": "own",
}


def test_every_argument_of_fit_stream_is_tried():
    assert tuple(ARGUMENTS) == tuple(inspect.signature(NeuralSurv.fit_stream).parameters)[2:]


def streamed(by, **given):
    rows = table(600)
    rows = rows.assign(entered=rows.years / 2, flag=rows.died.shift(1, fill_value=True), w=1.0 + (rows.a > 0))
    arguments = {**NAMES, "method": by, "training_passes": 1, "features": ["a", "b"]} | given
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NeuralSurvWarning)
        return NeuralSurv(**QUICK | SMALL).fit_stream([rows], **arguments)


@cache
def usual_stream(method):
    return recorded(streamed(method))


@pytest.mark.parametrize("name", ARGUMENTS)
@pytest.mark.parametrize("method", ["exact", "mini-batch"])
def test_an_argument_of_fit_stream_does_something_or_is_refused(method, name, monkeypatch, tmp_path):
    value, seen = ARGUMENTS[name], []
    refused = method == "exact" and name in ("passes", "batch_size")
    if refused or name == "checkpoint_seconds":
        with pytest.raises(InputError, match=rf"^{name}="):
            streamed(method, **{name: value})
    if refused:
        return
    if name == "method":
        value = "exact" if method == "mini-batch" else "mini-batch"
    if name in ("checkpoint", "checkpoint_seconds"):
        monkeypatch.setattr(streaming, "Checkpoint", watched(streaming.Checkpoint, seen))
        every = {"checkpoint_seconds": value} if name == "checkpoint_seconds" else {}
        streamed(method, checkpoint=tmp_path / "state", **every)
        assert (tmp_path / "state").exists()
        assert seen == [0 if every else 60]
    elif name == "scratch":
        (tmp_path / value).mkdir()
        monkeypatch.setattr(passes, "Packer", watched(passes.Packer, seen))
        streamed(method, scratch=tmp_path / value)
        assert seen == [str(tmp_path / value)]
    elif name == "shards":
        # It matters with several processes alone.
        monkeypatch.setattr(streaming, "RowStream", watched(streaming.RowStream, seen))
        streamed(method, shards=value)
        assert seen == [True]
    else:
        assert recorded(streamed(method, **{name: value})) != usual_stream(method)


def watched(made, seen):
    """Return what makes the same, and notes the argument in question."""

    def make(*args, **given):
        seen.append(given["every"] if "every" in given else args[4] if len(args) == 6 else args[0])
        return made(*args, **given)

    return make


@pytest.mark.parametrize(
    ("parameters", "arguments", "message"),
    [
        (
            {"network": torch.nn.Identity()},
            {},
            r"network=Identity\(…\) is for fit, which holds all rows in memory, and ",
        ),
        ({"average": False}, {}, r"average=False is for fit, .* does nothing in fit_stream; leave it out\."),
        ({}, {"passes": 1}, r"passes=1 is for steps on samples of the rows, .* set method='mini-batch'\."),
        (
            {"tolerance": 0.1},
            {"method": "mini-batch"},
            r"tolerance=0.1 is for sweeps over all rows \(method='exact'\), .*; leave it out\.",
        ),
        ({}, {"batch_size": 300}, r"batch_size=300 must be a multiple of 256\."),
        ({}, {"training_batch_size": 1}, r"training_batch_size=1 must be a multiple of 256\."),
        (
            {},
            {"training_passes": 0, "training_batch_size": 256},
            "training_batch_size=256 does nothing with training_p",
        ),
        (
            {},
            {"checkpoint_seconds": 1},
            r"checkpoint_seconds=1 does nothing without checkpoint=…; name a file, or leave",
        ),
    ],
)
def test_what_a_streamed_fit_says(parameters, arguments, message):
    with pytest.raises(InputError, match="^" + message):
        NeuralSurv(**parameters, verbose=False).fit_stream([table(25)], **NAMES, **arguments)


def test_an_array_is_compared_with_the_usual_value():
    with pytest.raises(InputError, match=r"^hidden=array\(\[2\]\) does nothing for a network of your own"):
        NeuralSurv(network=network(0), hidden=np.array([2])).fit(table(25), **NAMES)


@pytest.mark.parametrize("estimator", [NeuralSurv, PaperNeuralSurv])
def test_no_constructor_has_more_parameters_than_it_can_explain(estimator):
    names = set(inspect.signature(estimator).parameters)
    documented = {
        name.strip()
        for line in (estimator.__doc__ or "").partition("Attributes")[0].splitlines()
        if " : " in line
        for name in line.split(" : ")[0].split(",")
    }
    assert names <= documented
    assert len(names) <= 20
