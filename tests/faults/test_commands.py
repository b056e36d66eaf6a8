"""The long run of faults: its stored result, and a round or two of what it does."""

import json
import random

import pytest

from faults.children import needs_fork
from faults.proof_commands import command

faults, rounds = command("faults"), command("fault_rounds")


@needs_fork
@pytest.mark.parametrize("name", ["killed while it saves a model", "two processes write one model file"])
def test_a_few_rounds(name, tmp_path):
    found = rounds.SCENARIOS[name][1](3, random.Random(0), tmp_path)
    assert found["problems"] == []
    assert found["rounds"] in (3, 6)


@needs_fork
def test_a_file_that_is_lost_is_a_problem(tmp_path, monkeypatch):
    def half(self, path):
        with open(path, "wb") as file:
            file.write(b"half")

    models = rounds.two_models()
    monkeypatch.setattr(rounds, "two_models", lambda: models)
    monkeypatch.setattr(type(models[0]), "save", half)
    found = rounds.kills_during_save(2, random.Random(0), tmp_path)
    assert len(found["problems"]) == 2


@pytest.mark.skipif(not faults.STORE.exists(), reason="the run is not stored yet")
def test_the_stored_run_found_nothing_broken_and_made_the_page():
    record = json.loads(faults.STORE.read_text(encoding="utf-8").splitlines()[-1])
    assert list(record["scenarios"]) == list(rounds.SCENARIOS)
    assert [found["problems"] for found in record["scenarios"].values()] == [[]] * len(rounds.SCENARIOS)
    # An estimate far too high would refuse what fits; one far too low would refuse nothing.
    for name, found in record["memory"].items():
        assert 0.4 <= found["estimate_mib"] / found["measured_mib"] <= 1.3, name
    assert faults.PAGE.read_text(encoding="utf-8") == faults.page(record)
