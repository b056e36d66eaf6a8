import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuralsurv.cli.config import config_text, model_settings, read_config
from neuralsurv.cli.options import DataSettings
from neuralsurv.errors import InputError

TEXTS = st.text(st.characters(blacklist_categories=["Cs"]), min_size=1)


@given(
    time=TEXTS,
    drop=st.lists(TEXTS),
    values=st.dictionaries(
        st.sampled_from(["rho", "tolerance", "starts", "standardise", "hidden", "solver"]),
        st.one_of(st.booleans(), st.integers(-(2**60), 2**60), st.floats(allow_nan=False, allow_infinity=False), TEXTS),
    ),
)
def test_what_is_written_is_read_back(time, drop, values):
    data = DataSettings(file=Path("a.csv"), time=time, drop=tuple(drop))
    text = config_text(data, {**values, "hidden": (4, 2), "left": None}, Path("m.neuralsurv"), Path())
    content = tomllib.loads(text)
    assert content["data"] == {"file": "a.csv", "time": time, **({"drop": drop} if drop else {})}
    assert content["model"] == {**values, "hidden": [4, 2]}
    assert content["output"] == {"file": "m.neuralsurv"}


def test_paths_count_from_the_config(tmp_path):
    folder = tmp_path / "runs"
    folder.mkdir()
    text = config_text(DataSettings(file=tmp_path / "a.csv"), {}, tmp_path / "runs" / "m.neuralsurv", folder)
    (folder / "run.toml").write_text(text, encoding="utf-8")
    found = read_config(folder / "run.toml")
    assert found.data.file is not None
    assert found.data.file.resolve() == (tmp_path / "a.csv").resolve()
    assert found.out == folder / "m.neuralsurv"


def test_no_config_is_an_empty_one():
    assert read_config(None) == read_config(None).__class__(DataSettings(), {}, None)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[data", "is not valid TOML: "),
        (
            "[dta]",
            r"there is no table 'dta' \(in run.toml\); did you mean 'data'\? The tables are data, model, output.",
        ),
        ("data = 3", r"'data' in run.toml must be a table: write \[data\] on a line of its own."),
        ('[data]\ntmie = "a"', r"there is no key 'tmie' \(\[data\] of run.toml\); did you mean 'time'\?"),
        ("[data]\ntime = 3", r"'time' in \[data\] of run.toml must be text, but is 3."),
        ('[data]\ndrop = "a"', "'drop' in .* must be a list of texts, but is 'a'."),
        ("[data]\ndrop_missing_outcome = 1", "must be true or false, but is 1."),
        ('[output]\nfiel = "a"', r"there is no key 'fiel' \(\[output\] of run.toml\)"),
        ("[output]\nfile = 1", r"'file' in \[output\] of run.toml must be text"),
    ],
)
def test_a_wrong_config(tmp_path, content, message):
    path = tmp_path / "run.toml"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match=message):
        read_config(path)


def test_no_such_config(tmp_path):
    with pytest.raises(InputError, match=r"the config file .* cannot be read: No such file"):
        read_config(tmp_path / "run.toml")


def test_a_setting_that_toml_does_not_have():
    with pytest.raises(InputError, match="a setting of type set cannot be written to a config file"):
        config_text(DataSettings(), {"hidden": {1}}, Path("m"), Path())


def test_settings_that_are_set_win():
    typed, file = DataSettings(time="a", drop=("x",)), DataSettings(time="b", event="c", drop=("y",))
    assert typed.over(file) == DataSettings(time="a", event="c", drop=("x",))
    assert replace(typed, time=None).over(file).time == "b"


def test_model_settings():
    more = ("rho=0.8", "activation=tanh", "phi_prior=[1, 2]", "accelerate=false")
    found = model_settings(preset="paper", hidden="16,8", seed=3, draws=50, setting=more)
    assert found == {
        "preset": "paper", "hidden": [16, 8], "random_state": 3, "draws": 50, "rho": 0.8, "activation": "tanh",
        "phi_prior": [1, 2], "accelerate": False,
    }  # fmt: skip
    assert model_settings(hidden="none") == {"hidden": []}
