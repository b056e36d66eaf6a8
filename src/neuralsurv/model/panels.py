"""Panels: the pieces into which an integral over time is cut, at the requested times and in between."""

from __future__ import annotations

import torch
from torch import Tensor

# The longest panel within the training range, which ends at 1 in scaled time.
_LONGEST_PANEL = 1 / 50
# Beyond that range panels are longer where there would be more than this many of them; such times are marked as
# extrapolated anyway.
_MOST_PANELS_BEYOND = 500


def even_panels(times: Tensor) -> tuple[Tensor, Tensor]:
    """Cut [0, last time] into panels of at most 1/50, whose edges hold every time.

    Inside the training range the panels up to a time do not depend on times after it.

    Parameters
    ----------
    times : Tensor of shape (T,)
        Non-negative times.

    Returns
    -------
    edges : Tensor
        Edges of the panels, from 0.
    which : Tensor of shape (T,)
        The edge at each of the times.
    """
    last = float(times.max())
    stops = torch.unique(torch.cat([times.new_tensor([0.0, min(1.0, last)]), times]))
    beyond = max(_LONGEST_PANEL, (last - 1) / _MOST_PANELS_BEYOND)
    low, high = stops[:-1], stops[1:]
    longest = torch.full_like(high, beyond).masked_fill(high <= 1, _LONGEST_PANEL)
    pieces = torch.ceil((high - low) / longest).long()
    # Piece 1, 2, … of every stretch between two stops ends at an edge; the last of them at the stop itself.
    stretch = torch.repeat_interleave(pieces)
    number = torch.arange(1, len(stretch) + 1) - (pieces.cumsum(0) - pieces)[stretch]
    inner = low[stretch] + (high - low)[stretch] * number / pieces[stretch]
    edges = torch.cat([stops[:1], torch.where(number == pieces[stretch], high[stretch], inner)])
    return edges, torch.searchsorted(edges, times)


def panels_between(times: Tensor, stops: Tensor) -> tuple[Tensor, Tensor]:
    """Cut [0, last time] at every time and at every stop before the last time; returns as `even_panels` does."""
    edges = torch.unique(torch.cat([stops[stops < times.max()], times.new_zeros(1), times]))
    return edges, torch.searchsorted(edges, times)
