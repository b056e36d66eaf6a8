import numpy as np
import pytest
import torch

from neuralsurv.model.panels import even_panels, panels_between


def tensor(values):
    return torch.tensor(np.asarray(values), dtype=torch.float64)


@pytest.mark.parametrize(
    "times", [[0.0], [0.004], [0.5, 0.1, 0.5], [0.0, 1.0, 1.5], [0.2, 7.0], np.linspace(0, 3, 77), [1e-300, 1e6]]
)
def test_even_panels_hold_every_time_and_are_short(times):
    edges, which = even_panels(tensor(times))
    assert torch.equal(edges[which], tensor(times))
    assert float(edges[0]) == 0
    assert float(edges[-1]) == max(times)
    lengths = edges.diff()
    assert (lengths > 0).all()
    inside = edges[1:] <= 1
    assert float(lengths[inside].max() if inside.any() else 0) <= 1 / 50 + 1e-12


@pytest.mark.parametrize("times", [[0.3], [0.0], [0.0, 1.0], [0.25, 0.5, 0.75], [1.0, 0.2, 0.2], [5.0, 0.1]], ids=str)
def test_panels_hold_every_time_and_every_stop_before_the_last(times: list[float]) -> None:
    stops = torch.tensor([0.0, 0.1, 0.25, 0.6, 1.0, 2.0], dtype=torch.float64)
    asked = torch.tensor(times, dtype=torch.float64)
    edges, which = panels_between(asked, stops)
    assert torch.equal(edges[which], asked)
    assert float(edges[0]) == 0
    assert float(edges[-1]) == max(times)
    assert edges.tolist() == sorted({0.0, *times, *(s for s in stops.tolist() if s < max(times))})
