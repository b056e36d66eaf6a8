r"""Time as hazards see it: a clock that runs in the logarithm of time, and a few bumps on it.

Hazards change by factors, quickly at first and slowly later, so the clock is :math:`z = (\log(t + \epsilon) - \mu)/s`,
centred and scaled with the event times. Close to 0 the shift :math:`\epsilon` keeps it finite and smooth.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

# The shift as a share of the median event time.
_SHIFT = 0.1
# In scaled time; keeps the clock finite where the events are crowded at 0.
_LEAST_SHIFT = 1e-6
_LEAST_SPREAD = 0.05
# Bumps sit between these quantiles of the event times, evenly in probability.
_FIRST, _LAST = 0.05, 0.95
_LEAST_WIDTH = 0.1


@dataclass(frozen=True)
class TimeBasis:
    """A clock and Gaussian bumps on it.

    Attributes
    ----------
    shift : float
        What is added to scaled time before the logarithm is taken.
    center, spread : float
        Mean and standard deviation of that logarithm over the events.
    bumps : tuple of float
        Centres of the bumps, on the clock.
    width : float
        Standard deviation of every bump, on the clock.

    Examples
    --------
    >>> import torch
    >>> from neuralsurv.model.time_basis import place_basis
    >>> times = torch.linspace(0.1, 1, 10, dtype=torch.float64)
    >>> basis = place_basis(times, torch.ones_like(times), bumps=3)
    >>> tuple(basis.columns(times).shape)
    (10, 4)
    """

    shift: float
    center: float
    spread: float
    bumps: tuple[float, ...]
    width: float

    @property
    def size(self) -> int:
        """Number of columns: the clock and the bumps."""
        return 1 + len(self.bumps)

    def clock(self, time: Tensor) -> Tensor:
        """Return what the clock shows at scaled times."""
        return (torch.log(time + self.shift) - self.center) / self.spread

    def columns(self, time: Tensor) -> Tensor:
        """Return the clock and the bumps at P scaled times, shape (P, 1 + bumps)."""
        clock = self.clock(time)[:, None]
        return torch.cat([clock, torch.exp(-0.5 * ((clock - clock.new_tensor(self.bumps)) / self.width) ** 2)], 1)

    def even_times(self, count: int, last: float) -> Tensor:
        """Return times from 0 on, evenly spaced on the clock, until `last` is reached.

        `count` of them lie within the training range, which ends at 1; those do not depend on `last`.
        """
        step = math.log1p(1 / self.shift) / (count - 1)
        needed = math.ceil(math.log1p(last / self.shift) / step - 1e-9) + 1
        return self.shift * torch.expm1(step * torch.arange(needed, dtype=torch.float64))


def place_basis(time: Tensor, weight: Tensor, bumps: int) -> TimeBasis:
    """Set the clock by the event times, and place bumps at evenly spaced quantiles of them.

    Parameters
    ----------
    time, weight : Tensor of shape (D,)
        Scaled times of the events, and their weights.
    bumps : int
        Number of bumps; 0 for the clock alone.
    """
    shift = max(_LEAST_SHIFT, _SHIFT * float(weighted_quantile(time, weight, time.new_tensor([0.5]))))
    clock = torch.log(time + shift)
    share = weight / weight.sum()
    center = float(share @ clock)
    spread = max(_LEAST_SPREAD, float((share @ (clock - center) ** 2).sqrt()))
    places = torch.linspace(_FIRST, _LAST, bumps, dtype=time.dtype)
    at = ((weighted_quantile(clock, weight, places) - center) / spread).tolist() if bumps else []
    width = max(_LEAST_WIDTH, (at[-1] - at[0]) / (bumps - 1)) if bumps > 1 else 1.0
    return TimeBasis(shift, center, spread, tuple(at), width)


def weighted_quantile(values: Tensor, weight: Tensor, at: Tensor) -> Tensor:
    """Return quantiles of weighted values; a value of weight 2 counts as the value twice.

    The distribution function is taken as linear between the middles of the jumps, and flat beyond the first and last.
    """
    distinct, which = torch.unique(values, return_inverse=True)
    mass = torch.zeros_like(distinct).index_add_(0, which, weight)
    middle = (mass.cumsum(0) - mass / 2) / mass.sum()
    return torch.from_numpy(np.interp(at.numpy(), middle.numpy(), distinct.numpy()))
