"""The covariates of a model for clients: allowed values, training range and typical value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from neuralsurv.data.columns import Column
from neuralsurv.data.features import Encoding


@dataclass(frozen=True)
class Covariate:
    """One covariate."""

    column: Column  # how it is encoded
    # Of its training values, for a number; 0 and 1 for a category.
    mean: float
    spread: float
    typical: float | str  # the mean of a number, rounded; the commonest category

    @property
    def is_flag(self) -> bool:
        """Whether it is a category that holds nothing but true and false."""
        return self.column.kind == "category" and set(self.column.levels) <= {"True", "False"}

    @property
    def levels(self) -> list[Any]:
        """The values of a category as they are sent: true and false where these are all there is."""
        return [level == "True" for level in self.column.levels] if self.is_flag else list(self.column.levels)

    @property
    def sent(self) -> Any:
        """The typical value as it is sent."""
        return self.typical == "True" if self.is_flag else self.typical

    def described(self) -> dict[str, Any]:
        """Return it as plain data for ``/model``."""
        column = self.column
        shared = {"name": column.name, "kind": column.kind, "missing_allowed": column.has_missing, "typical": self.sent}
        if column.kind == "category":
            return {**shared, "levels": self.levels}
        span = None if column.low is None else {"low": column.low, "high": column.high}
        return {**shared, "training_range": span, "whole": column.whole, "mean": self.mean, "spread": self.spread}


def covariates_of(encoding: Encoding) -> tuple[Covariate, ...]:
    """Return the covariates of a model.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> from neuralsurv.data.features import Encoding
    >>> from neuralsurv.service.covariates import covariates_of
    >>> people = pd.DataFrame({"age": [61, 50, 72], "stage": ["II", "III", "III"]})
    >>> [covariate.typical for covariate in covariates_of(Encoding.fit(people, np.ones(3)))]
    [61.0, 'III']
    """
    found, place = [], 0
    for column in encoding.columns:
        center, scale = float(encoding.center[place]), float(encoding.scale[place])
        if column.kind == "number":
            found.append(Covariate(column, center, scale, _rounded(column, center, scale)))
        else:
            # The means of indicators are shares; of two levels only the second has one.
            shares = encoding.center[place : place + len(column.shown)]
            every = [1 - float(shares[0]), float(shares[0])] if len(column.levels) == 2 else shares.tolist()
            found.append(Covariate(column, 0.0, 1.0, column.levels[int(np.argmax(every))]))
        place += len(column.outputs)
    return tuple(found)


def _rounded(column: Column, center: float, scale: float) -> float:
    """Return a mean with no more digits than its spread gives reason for."""
    if column.whole:
        return float(round(center)) + 0.0
    digits = 1 - int(np.floor(np.log10(scale))) if 1e-300 < scale < 1e300 else 0
    value = round(center, digits) if abs(digits) < 300 else center
    if column.low is not None and column.high is not None:
        value = min(max(value, column.low), column.high)
    return float(value) + 0.0  # without the sign of a zero
