"""The scales of the prior of the highest evidence, from the sums over the rows alone."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from neuralsurv.inference.stream.kept_directions import Information, KeptDirections
from neuralsurv.model.prior import Group

# Rounds of the search, each with one factorisation, and the change of a log scale at which it ends.
_ROUNDS = 20
_ENOUGH = 1e-6
# A Newton step of a log scale within a round is no longer than this.
_LONGEST_STEP = 1.0
# The effective number of parameters of a group is positive, whatever rounding does.
_LEAST_KNOWN = 1e-9


def learn_scales(directions: KeptDirections, information: Information, log_scales: Tensor) -> Tensor:
    """Return the log scales of the highest evidence, with the hyper-prior, shape (G,).

    There the scale s of a group of n directions solves Σ E z²/s² − n = (log s − median)/spread². In every round the
    effective number of parameters, n − Σ Var z/s², is fixed (MacKay 1992), which takes far fewer rounds than EM.
    """
    for _ in range(_ROUNDS):
        q = directions.posterior(information, log_scales)
        precision = directions.precision(log_scales)
        square = q.mean * (precision @ q.mean) * directions.scales(log_scales) ** 2
        known = 1 - (precision * (q.inverse_factor.T @ q.inverse_factor)).sum(0)
        found = []
        for k, group in enumerate(directions.prior.groups):
            part = directions.columns(group)
            count = float(known[part].sum())
            if group.start >= directions.leading:
                share = directions.mass_across * q.across / directions.tail_variance(log_scales)
                count += directions.count_across - share
            found.append(_best_scale(float(square[part].sum()), max(count, _LEAST_KNOWN), log_scales[k], group))
        new = torch.tensor(found, dtype=torch.float64)
        moved = float((new - log_scales).abs().max())
        log_scales = new
        if moved < _ENOUGH:
            break
    return log_scales


def _best_scale(square: float, count: float, start: Tensor, group: Group) -> float:
    """Solve square/s² − count = (log s − median)/spread² for log s by Newton's method."""
    log_scale = float(start)
    precision = group.spread**-2
    for _ in range(100):
        power = square * math.exp(-2 * log_scale)
        step = (power - count - (log_scale - math.log(group.median)) * precision) / (2 * power + precision)
        log_scale += max(-_LONGEST_STEP, min(_LONGEST_STEP, step))
        if abs(step) < 1e-12:
            break
    return log_scale
