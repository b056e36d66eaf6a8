"""Products with rows whose points share covariates, against the dense product."""

import pytest
import torch

from neuralsurv.model.network import MLP
from neuralsurv.model.points import build_points
from neuralsurv.model.quadrature import GaussLegendre, Trapezoid
from neuralsurv.model.rows import LayeredRows
from neuralsurv.model.shared_inputs import nodes_a_row, times_matrix

GENERATOR = torch.Generator().manual_seed(0)


def normal(*shape):
    return torch.randn(*shape, generator=GENERATOR, dtype=torch.float64)


@pytest.mark.parametrize("hidden", [(5,), (4, 3), ()])
@pytest.mark.parametrize("rule", [GaussLegendre(3), Trapezoid(7)], ids=["even", "uneven"])
@pytest.mark.parametrize("share", [0.0, 0.6])
def test_product_is_that_of_the_dense_rows(hidden, rule, share):
    n, network = 9, MLP(4, hidden, "silu")
    x, time = normal(n, 4), torch.linspace(0.1, 1, n, dtype=torch.float64)
    event = torch.arange(n) < share * n
    points = build_points(time, event, 0 * time, torch.ones_like(time), rule, 1.0)
    rows = network.value_and_rows(network.initial(GENERATOR), points.time, x[points.row])[1]
    matrix = normal(network.size, 6)
    torch.testing.assert_close(times_matrix(rows, points, x, matrix), rows.dense() @ matrix)
    assert nodes_a_row(points, n) == (3 if isinstance(rule, GaussLegendre) else 0)


def test_rows_whose_first_layer_has_other_inputs_are_multiplied_plainly():
    n = 5
    x, time = normal(n, 4), torch.linspace(0.1, 1, n, dtype=torch.float64)
    points = build_points(time, time > 2, 0 * time, torch.ones_like(time), GaussLegendre(2), 1.0)
    rows = LayeredRows(((normal(2 * n, 3), normal(2 * n, 2)),))
    matrix = normal(8, 3)
    torch.testing.assert_close(times_matrix(rows, points, x, matrix), rows.dense() @ matrix)
