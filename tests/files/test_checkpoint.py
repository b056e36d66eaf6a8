"""Checkpoints: what is saved comes back, other fits are refused, and only process 0 touches the file."""

import copy
from dataclasses import fields, is_dataclass, replace

import numpy as np
import pandas as pd
import pytest
import torch

from neuralsurv.errors import InputError
from neuralsurv.estimator import streaming
from neuralsurv.files import checkpoint
from neuralsurv.files.checkpoint import Checkpoint, difference, difference_in_words, fingerprint
from neuralsurv.files.format import read, write
from neuralsurv.inference.stream.processes import ProcessGroup
from neuralsurv.inference.stream.snapshots import Snapshot
from small_cohort import quick_default, small_cohort

PRINT = {"rows": 10, "exposure": 1 / 3, "columns": ["a", "b"], "exact": True}
TENSORS = {
    "sums": torch.tensor([1 / 3, 1e-300, -2.0], dtype=torch.float64),
    "empty": torch.zeros(0, dtype=torch.float64),
    "done": torch.tensor(7.0, dtype=torch.float64),
}
TABLE = small_cohort(80).frame().assign(arm=["a", "b", "c", "c"] * 20, one=1.0, early=0.0)
NAMES = {"time": "years", "event": "died", "features": ["age", "arm"], "training_passes": 1}


def snapshot():
    return Snapshot("posterior", TENSORS)


def test_a_snapshot_and_the_constants_come_back_bit_for_bit(tmp_path):
    file = tmp_path / "state"
    first = Checkpoint(file, PRINT, ProcessGroup())
    assert first.resume("posterior") is None
    first.constants["mode"] = torch.tensor([0.1], dtype=torch.float64)
    first.save(snapshot, now=True)
    again = Checkpoint(file, PRINT, ProcessGroup())
    found = again.resume("posterior")
    assert again.resume("features") is None
    assert found.tensors.keys() == TENSORS.keys()
    assert all(torch.equal(found.tensors[name], TENSORS[name]) for name in TENSORS)
    assert torch.equal(again.constants["mode"], first.constants["mode"])
    assert [path.name for path in tmp_path.iterdir()] == ["state"]


def test_it_saves_when_the_time_has_come(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(checkpoint.time, "monotonic", lambda: now[0])
    file = tmp_path / "state"
    kept = Checkpoint(file, PRINT, ProcessGroup(), every=60)
    kept.save(snapshot)
    assert not file.exists()
    now[0] = 61
    kept.save(snapshot)
    assert file.exists()
    file.unlink()
    now[0] = 100
    kept.save(snapshot)
    assert not file.exists()


class Second:
    """Process 1 of 2, which hears what process 0 has found."""

    rank, size = 1, 2

    def __init__(self, heard):
        self.heard = heard

    def gather(self, item):
        return [self.heard, item]


def test_other_processes_hear_from_process_0_and_write_nothing(tmp_path):
    file = tmp_path / "state"
    constants = {"mode": torch.ones(1)}
    kept = Checkpoint(file, PRINT, Second(("", snapshot(), constants)))
    assert kept.resume("posterior").tensors["done"] == 7
    assert kept.constants is constants
    kept.save(snapshot, now=True)
    assert not file.exists()
    with pytest.raises(InputError, match="said by process 0"):
        Checkpoint(file, PRINT, Second(("said by process 0", None, {})))


@pytest.mark.parametrize(
    ("name", "value"), [("rows", 11), ("exposure", 0.34), ("columns", ["a", "c"]), ("columns", ["a"]), ("exact", 1)]
)
def test_a_checkpoint_of_another_fit_is_refused(tmp_path, name, value):
    file = tmp_path / "state"
    Checkpoint(file, PRINT, ProcessGroup()).save(snapshot, now=True)
    with pytest.raises(InputError, match=rf"belongs to another fit: {name}(\.1)? is .* there and"):
        Checkpoint(file, {**PRINT, name: value}, ProcessGroup())
    # Rounding of sums over another number of processes is no other fit.
    Checkpoint(file, {**PRINT, "exposure": np.nextafter(1 / 3, 1)}, ProcessGroup())


def test_what_is_no_checkpoint_is_refused(tmp_path):
    file = tmp_path / "model"
    write(file, {"class": "NeuralSurv"}, {})
    with pytest.raises(InputError, match="is not a checkpoint of a fit"):
        Checkpoint(file, PRINT, ProcessGroup())
    file.write_bytes(b"broken")
    with pytest.raises(InputError, match="too short"):
        Checkpoint(file, PRINT, ProcessGroup())
    with pytest.raises(InputError, match="of the checkpoint does not exist"):
        Checkpoint(tmp_path / "nowhere" / "state", PRINT, ProcessGroup())


def test_a_fingerprint_holds_plain_values_only():
    assert fingerprint(a=np.float64(0.5), b=np.arange(2), c=(None, True), d=np.inf) == {
        "a": 0.5,
        "b": [0, 1],
        "c": [None, True],
        "d": "inf",
    }
    with pytest.raises(TypeError, match="a value of type object cannot be part of a fingerprint"):
        fingerprint(a=object())


@pytest.mark.parametrize("place", [0, 700, 4999])
def test_long_arrays_and_lists_are_told_apart(place):
    values = np.linspace(1, 2, 5000)
    changed, swapped = values.copy(), values.copy()
    changed[place] += 1e-3
    swapped[[place, 300]] = values[[300, place]]
    first = fingerprint(a=values)
    assert len(first["a"]) < 10
    assert all(difference(first, fingerprint(a=other)) for other in (changed, swapped))
    assert difference(first, fingerprint(a=values * (1 + 1e-13))) is None
    words = [str(value) for value in values]
    assert fingerprint(a=words) != fingerprint(a=[*words[:place], "other", *words[place + 1 :]])


def captured(monkeypatch, arguments=None, **parameters):
    """Return what the fingerprint of a streamed fit is made of, and the fingerprint."""
    found = []

    def keep(**parts):
        found.append(parts)
        raise KeyboardInterrupt

    monkeypatch.setattr(streaming, "fingerprint", keep)
    table = small_cohort(80).frame().assign(arm=["a", "b", None, "c"] * 20)
    given = {"time": "years", "event": "died", "checkpoint": "state", "training_passes": 1, **(arguments or {})}
    with pytest.raises(KeyboardInterrupt):
        quick_default(**parameters).fit_stream([table], **given)
    return found[0], fingerprint(**found[0])


def variations(value):
    """Yield the value with one thing changed, for everything in it: fields of dataclasses, elements, numbers."""
    if is_dataclass(value):
        for field in fields(value):
            for name, changed in variations(getattr(value, field.name)):
                yield f"{field.name}{name}", replace(value, **{field.name: changed})
    elif isinstance(value, np.ndarray):
        for place in range(len(value)):
            changed = value.copy()
            changed[place] += 0.1
            yield f"[{place}]", changed
    elif isinstance(value, tuple):
        # Columns are checked when an encoding is made.
        columns = bool(value) and is_dataclass(value[0])
        yield " and more", (*value, replace(value[0], name="another") if columns else "another")
        for place, item in enumerate(value):
            for name, changed in variations(item):
                yield f"[{place}]{name}", (*value[:place], changed, *value[place + 1 :])
    elif isinstance(value, bool):
        yield "", not value
    elif isinstance(value, int | float | np.number):
        yield "", value + 1 if np.isfinite(value) else 0.0
    else:
        yield "", f"{value} otherwise"


def test_whatever_a_fit_depends_on_changes_the_fingerprint(monkeypatch):
    parts, first = captured(monkeypatch)
    assert set(parts) == {"settings", "plan", "columns", "cohort", "encoding", "rows", "seed"}
    tried = 0
    for part, value in parts.items():
        for name, changed in variations(value):
            other = fingerprint(**{**parts, part: changed})
            assert difference(first, other) is not None, (part, name)
            tried += 1
    assert tried > 100


OTHERS = {
    "hidden": (5,),
    "activation": "relu",
    "quadrature_points": 7,
    "tolerance": 0.5,
    "max_sweeps": 7,
    "headroom": 40.0,
    "standardise": False,
    "random_state": 5,
}
# Not of the model, or refused by a streamed fit.
NO_MATTER = {"draws", "verbose", "network", "average", "neighbourhoods"}


def test_a_parameter_that_a_streamed_fit_uses_changes_the_fingerprint(monkeypatch):
    _, first = captured(monkeypatch)
    for name in quick_default().get_params().keys() - NO_MATTER:
        _, other = captured(monkeypatch, **{name: OTHERS[name]})
        assert difference(first, other) is not None, name


@pytest.mark.parametrize(
    "given", [{"training_passes": 2}, {"method": "mini-batch"}, {"directions": 3}, {"training_batch_size": 512}]
)
def test_an_argument_of_a_streamed_fit_changes_the_fingerprint(monkeypatch, given):
    _, first = captured(monkeypatch)
    _, other = captured(monkeypatch, arguments=given)
    assert difference(first, other) is not None


def test_a_field_that_only_the_file_has_is_another_fit(tmp_path):
    file = tmp_path / "state"
    Checkpoint(file, {**PRINT, "more": 1}, ProcessGroup()).save(snapshot, now=True)
    assert read(file)[0]["fingerprint"]["more"] == 1
    with pytest.raises(
        InputError, match=r"belongs to another fit: it was written by another version of neuralsurv\. Name"
    ):
        Checkpoint(file, PRINT, ProcessGroup())


@pytest.fixture(scope="module")
def state(tmp_path_factory):
    file = tmp_path_factory.mktemp("state") / "state"
    quick_default().fit_stream([TABLE], **NAMES, checkpoint=file)
    return file


def shorter(table: pd.DataFrame) -> pd.DataFrame:
    return table[:70]


def gap(table: pd.DataFrame) -> pd.DataFrame:
    return table.assign(age=table["age"].where(np.arange(80) != 5))


@pytest.mark.parametrize(
    ("parameters", "given", "change", "words"),
    [
        ({"hidden": (5,)}, {}, None, r"hidden is \(4,\) there and \(5,\) here"),
        ({"hidden": (4, 4)}, {}, None, r"hidden is \(4,\) there and \(4, 4\) here"),
        ({"activation": "tanh"}, {}, None, "activation is 'silu' there and 'tanh' here"),
        ({"headroom": 40}, {}, None, r"headroom is 100\.0 there and 40\.0 here"),
        ({"standardise": False}, {}, None, "standardise is True there and False here"),
        ({"random_state": 7}, {}, None, "random_state was another one"),
        ({}, {"sample_weight": "one"}, None, "the weight column is None there and 'one' here"),
        ({}, {"entry": "early"}, None, "the entry column is None there and 'early' here"),
        ({}, {"features": ["age"]}, None, "the covariates are age, arm there and age here"),
        ({}, {"features": ["arm", "age"]}, None, "the covariates are age, arm there and arm, age here"),
        ({}, {"training_passes": 2}, None, "training_passes is 1 there and 2 here"),
        ({}, {"training_batch_size": 512}, None, "training_batch_size is 256 there and 512 here"),
        ({}, {"method": "mini-batch"}, None, "method is 'exact' there and 'mini-batch' here"),
        ({}, {"directions": 3}, None, "directions is 200 there and 3 here"),
        # The usual number of passes depends on the number of rows, which is what has changed.
        ({}, {"training_passes": None}, shorter, "the number of rows is 80 there and 70 here"),
        ({}, {}, gap, "the number of values of column 'age' is 80 there and 79 here"),
        ({}, {}, lambda table: table.assign(age=2 * table["age"]), r"the smallest value of column 'age' is \d"),
        ({}, {}, lambda table: table.assign(arm=[*"abcc"] * 19 + [*"abdd"]), "column 'arm' holds other values there"),
        ({}, {}, lambda table: table.assign(arm=[*"cabc"] * 20), "its covariates are encoded differently"),
        ({}, {}, lambda table: table[::-1], "its rows come in another order"),
    ],
)
def test_what_the_user_has_changed_is_named(state, parameters, given, change, words):
    table = TABLE if change is None else change(TABLE)
    with pytest.raises(InputError, match=rf"belongs to another fit: {words}.*\. Name another file, or delete it to"):
        quick_default(**parameters).fit_stream([table], **{**NAMES, **given}, checkpoint=state)


WHOLE = {
    "settings": {"hidden": [4], "ablation": {"pairs": True}},
    "cohort": {"times": {"time": [1.0, 2.0]}, "columns": [{"name": "age", "low": 1.0}]},
    "plan": {"exact": True, "keep_all": 300, "blocks": 16},
    "rows": {"rows": 2, "content": 5, "order": 6},
}


@pytest.mark.parametrize(
    ("keys", "value", "words"),
    [
        (("cohort", "times", "time", 1), 3.0, "its rows hold other values"),
        (("rows", "content"), 4, "its rows hold other values"),
        (("plan", "keep_all"), 3, "directions is 3 there and 300 here"),
        (("plan", "blocks"), 8, "batch_size is 2048 there and 4096 here"),
        (("settings", "ablation", "pairs"), False, "settings.ablation.pairs is False there and True here"),
        # A file that another version wrote.
        (("cohort", "columns", 0, "codes"), [], "it was written by another version of neuralsurv"),
        (("cohort", "columns"), 7, "it was written by another version of neuralsurv"),
        (("plan", "exact"), "perhaps", "it was written by another version of neuralsurv"),
        (("plan", "pace"), 1, "it was written by another version of neuralsurv"),
    ],
)
def test_the_first_difference_in_words(keys, value, words):
    theirs = copy.deepcopy(WHOLE)
    place = theirs
    for key in keys[:-1]:
        place = place[key]
    place[keys[-1]] = value
    assert difference_in_words(theirs, WHOLE) == words
    assert difference_in_words(WHOLE, WHOLE) is None
    assert difference_in_words(None, WHOLE) == "it was written by another version of neuralsurv"
