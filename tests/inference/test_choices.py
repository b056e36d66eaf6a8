"""PaperChoices: the preset's where nothing is given, the user's where something is, and a check of each."""

from dataclasses import asdict, fields, replace
from typing import Any

import numpy as np
import pytest

from neuralsurv.errors import InputError
from neuralsurv.inference.choices import DEFAULT, PAPER, PRESETS, DefaultChoices, PaperChoices, resolve

# One value for each choice that differs from the preset's.
OTHER = {
    "hidden": (4, 5),
    "activation": "tanh",
    "rho": 1.5,
    "phi_prior": (2.0, 3.0),
    "quadrature": "gauss-legendre",
    "quadrature_points": 7,
    "normaliser": "monte-carlo",
    "mode": "em",
    "starts": 5,
    "mode_tolerance": 1e-4,
    "spread": "prior",
    "tolerance": 1e-3,
    "max_sweeps": 9,
    "accelerate": False,
    "solver": "dual",
}


# The same for the default preset.
WORDS = {"activation": "tanh", "curvature": "fisher"}


def another(name: str, value: Any) -> Any:
    """Return another value of the same kind."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, str):
        return WORDS[name]
    return (4, 5) if isinstance(value, tuple) else value + 1


OTHER_DEFAULT = {name: another(name, value) for name, value in asdict(DEFAULT).items()}


def test_every_choice_is_tried_here():
    assert list(OTHER) == [field.name for field in fields(PaperChoices)]
    assert list(OTHER_DEFAULT) == [field.name for field in fields(DefaultChoices)]
    assert {"hidden", "headroom", "average"} < OTHER_DEFAULT.keys()


def test_presets():
    assert PRESETS == {"default": DEFAULT, "paper": PAPER}
    assert resolve("paper") == PAPER
    assert resolve("default") == DEFAULT


def test_none_takes_the_value_of_the_preset():
    assert resolve("paper", **dict.fromkeys(OTHER)) == PAPER
    # None is no choice, so that of the other preset may be named too.
    assert resolve("default", **dict.fromkeys([*OTHER, *OTHER_DEFAULT])) == DEFAULT


@pytest.mark.parametrize("name", OTHER)
def test_a_given_value_takes_the_place_of_one_choice_only(name):
    assert OTHER[name] != getattr(PAPER, name)
    assert asdict(resolve("paper", **{name: OTHER[name]})) == {**asdict(PAPER), name: OTHER[name]}


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"hidden": []}, ()),
        ({"hidden": [4, 5]}, (4, 5)),
        ({"hidden": np.array([4, 5])}, (4, 5)),
        ({"phi_prior": [2, 3]}, (2.0, 3.0)),
        ({"phi_prior": np.array([2, 3])}, (2.0, 3.0)),
        ({"rho": np.float32(1.5)}, 1.5),
        ({"starts": np.int64(3)}, 3),
        ({"quadrature_points": 2}, 2),
        ({"accelerate": np.bool_(False)}, False),
        ({"normaliser": "half"}, "half"),
        ({"normaliser": "closed-form"}, "closed-form"),
    ],
)
def test_values_become_plain(given, wanted):
    (name,) = given
    found = getattr(resolve("paper", **given), name)
    assert found == wanted
    assert type(found) is type(wanted)
    if isinstance(found, tuple):
        assert [type(one) for one in found] == [type(one) for one in wanted]


@pytest.mark.parametrize("preset", ["papier", "", None, ["paper"], 3])
def test_unknown_preset(preset):
    with pytest.raises(InputError, match=r"preset .* is not known; use one of default, paper\."):
        resolve(preset)


def test_unknown_choice():
    message = r"^hiden=\(4,\) is not a choice of the preset 'paper', whose choices are hidden, activation, .*solver\."
    with pytest.raises(InputError, match=message):
        resolve("paper", hiden=(4,))


@pytest.mark.parametrize("name", OTHER_DEFAULT)
def test_a_given_value_takes_the_place_of_one_choice_of_the_default(name):
    assert OTHER_DEFAULT[name] != getattr(DEFAULT, name)
    expected = {**asdict(DEFAULT), name: OTHER_DEFAULT[name]}
    if name in ("hidden", "activation"):
        # Hidden layers that were asked for are not replaced by neighbourhoods.
        expected["neighbourhoods"] = 0
    assert asdict(resolve("default", **{name: OTHER_DEFAULT[name]})) == expected


def test_hidden_layers_and_neighbourhoods_can_both_be_asked_for():
    assert resolve("default", hidden=(3,), neighbourhoods=7) == replace(DEFAULT, hidden=(3,), neighbourhoods=7)
    with pytest.raises(InputError, match=r"^neighbourhoods=-1 must be a whole number of at least 0\."):
        resolve("default", neighbourhoods=-1)


@pytest.mark.parametrize("name", sorted(OTHER.keys() - OTHER_DEFAULT.keys()))
def test_the_default_refuses_what_only_the_paper_has(name):
    message = rf"^{name}=.* is not a choice of the preset 'default', whose choices are hidden, .*max_sweeps.*\."
    with pytest.raises(InputError, match=message):
        resolve("default", **{name: OTHER[name]})


@pytest.mark.parametrize("name", sorted(OTHER_DEFAULT.keys() - OTHER.keys()))
def test_the_paper_refuses_what_only_the_default_has(name):
    with pytest.raises(InputError, match=rf"^{name}=.* is not a choice of the preset 'paper', whose choices are"):
        resolve("paper", **{name: OTHER_DEFAULT[name]})


def test_choices_of_your_own_are_taken_and_checked():
    mine = replace(DEFAULT, bumps=2, hidden=[3])
    assert resolve(mine, headroom=7) == replace(DEFAULT, bumps=2, hidden=(3,), headroom=7.0)
    assert resolve(replace(PAPER, rho=2.0)) == replace(PAPER, rho=2.0)
    with pytest.raises(InputError, match=r"^rho=2\.0 is not a choice of the preset given, whose choices are hidden"):
        resolve(mine, rho=2.0)
    with pytest.raises(InputError, match=r"^bumps=-1 must be a whole number of at least 0\."):
        resolve(replace(DEFAULT, bumps=-1))


@pytest.mark.parametrize("headroom", [1, 1.0, 0.5])
def test_a_ceiling_below_the_average_is_refused(headroom):
    message = rf"^headroom={headroom:g} must exceed 1: the ceiling of the hazard lies above its average\."
    with pytest.raises(InputError, match=message):
        resolve("default", headroom=headroom)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"headroom": 0}, "must be a positive number"),
        ({"headroom": float("inf")}, "must be a positive number"),
        ({"tolerance": -1}, "must be a positive number"),
        ({"bumps": 1.5}, "must be a whole number of at least 0"),
        ({"relinearise": -1}, "must be a whole number of at least 0"),
        ({"quadrature_points": 1}, "must be a whole number of at least 2"),
        ({"max_sweeps": 0}, "must be a whole number of at least 1"),
        ({"curvature": "best"}, "is not known; use one of exact, fisher, polya-gamma"),
        ({"average": 1}, "must be True or False"),
        ({"linear": "yes"}, "must be True or False"),
        ({"per_covariate": "no"}, "must be True or False"),
        ({"hyper_priors": 0}, "must be True or False"),
        ({"hidden": 4}, "must hold whole numbers of at least 1"),
    ],
    ids=str,
)
def test_choices_of_the_default_are_checked(given, message):
    (name,) = given
    with pytest.raises(InputError, match=rf"^{name}=.* {message}"):
        resolve("default", **given)


@pytest.mark.parametrize("value", ["best", 3, ["em"], np.array(["a", "b"])])
@pytest.mark.parametrize(
    ("name", "allowed"),
    [
        ("quadrature", "trapezoid, gauss-legendre"),
        ("normaliser", "auto, half, closed-form, monte-carlo"),
        ("mode", "direct, em"),
        ("spread", "mode, prior"),
    ],
)
def test_unknown_word(name, allowed, value):
    with pytest.raises(InputError, match=rf"^{name}=.* is not known; use one of {allowed}\."):
        resolve("paper", **{name: value})


@pytest.mark.parametrize("name", ["rho", "mode_tolerance", "tolerance"])
@pytest.mark.parametrize("value", [0, -1.0, float("nan"), float("inf"), "much", [1, 2], 10**400])
def test_not_a_positive_number(name, value):
    with pytest.raises(InputError, match=rf"^{name}=.* must be a positive number\."):
        resolve("paper", **{name: value})


@pytest.mark.parametrize("pair", [1.0, (1,), (1, 2, 3), [], "abc"])
def test_prior_is_not_a_pair(pair):
    with pytest.raises(InputError, match=r"^phi_prior=.* must be a pair: the shape and the rate of a Gamma prior\."):
        resolve("paper", phi_prior=pair)


@pytest.mark.parametrize("pair", [(0, 1), (1, -2.0), (1, float("inf")), ("a", 1), (1, None)])
def test_prior_is_not_positive(pair):
    with pytest.raises(InputError, match=r"^phi_prior=.* must be a positive number\."):
        resolve("paper", phi_prior=pair)


@pytest.mark.parametrize("value", [0, -1, 1.5, 1.0, float("nan"), "two", (2,)])
@pytest.mark.parametrize(("name", "least"), [("starts", 1), ("max_sweeps", 1), ("quadrature_points", 2)])
def test_not_a_whole_number(name, least, value):
    with pytest.raises(InputError, match=rf"^{name}=.* must be a whole number of at least {least}\."):
        resolve("paper", **{name: value})


@pytest.mark.parametrize("value", ["no", 1, 0.0, [True]])
def test_not_a_flag(value):
    with pytest.raises(InputError, match=r"^accelerate=.* must be True or False\."):
        resolve("paper", accelerate=value)


def test_one_quadrature_point_is_too_few():
    with pytest.raises(InputError, match=r"quadrature_points=1 must be a whole number of at least 2\."):
        resolve("paper", quadrature_points=1)


@pytest.mark.parametrize("hidden", [16, (16, 0), (16, 1.5), ("16",), "16", (None,), np.ones((2, 2))])
def test_widths(hidden):
    with pytest.raises(
        InputError, match=r"^hidden=[^*]* must hold whole numbers of at least 1, one for each hidden layer"
    ):
        resolve("paper", hidden=hidden)
