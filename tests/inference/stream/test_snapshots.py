"""Snapshots: a state comes back as it was, and does not change with what it was taken of."""

from dataclasses import dataclass, field

import torch

from neuralsurv.inference.stream.snapshots import Snapshot, SnapshotStore

NAMES = ("theta", "step", "rate", "done", "trace")


@dataclass
class State:
    theta: torch.Tensor = field(default_factory=lambda: torch.zeros(2, dtype=torch.float64))
    step: int = 0
    rate: float = 0.0
    done: bool = False
    trace: list[float] = field(default_factory=list)


def test_a_state_is_restored_with_its_types():
    state = State(torch.tensor([0.1, -2.0], dtype=torch.float64), 7, 0.3, True, [1.5, 2.5])
    snapshot = Snapshot.of("stage", state, NAMES)
    state.theta.zero_()
    found = State()
    snapshot.restore(found)
    assert found.theta.tolist() == [0.1, -2.0]
    assert (found.step, found.rate, found.done, found.trace) == (7, 0.3, True, [1.5, 2.5])
    assert [type(getattr(found, name)) for name in NAMES] == [torch.Tensor, int, float, bool, list]
    # The restored state is a copy as well.
    found.theta.zero_()
    assert snapshot.tensors["theta"].tolist() == [0.1, -2.0]


def test_without_a_checkpoint_nothing_is_saved():
    store = SnapshotStore()
    store.save(lambda: 1 / 0, now=True)
    assert store.resume("stage") is None
