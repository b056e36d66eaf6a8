import inspect

import pytest

from cli.run_command import refused
from neuralsurv.cli.config import run_options
from neuralsurv.cli.options import FILE, OUTCOME, DataSettings, EvaluateOptions, ServeOptions, some_of, with_options
from neuralsurv.errors import InputError


def test_a_group_stands_where_its_parameter_stood_and_is_made_of_its_options():
    seen = []

    @with_options(file=some_of(DataSettings, *FILE))
    def command(*, first: int, file: DataSettings, last: str = "z") -> None:
        seen.append((first, file, last))

    names = list(inspect.signature(command).parameters)
    assert names == ["first", "separator", "decimal", "encoding", "missing", "last"]
    command(first=1, separator=";", decimal=None, encoding=None, missing=["9"], last="y")
    assert seen == [(1, DataSettings(separator=";", missing=("9",)), "y")]


def test_a_part_of_a_group_has_defaults_and_values_of_its_own():
    group = some_of(ServeOptions, "host", "port", port=0, explorer=True)
    found = {name: option.default for name, option in inspect.signature(group).parameters.items()}
    assert found == {"host": "127.0.0.1", "port": 0}
    assert group(host="a", port=3) == ServeOptions(host="a", port=3, explorer=True)


def test_the_outcome_is_everything_but_the_file_and_the_covariates():
    others = {"file", "features", "drop", "categorical", *FILE}
    assert {*OUTCOME} == set(DataSettings.__dataclass_fields__) - others


def test_what_is_typed_comes_before_the_config(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text('[data]\ntime = "a"\nevent = "b"\n[model]\nrho = 1\ndraws = 3\n', encoding="utf-8")
    options = {name: option.default for name, option in inspect.signature(run_options).parameters.items()}
    found = run_options(**{**options, "time": "t", "draws": 7, "config": path})
    assert found.data == DataSettings(time="t", event="b")
    assert found.model == {"rho": 1, "draws": 7}


def test_what_is_repeated_is_kept_in_order():
    options = {name: option.default for name, option in inspect.signature(run_options).parameters.items()}
    assert run_options(**{**options, "event_values": ["dead", "lost"]}).data.event_values == ("dead", "lost")


@pytest.mark.parametrize("command", ["fit", "evaluate"])
def test_a_command_without_a_table(command):
    assert "there is no data file" in refused(command, "--out", "m.neuralsurv" if command == "fit" else "s.csv")


def test_a_cross_validation_has_two_folds_at_least_and_one_repeat():
    with pytest.raises(InputError, match="1 fold and 1 repeat cannot be run; use at least 2 folds and 1 repeat"):
        EvaluateOptions(folds=1)
    with pytest.raises(InputError, match="5 folds and 0 repeats cannot be run"):
        EvaluateOptions(repeats=0)
