import inspect

import pytest

from cli.run_command import refused
from neuralsurv.cli.options import file_options, outcome_options, run_options, with_options
from neuralsurv.cli.settings import DataSettings


def test_a_group_stands_where_its_parameter_stood_and_is_made_of_its_options():
    seen = []

    @with_options(file=file_options)
    def command(*, first: int, file: DataSettings, last: str = "z") -> None:
        seen.append((first, file, last))

    names = list(inspect.signature(command).parameters)
    assert names == ["first", "separator", "decimal", "encoding", "missing", "last"]
    command(first=1, separator=";", decimal=None, encoding=None, missing=["9"], last="y")
    assert seen == [(1, DataSettings(separator=";", missing=("9",)), "y")]


def test_every_setting_of_the_data_is_an_option():
    names = {*inspect.signature(run_options).parameters, "file", "event_values"}
    assert set(DataSettings.__dataclass_fields__) <= names


def test_what_is_typed_comes_before_the_config(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text('[data]\ntime = "a"\nevent = "b"\n[model]\nrho = 1\ndraws = 3\n', encoding="utf-8")
    options = dict.fromkeys(inspect.signature(run_options).parameters)
    options.update(time="t", draws=7, config=path, drop_missing_outcome=False)
    found = run_options(**options)
    assert found.data == DataSettings(time="t", event="b")
    assert found.model == {"rho": 1, "draws": 7}


def test_event_values_are_kept_in_order():
    assert outcome_options(event_value=["dead", "lost"]).event_values == ("dead", "lost")


@pytest.mark.parametrize("command", ["fit", "evaluate"])
def test_a_command_without_a_table(command):
    assert "there is no data file" in refused(command, "--out", "m.neuralsurv" if command == "fit" else "s.csv")
