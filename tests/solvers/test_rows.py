import pytest
import torch

from neuralsurv.model.network import MLP
from neuralsurv.solvers import rows as rows_module
from neuralsurv.solvers.rows import DenseRows, LayeredRows, row_slices


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def layered(points=7, widths=((3, 4), (4, 2), (2, 1)), seed=0):
    return LayeredRows(
        tuple(
            (normal(points, a, seed=seed + 2 * k), normal(points, b, seed=seed + 2 * k + 1))
            for k, (a, b) in enumerate(widths)
        )
    )


def close(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


class TestLayered:
    def test_dense_rows_are_outer_products_and_biases(self):
        a, b = double_row = ([1.0, 2.0], [10.0, 20.0, 30.0])
        rows = LayeredRows(tuple([tuple(torch.tensor([part], dtype=torch.float64) for part in double_row)]))
        expected = [y * x for y in b for x in a] + b
        assert rows.dense().tolist() == [expected]
        assert rows.shape == (1, 9)

    def test_rows_of_a_network_are_its_jacobian(self):
        network = MLP(covariates=3, hidden=(5, 4), activation="tanh")
        theta, time, x = normal(network.size), normal(6, seed=1), normal(6, 3, seed=2)
        value, rows = network.value_and_rows(theta, time, x)
        expected = torch.func.jacrev(lambda weights: network.value(weights, time, x))(theta)
        close(rows.dense(), expected)
        close(value, network.value(theta, time, x))

    def test_products(self):
        rows = layered()
        v, u = normal(rows.shape[1], seed=9), normal(rows.shape[0], seed=10)
        close(rows.times(v), rows.dense() @ v)
        close(rows.transposed_times(u), rows.dense().T @ u)

    def test_taking_rows(self):
        rows = layered()
        close(rows.take(slice(2, 5)).dense(), rows.dense()[2:5])
        close(rows.take(torch.tensor([6, 0, 6])).dense(), rows.dense()[[6, 0, 6]])

    @pytest.mark.parametrize("kind", ["one", "by input", "any"])
    def test_gram_and_norms(self, kind):
        rows, others = layered(), layered(points=4, seed=50)
        scale = torch.ones(rows.shape[1], dtype=torch.float64)
        if kind == "by input":
            # Its own number for every input of every layer and for every layer's bias.
            parts, number = [], 1.0
            for a, b in rows.layers:
                inputs = number + torch.arange(a.shape[1], dtype=torch.float64)
                parts += [inputs.repeat(b.shape[1]), torch.full((b.shape[1],), number + 0.5, dtype=torch.float64)]
                number += 10
            scale = torch.cat(parts)
        elif kind == "any":
            scale = normal(rows.shape[1], seed=11).exp()
        assert rows._separable(scale) == (kind != "any")
        close(rows.gram(others, scale), rows.dense() @ torch.diag(scale) @ others.dense().T)
        close(rows.squared_norms(scale), torch.diagonal(rows.dense() @ torch.diag(scale) @ rows.dense().T))


class TestDense:
    def test_products(self):
        rows, others = DenseRows(normal(5, 3)), DenseRows(normal(2, 3, seed=1))
        scale, v, u = normal(3, seed=2).exp(), normal(3, seed=3), normal(5, seed=4)
        close(rows.times(v), rows.matrix @ v)
        close(rows.transposed_times(u), rows.matrix.T @ u)
        close(rows.gram(others, scale), rows.matrix @ torch.diag(scale) @ others.matrix.T)
        close(rows.squared_norms(scale), torch.diagonal(rows.gram(rows, scale)))
        close(rows.take(torch.tensor([4, 1])).dense(), rows.matrix[[4, 1]])

    def test_no_rows(self):
        rows = DenseRows(normal(0, 3))
        assert rows.squared_norms(torch.ones(3, dtype=torch.float64)).shape == (0,)


def test_slices_are_as_large_as_stated(monkeypatch):
    for numbers, lengths in ((1, [1] * 10), (12, [2] * 5), (20, [3, 3, 3, 1]), (10_000, [10])):
        monkeypatch.setattr(rows_module, "BLOCK_NUMBERS", numbers)
        assert [part.stop - part.start for part in row_slices(10, 6)] == lengths
