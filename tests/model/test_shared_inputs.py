"""Products with rows whose points share covariates, against the dense product."""

import pytest
import torch

from neuralsurv.data.cohort import Cohort
from neuralsurv.model.network import MLP
from neuralsurv.model.points import build_points
from neuralsurv.model.quadrature import GaussLegendre
from neuralsurv.model.shared_inputs import times_matrix

GENERATOR = torch.Generator().manual_seed(0)


def normal(*shape):
    return torch.randn(*shape, generator=GENERATOR, dtype=torch.float64)


@pytest.mark.parametrize("hidden", [(5,), (4, 3), ()])
@pytest.mark.parametrize("share", [0.0, 0.6])
def test_product_is_that_of_the_dense_rows(hidden, share):
    n, network = 9, MLP(4, hidden, "silu")
    x, time = normal(n, 4), torch.linspace(0.1, 1, n, dtype=torch.float64)
    event = torch.arange(n) < share * n
    points = build_points(
        Cohort(time, event, 0 * time, torch.ones_like(time), torch.zeros(len(time), 0)), GaussLegendre(3), 1.0
    )
    rows = network.value_and_rows(network.initial(GENERATOR), points.time, x[points.row])[1]
    matrix = normal(network.size, 6)
    torch.testing.assert_close(times_matrix(rows, points, x, matrix), rows.dense() @ matrix)
