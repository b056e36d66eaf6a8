"""Settings of the paper's method: its own where nothing is given, and a check of each."""

from dataclasses import asdict, fields

import numpy as np
import pytest

from neuralsurv.errors import InputError
from neuralsurv.inference.paper.settings import PaperSettings
from neuralsurv.model.quadrature import GaussLegendre, Trapezoid

# One value for each setting that differs from the paper's.
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


def test_every_setting_is_tried_here():
    assert list(OTHER) == [field.name for field in fields(PaperSettings)]


@pytest.mark.parametrize("name", OTHER)
def test_a_given_value_is_kept(name):
    assert OTHER[name] != getattr(PaperSettings(), name)
    expected = {**asdict(PaperSettings()), name: OTHER[name]}
    assert asdict(PaperSettings(**{name: OTHER[name]}).checked()) == expected


def test_rule():
    assert PaperSettings().rule == Trapezoid(200)
    assert PaperSettings(quadrature="gauss-legendre", quadrature_points=12).rule == GaussLegendre(12)


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
    found = getattr(PaperSettings(**given).checked(), name)
    assert found == wanted
    assert type(found) is type(wanted)
    if isinstance(found, tuple):
        assert [type(one) for one in found] == [type(one) for one in wanted]


@pytest.mark.parametrize("value", ["best", 3, ["em"], np.array(["a", "b"])])
@pytest.mark.parametrize(
    ("name", "allowed"),
    [
        ("quadrature", "trapezoid, gauss-legendre"),
        ("normaliser", "auto, half, closed-form, monte-carlo"),
        ("mode", "direct, em"),
        ("spread", "mode, prior"),
        ("solver", "auto, primal, dual, low-rank"),
    ],
)
def test_unknown_word(name, allowed, value):
    with pytest.raises(InputError, match=rf"^{name}=.* is not known; use one of {allowed}\."):
        PaperSettings(**{name: value}).checked()


@pytest.mark.parametrize("name", ["rho", "mode_tolerance", "tolerance"])
@pytest.mark.parametrize("value", [0, -1.0, float("nan"), float("inf"), "much", [1, 2], 10**400])
def test_not_a_positive_number(name, value):
    with pytest.raises(InputError, match=rf"^{name}=.* must be a positive number\."):
        PaperSettings(**{name: value}).checked()


@pytest.mark.parametrize("pair", [1.0, (1,), (1, 2, 3), [], "abc"])
def test_prior_is_not_a_pair(pair):
    with pytest.raises(InputError, match=r"^phi_prior=.* must be a pair: the shape and the rate of a Gamma prior\."):
        PaperSettings(phi_prior=pair).checked()


@pytest.mark.parametrize("pair", [(0, 1), (1, -2.0), (1, float("inf")), ("a", 1), (1, None)])
def test_prior_is_not_positive(pair):
    with pytest.raises(InputError, match=r"^phi_prior=.* must be a positive number\."):
        PaperSettings(phi_prior=pair).checked()


@pytest.mark.parametrize("value", [0, -1, 1.5, 1.0, float("nan"), "two", (2,)])
@pytest.mark.parametrize(("name", "least"), [("starts", 1), ("max_sweeps", 1), ("quadrature_points", 2)])
def test_not_a_whole_number(name, least, value):
    with pytest.raises(InputError, match=rf"^{name}=.* must be a whole number of at least {least}\."):
        PaperSettings(**{name: value}).checked()


@pytest.mark.parametrize("value", ["no", 1, 0.0, [True]])
def test_not_a_flag(value):
    with pytest.raises(InputError, match=r"^accelerate=.* must be True or False\."):
        PaperSettings(accelerate=value).checked()


def test_one_quadrature_point_is_too_few():
    with pytest.raises(InputError, match=r"quadrature_points=1 must be a whole number of at least 2\."):
        PaperSettings(quadrature_points=1).checked()


@pytest.mark.parametrize("hidden", [16, (16, 0), (16, 1.5), ("16",), "16", (None,), np.ones((2, 2))])
def test_widths(hidden):
    with pytest.raises(
        InputError, match=r"^hidden=[^*]* must hold whole numbers of at least 1, one for each hidden layer"
    ):
        PaperSettings(hidden=hidden).checked()
