"""Checkpoints: what is saved comes back, other fits are refused, and only process 0 touches the file."""

import numpy as np
import pytest
import torch

from neuralsurv import checkpoint
from neuralsurv.checkpoint import Checkpoint
from neuralsurv.errors import InputError
from neuralsurv.inference.distributed import Alone
from neuralsurv.inference.keeping import Snapshot
from neuralsurv.storage import write

PRINT = {"rows": 10, "exposure": 1 / 3, "columns": ["a", "b"], "exact": True}
TENSORS = {
    "sums": torch.tensor([1 / 3, 1e-300, -2.0], dtype=torch.float64),
    "empty": torch.zeros(0, dtype=torch.float64),
}


def snapshot():
    return Snapshot("posterior", {"done": 7.0, "undefined": float("nan")}, TENSORS)


def test_a_snapshot_and_the_constants_come_back_bit_for_bit(tmp_path):
    file = tmp_path / "state"
    first = Checkpoint(file, PRINT, Alone())
    assert first.resumed("posterior") is None
    first.constants["mode"] = torch.tensor([0.1], dtype=torch.float64)
    first.offer(snapshot, now=True)
    again = Checkpoint(file, PRINT, Alone())
    found = again.resumed("posterior")
    assert again.resumed("features") is None
    assert found.numbers == {"done": 7.0}
    assert found.tensors.keys() == TENSORS.keys()
    assert all(torch.equal(found.tensors[name], TENSORS[name]) for name in TENSORS)
    assert torch.equal(again.constants["mode"], first.constants["mode"])
    assert [path.name for path in tmp_path.iterdir()] == ["state"]


def test_it_saves_when_the_time_has_come(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(checkpoint.time, "monotonic", lambda: now[0])
    file = tmp_path / "state"
    kept = Checkpoint(file, PRINT, Alone(), every=60)
    kept.offer(snapshot)
    assert not file.exists()
    now[0] = 61
    kept.offer(snapshot)
    assert file.exists()
    file.unlink()
    now[0] = 100
    kept.offer(snapshot)
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
    assert kept.resumed("posterior").numbers["done"] == 7
    assert kept.constants is constants
    kept.offer(snapshot, now=True)
    assert not file.exists()
    with pytest.raises(InputError, match="said by process 0"):
        Checkpoint(file, PRINT, Second(("said by process 0", None, {})))


@pytest.mark.parametrize(
    ("name", "value"), [("rows", 11), ("exposure", 0.34), ("columns", ["a", "c"]), ("columns", ["a"]), ("exact", 1)]
)
def test_a_checkpoint_of_another_fit_is_refused(tmp_path, name, value):
    file = tmp_path / "state"
    Checkpoint(file, PRINT, Alone()).offer(snapshot, now=True)
    with pytest.raises(InputError, match=f"belongs to another fit: {name} is .* there and"):
        Checkpoint(file, {**PRINT, name: value}, Alone())
    # Rounding of sums over another number of processes is no other fit.
    Checkpoint(file, {**PRINT, "exposure": np.nextafter(1 / 3, 1)}, Alone())


def test_what_is_no_checkpoint_is_refused(tmp_path):
    file = tmp_path / "model"
    write(file, {"class": "NeuralSurv"}, {})
    with pytest.raises(InputError, match="is not a checkpoint of a fit"):
        Checkpoint(file, PRINT, Alone())
    file.write_bytes(b"broken")
    with pytest.raises(InputError, match="too short"):
        Checkpoint(file, PRINT, Alone())
    with pytest.raises(InputError, match="of the checkpoint does not exist"):
        Checkpoint(tmp_path / "nowhere" / "state", PRINT, Alone())
