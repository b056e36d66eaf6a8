"""Settings of the default model: what is left at None, what else that changes, and a check of each."""

from dataclasses import asdict

import pytest

from neuralsurv.errors import InputError
from neuralsurv.inference.default.settings import DefaultSettings

NONE = {"hidden": None, "activation": None, "neighbourhoods": None}
OTHER = {
    "hidden": (4, 5),
    "activation": "tanh",
    "neighbourhoods": 7,
    "headroom": 12.0,
    "quadrature_points": 7,
    "average": False,
    "tolerance": 1e-2,
    "max_sweeps": 9,
}


def test_every_setting_is_tried_here():
    assert {*OTHER, "random_network", "ablation"} == set(asdict(DefaultSettings()))


def test_none_takes_the_usual_value():
    assert DefaultSettings.of(**NONE) == DefaultSettings()


@pytest.mark.parametrize("name", OTHER)
def test_a_given_value_is_kept(name):
    assert OTHER[name] != getattr(DefaultSettings(), name)
    expected = {**asdict(DefaultSettings()), name: OTHER[name]}
    # Hidden layers that were asked for take the place of curves and neighbourhoods.
    expected["random_network"] = name in ("hidden", "activation")
    assert asdict(DefaultSettings.of(**{**NONE, name: OTHER[name]})) == expected


@pytest.mark.parametrize("given", [{"hidden": [3]}, {"activation": "tanh"}], ids=str)
def test_neighbourhoods_beside_a_network_are_refused(given):
    message = r"^neighbourhoods=7 does nothing beside hidden or activation, which ask for a network in place of"
    with pytest.raises(InputError, match=message):
        DefaultSettings.of(**{**NONE, **given, "neighbourhoods": 7})


@pytest.mark.parametrize("headroom", [1, 1.0, 0.5])
def test_a_ceiling_below_the_average_is_refused(headroom):
    message = rf"^headroom={headroom:g} must exceed 1: the ceiling of the hazard lies above its average\."
    with pytest.raises(InputError, match=message):
        DefaultSettings(headroom=headroom).checked()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"headroom": 0}, "must be a positive number"),
        ({"headroom": float("inf")}, "must be a positive number"),
        ({"tolerance": -1}, "must be a positive number"),
        ({"neighbourhoods": -1}, "must be a whole number of at least 0"),
        ({"quadrature_points": 1}, "must be a whole number of at least 2"),
        ({"max_sweeps": 0}, "must be a whole number of at least 1"),
        ({"average": 1}, "must be True or False"),
        ({"hidden": 4}, "must hold whole numbers of at least 1"),
    ],
    ids=str,
)
def test_settings_are_checked(given, message):
    (name,) = given
    with pytest.raises(InputError, match=rf"^{name}=.* {message}"):
        DefaultSettings(**given).checked()
