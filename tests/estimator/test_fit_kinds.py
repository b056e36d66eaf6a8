"""Every parameter does something in every kind of fit, or is refused by name: all of them are tried, in all kinds."""

import inspect
import warnings
from dataclasses import asdict, fields, replace
from functools import cache

import numpy as np
import pandas as pd
import pytest
import torch

from modules import Perceptron
from neuralsurv import NeuralSurv
from neuralsurv.errors import InputError, NeuralSurvWarning
from neuralsurv.estimator import neuralsurv as estimator
from neuralsurv.estimator import stream_methods as streaming
from neuralsurv.estimator.fit_kinds import STREAM_USES, USES, Kind, refuse
from neuralsurv.inference.choices import DEFAULT, PAPER, DefaultChoices, PaperChoices
from neuralsurv.inference.default import fit as additive_fit

PARAMETERS = tuple(inspect.signature(NeuralSurv).parameters)
STREAM_ARGUMENTS = tuple(inspect.signature(NeuralSurv.fit_stream).parameters)[2:]
NAMES = {"time": "years", "event": "died"}
CHAINS = {"inference": "gibbs", "chains": 2, "warmup": 3, "thin": 1}
KINDS = {
    **{
        f"{preset}, {network} network, {inference}": Kind("in memory", preset, network, inference)
        for preset in ("default", "paper")
        for network in ("built-in", "own")
        for inference in ("variational", "importance", "gibbs")
        if not (preset == "default" and inference == "importance")
    },
    **{f"streamed default, {method}": Kind("streamed", "default", method=method) for method in ("exact", "mini-batch")},
}


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


def basis(kind):
    """Return parameters of a fit of this kind that is quick, most of them as they are if nothing is given."""
    given = {"preset": kind.preset, "draws": 8, "verbose": False, "random_state": 0, "quadrature_points": 6}
    if kind.network == "own":
        given["network"] = network(0)
    else:
        given |= {"hidden": (2,), "activation": "tanh"}
    if kind.preset == "paper":
        given |= {"quadrature": "gauss-legendre", "mode_tolerance": 1e-2}
    elif kind.network == "own":
        given["epochs"] = 2
    if kind.inference != "variational":
        given |= CHAINS if kind.inference == "gibbs" else {"inference": kind.inference}
    return given


def another(name, kind):
    """Return another value of a parameter, with what has to go with it."""
    without = dict.fromkeys(("inference", *CHAINS))
    usual = {key: inspect.signature(NeuralSurv).parameters[key].default for key in without}
    other = {
        "preset": replace(DEFAULT, bumps=2) if kind.preset == "default" else replace(PAPER, rho=1.3),
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
        "tolerance": 0.5,
        "max_sweeps": 1,
        "accelerate": False,
        "solver": "dual",
        "headroom": 50.0,
        "neighbourhoods": 3,
        "average": False,
        "inference": "gibbs",
        "chains": 3,
        "warmup": 5,
        "thin": 2,
        "network": network(1),
        "bayesian": ["layers.0"],
        "device": "cuda",
        "epochs": 1,
        "learning_rate": 0.3,
        "standardise": False,
        "draws": 9,
        "warm_start": True,
        "verbose": True,
        "random_state": 1,
    }
    given = {name: other[name]}
    if name == "inference" and kind.rows == "in memory":
        given = usual if kind.inference == "gibbs" else CHAINS
    if name == "network" and kind.network == "built-in" and kind.rows == "in memory":
        given |= {"hidden": None, "activation": None}
    return given


def fitted(kind, **given):
    model = NeuralSurv(**basis(kind) | given)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NeuralSurvWarning)
        if kind.rows == "streamed":
            return model.fit_stream([table(300)], **NAMES, training_passes=1, method=kind.method)
        model.fit(table(25), **NAMES)
        # Once more, for a start that is warm.
        return model.fit(table(25), **NAMES) if "warm_start" in given else model


def recorded(model):
    """Return all that a fit leaves behind, as text."""
    draws = model.predict_survival(table(25), [0.1, 0.5, 1.5]).draws
    seen = {"draws": draws, "elbo": model.elbo_, "star": model.posterior_.theta_star.numpy(), **asdict(model.encoding_)}
    return repr({name: np.asarray(value).tolist() for name, value in seen.items()}) + repr(model.diagnostics_)


@cache
def usual(name):
    return recorded(fitted(KINDS[name]))


def declared(name, kind):
    return all(getattr(kind, what) == needed for what, needed in USES[name].items())


@pytest.mark.parametrize("name", PARAMETERS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_parameter_does_something_or_is_refused(kind, name, monkeypatch, capsys):
    this, given, seen = KINDS[kind], another(name, KINDS[kind]), []
    monkeypatch.setattr(additive_fit, "_ROWS_FOR_NEIGHBOURHOODS", (5, 1000))
    if not declared(name, this):
        with pytest.raises(InputError, match=rf"^{name}="):
            fitted(this, **given)
        return
    if name == "device":
        # There need not be another one here: it must reach what puts the network there.
        wrap = estimator.wrap_module

        def spy(*args, device, **others):
            seen.append(device)
            return wrap(*args, device="cpu", **others)

        monkeypatch.setattr(estimator, "wrap_module", spy)
    before = usual(kind)
    capsys.readouterr()
    after = recorded(fitted(this, **given).set_params(verbose=False))
    if name == "verbose":
        assert capsys.readouterr().err
    elif name == "device":
        assert seen == ["cuda"]
    else:
        assert after != before


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_fit_is_recorded_alike(kind):
    # Without which the test above could not fail.
    assert recorded(fitted(KINDS[kind])) == usual(kind)


def test_every_parameter_and_every_choice_is_declared():
    choices = {field.name for kind in (PaperChoices, DefaultChoices) for field in fields(kind)}
    assert set(USES) == set(PARAMETERS) | choices


@pytest.mark.parametrize("name", [field.name for field in fields(DefaultChoices)])
def test_choices_of_a_preset_of_ones_own_are_refused_as_well(name):
    old = getattr(DEFAULT, name)
    new = not old if isinstance(old, bool) else "fisher" if name == "curvature" else (3,) if name == "hidden" else None
    preset = replace(DEFAULT, **{name: new if new is not None else "relu" if name == "activation" else old + 1})
    this = Kind("streamed", "default", method="mini-batch")
    model = NeuralSurv(preset, verbose=False, random_state=0)
    if declared(name, this):
        refuse({name: getattr(preset, name)}, USES, this)
        return
    with pytest.raises(InputError, match=rf"^{name}=.* of the preset (is|only does)"):
        model.fit_stream([table(300)], **NAMES, method="mini-batch")


@pytest.mark.parametrize("preset", ["default", "paper"])
@pytest.mark.parametrize("inference", ["variational", "gibbs"])
def test_the_presets_themselves_are_never_refused(preset, inference):
    given = CHAINS if inference == "gibbs" else {}
    own = replace({"default": DEFAULT, "paper": PAPER}[preset], hidden=(2,))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NeuralSurvWarning)
        NeuralSurv(own, verbose=False, random_state=0, draws=8, **given).fit(table(25), **NAMES)


ARGUMENTS = {
    "time": "entered",
    "event": "flag",
    "entry": "entered",
    "weight": "w",
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


def streamed(kind, **given):
    rows = table(600)
    rows = rows.assign(entered=rows.years / 2, flag=rows.died.shift(1, fill_value=True), w=1.0 + (rows.a > 0))
    arguments = {**NAMES, "method": kind.method, "training_passes": 1, "features": ["a", "b"]} | given
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NeuralSurvWarning)
        return NeuralSurv(**basis(replace(kind, method=arguments["method"]))).fit_stream([rows], **arguments)


@cache
def usual_stream(name):
    return recorded(streamed(KINDS[name]))


@pytest.mark.parametrize("name", STREAM_ARGUMENTS)
@pytest.mark.parametrize("kind", [name for name, kind in KINDS.items() if kind.rows == "streamed"])
def test_an_argument_of_fit_stream_does_something_or_is_refused(kind, name, monkeypatch, tmp_path):
    this, value, seen = KINDS[kind], ARGUMENTS[name], []
    needs = STREAM_USES.get(name, {})
    refused = any(getattr(this, what) != needed for what, needed in needs.items())
    if refused or name == "checkpoint_seconds":
        with pytest.raises(InputError, match=rf"^{name}="):
            streamed(this, **{name: value})
    if refused:
        return
    if name == "method":
        value = "exact" if this.method == "mini-batch" else "mini-batch"
    if name in ("checkpoint", "checkpoint_seconds"):
        monkeypatch.setattr(streaming, "Checkpoint", watched(streaming.Checkpoint, seen))
        every = {"checkpoint_seconds": value} if name == "checkpoint_seconds" else {}
        streamed(this, checkpoint=tmp_path / "state", **every)
        assert (tmp_path / "state").exists()
        assert seen == [0 if every else 60]
    elif name == "scratch":
        (tmp_path / value).mkdir()
        monkeypatch.setattr(streaming, "Packer", watched(streaming.Packer, seen))
        streamed(this, scratch=tmp_path / value)
        assert seen == [str(tmp_path / value)]
    elif name == "shards":
        # It matters with several processes alone.
        monkeypatch.setattr(streaming, "Stream", watched(streaming.Stream, seen))
        streamed(this, shards=value)
        assert seen == [True]
    else:
        assert recorded(streamed(this, **{name: value})) != usual_stream(kind)


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
            r"tolerance=0.1 is for sweeps over all rows, .* method='exact'\.",
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
        ({"warm_start": True}, {}, r"warm_start=True is for preset='paper'; leave it out\."),
        ({"preset": "paper"}, {}, "fit_stream is for the default model; preset='paper' needs all rows in memory: use"),
    ],
)
def test_what_a_streamed_fit_says(parameters, arguments, message):
    with pytest.raises(InputError, match="^" + message):
        NeuralSurv(**parameters, verbose=False).fit_stream([table(25)], **NAMES, **arguments)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"chains": 8}, r"chains=8 is for inference='gibbs'; leave it out\."),
        ({"warm_start": True}, r"warm_start=True is for preset='paper'; leave it out\."),
        ({"network": torch.nn.Identity(), "neighbourhoods": 3}, "neighbourhoods=3 does nothing for a network of your"),
        ({"bayesian": np.array(["a", "b"])}, "bayesian=.* only does something for a network of your own"),
    ],
)
def test_what_a_fit_in_memory_says(parameters, message):
    with pytest.raises(InputError, match="^" + message):
        NeuralSurv(**parameters, verbose=False).fit(table(25), **NAMES)


def test_a_warm_start_goes_on_where_only_a_part_of_the_network_is_bayesian():
    # The second search begins where the first has ended, and not at the weights that the module came with.
    kind = KINDS["paper, own network, variational"]
    cold = fitted(kind, bayesian=["layers.0"], mode_tolerance=1e-1)
    warm = fitted(kind, bayesian=["layers.0"], mode_tolerance=1e-1, warm_start=True)
    assert warm.diagnostics_.mode_objectives[0] < cold.diagnostics_.mode_objectives[0]
