"""Kaplan–Meier: one curve for everybody, the floor that a method with covariates has to beat."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from lifelines import KaplanMeierFitter

from neuralsurv_bench.methods.interface import Fitted, Floats, Method, Settings, Split


def read_steps(knots: Floats, values: Floats, times: Floats, before: float = 1.0) -> Floats:
    """Read right-continuous step functions.

    Parameters
    ----------
    knots : ndarray of shape (k,)
        Increasing times at which the functions jump.
    values : ndarray of shape (..., k)
        Value from each knot until the next one; the last value holds for ever.
    times : ndarray of shape (T,)
        When to read, in any order.
    before : float
        Value before the first knot.

    Returns
    -------
    ndarray of shape (..., T)
    """
    first = np.full((*values.shape[:-1], 1), before)
    with_start: Floats = np.concatenate([first, values], axis=-1)
    return with_start[..., np.searchsorted(knots, times, side="right")]


@dataclass(frozen=True)
class OneCurve:
    """The same step curve for every row."""

    knots: Floats
    values: Floats

    def survival(self, x: Floats, times: Floats) -> Floats:
        """Return S(t), the same in each of the rows of `x`."""
        return np.tile(read_steps(self.knots, self.values, times), (len(x), 1))

    def risk(self, x: Floats) -> None:
        """Return None: there are curves."""


def _fit(split: Split, settings: Settings) -> Fitted:
    curve = KaplanMeierFitter().fit(split.train.time, split.train.event).survival_function_["KM_estimate"]
    return OneCurve(curve.index.to_numpy(float), curve.to_numpy(float))


METHODS = (
    Method(
        name="Kaplan-Meier",
        family="classical",
        fit=_fit,
        variants={"fair": "lifelines' Kaplan–Meier estimate of the training rows, covariates ignored"},
    ),
)
