"""Missing covariates: every draw fills them with other values, distributed like those of the training rows."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from neuralsurv.data.features import Encoding
from neuralsurv.posterior.gaussian import Draws

# For each person the names of the covariates that were missing; empty where no value is missing.
Filled = tuple[tuple[str, ...], ...]


def over_imputations(
    encoding: Encoding, draws: Draws, x: Tensor, compute: Callable[[Draws, Tensor, Tensor], Tensor]
) -> Tensor:
    """Compute a quantity for rows with missing values, imputing other values in each draw.

    What is not known about a person thus widens the band. Draw s uses completion s modulo their number, the same for
    everyone, so two people who lack the same value are compared as if they had the same one. `compute` goes from draws,
    complete rows and their positions in x to values of shape (draws, rows, …).
    """
    gaps = torch.isnan(x)
    lacking = gaps.any(1)
    whole, rows = torch.nonzero(~lacking)[:, 0], torch.nonzero(lacking)[:, 0]
    if len(rows) == 0:
        return compute(draws, x, whole)
    imputations = torch.from_numpy(encoding.imputations())[: len(draws)]
    parts = [
        compute(draws.take(slice(k, None, len(imputations))), torch.where(gaps[rows], values, x[rows]), rows)
        for k, values in enumerate(imputations)
    ]
    out = parts[0].new_empty(len(draws), len(x), *parts[0].shape[2:])
    for k, part in enumerate(parts):
        out[torch.arange(k, len(draws), len(parts))[:, None], rows] = part
    if len(whole):
        out[:, whole] = compute(draws, x[whole], whole)
    return out


def union(*names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of several lists, each once."""
    return tuple(dict.fromkeys(name for group in names for name in group))


def union_by_person(a: Filled, b: Filled) -> Filled:
    """Return for each person the names in either list; an empty list has no names for anyone."""
    return tuple(union(*pair) for pair in zip(a, b, strict=True)) if a and b else a or b
