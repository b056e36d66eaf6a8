r"""Jacobian rows times a matrix, where the points of a row of data share its covariates.

The first layer of a network has the inputs (time, x), and only the time differs between the K nodes of a row. With the
derivatives B of that layer, :math:`\sum_u B_u\,(V_u\,x)` needs the products :math:`V_u\,x` once for each row instead of
once for each node: about K times less work where there are many covariates.
"""

from __future__ import annotations

import torch
from torch import Tensor

from neuralsurv.model.points import Points
from neuralsurv.solvers.rows import LayeredRows, row_slices


def times_matrix(layers: LayeredRows, points: Points, x: Tensor, matrix: Tensor) -> Tensor:
    """Return J·V for the rows J of a network whose first layer has the inputs (time, x).

    Parameters
    ----------
    layers : LayeredRows of shape (P, m)
        J.
    points : Points
        The points, of which there are P: as many nodes for each row of data, in order.
    x : Tensor of shape (n, d)
        Covariates of the rows of data.
    matrix : Tensor of shape (m, k)
        V.
    """
    (inputs, derivatives), *others = layers.layers
    events, units = points.events, derivatives.shape[1]
    each = (len(points) - events) // len(x)
    stop = units * inputs.shape[1]
    block = matrix[:stop].reshape(units, inputs.shape[1], -1)
    # The share of the covariates and of the bias, once for each row of data: shape (n, units, k).
    shared = (x @ block[:, 1:].transpose(0, 1).reshape(x.shape[1], -1)).reshape(len(x), units, -1)
    shared += matrix[stop : stop + units]
    out = derivatives.new_empty(len(points), matrix.shape[1])
    torch.bmm(derivatives[:events, None], shared[points.row[:events]], out=out[:events, None])
    torch.bmm(derivatives[events:].reshape(len(x), each, units), shared, out=out[events:].view(len(x), each, -1))
    out.addmm_(derivatives * inputs[:, :1], block[:, 0])
    return out.add_(_plain(LayeredRows(tuple(others)), matrix[stop + units :])) if others else out


def _plain(layers: LayeredRows, matrix: Tensor) -> Tensor:
    out = matrix.new_empty(layers.shape[0], matrix.shape[1])
    for part in row_slices(*layers.shape):
        torch.mm(layers.take(part).dense(), matrix, out=out[part])
    return out
