"""Numbers read off a cumulative hazard: quantiles, restricted means, event times.

A curve is given by its values at increasing edges; between two edges the hazard is taken as constant, which makes
every formula here exact for the interpolated curve.
"""

from __future__ import annotations

import torch
from torch import Tensor


def invert(edges: Tensor, cumulative: Tensor, level: Tensor) -> Tensor:
    """Return when each cumulative hazard reaches a level; infinity where it never does.

    Parameters
    ----------
    edges : Tensor of shape (E,)
        Increasing times, from 0.
    cumulative : Tensor of shape (..., E)
        Cumulative hazard at the edges, non-decreasing, 0 at the first.
    level : Tensor of shape (..., k)
        The levels to reach, 0 or more.

    Returns
    -------
    Tensor of shape (..., k)
        Times.

    Examples
    --------
    >>> import torch
    >>> from neuralsurv.model.functionals import invert
    >>> edges = torch.tensor([0.0, 1.0, 2.0])
    >>> invert(edges, torch.tensor([0.0, 0.5, 1.5]), torch.tensor([0.25, 1.0, 2.0]))
    tensor([0.5000, 1.5000,    inf])
    """
    last = len(edges) - 1
    right = torch.searchsorted(cumulative.contiguous(), level.contiguous())
    inner = right.clamp(1, last)
    low, high = cumulative.gather(-1, inner - 1), cumulative.gather(-1, inner)
    share = (level - low) / (high - low).clamp_min(torch.finfo(cumulative.dtype).tiny)
    times = edges[inner - 1] + share.clamp(0, 1) * (edges[inner] - edges[inner - 1])
    return torch.where(right > last, torch.full_like(times, torch.inf), times)


def level_at(edges: Tensor, cumulative: Tensor, time: Tensor) -> Tensor:
    """Return the cumulative hazard of n people at one time each, by interpolation between the edges.

    Parameters
    ----------
    edges : Tensor of shape (E,)
        Increasing times, from 0.
    cumulative : Tensor of shape (S, n, E)
        Cumulative hazard at the edges.
    time : Tensor of shape (n,)
        Times within the edges.

    Returns
    -------
    Tensor of shape (S, n)
    """
    right = torch.searchsorted(edges, time).clamp(1, len(edges) - 1)
    share = (time - edges[right - 1]) / (edges[right] - edges[right - 1])
    index = right.expand(len(cumulative), -1)[:, :, None]
    low, high = cumulative.gather(2, index - 1)[:, :, 0], cumulative.gather(2, index)[:, :, 0]
    return low + share * (high - low)


def restricted_mean(edges: Tensor, cumulative: Tensor) -> Tensor:
    """Return the integral of exp(−cumulative hazard) from the first edge to the last, shape (...,).

    On a piece of length d whose hazard adds h to the sum, the integral is d · S · (1 − e^(−h)) / h.

    Parameters
    ----------
    edges : Tensor of shape (E,)
        Increasing times.
    cumulative : Tensor of shape (..., E)
        Cumulative hazard at the edges.
    """
    gain = cumulative[..., 1:] - cumulative[..., :-1]
    return ((edges[1:] - edges[:-1]) * torch.exp(-cumulative[..., :-1]) * mean_survival(gain)).sum(-1)


def mean_survival(gain: Tensor) -> Tensor:
    """Return the mean of survival over a piece relative to its start, (1 − e^(−h)) / h for a hazard that adds h."""
    small = gain < 1e-8
    safe = torch.where(small, torch.ones_like(gain), gain)
    return torch.where(small, 1 - gain / 2, -torch.expm1(-safe) / safe)
