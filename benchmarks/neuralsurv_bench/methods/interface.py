"""What every method of the benchmark offers: fit on the rows of a split, then survival curves at given times."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

Variant = Literal["as-published", "fair"]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Rows:
    """Rows of a cohort, prepared.

    Attributes
    ----------
    x : ndarray of shape (n, d)
        Covariates as the method may use them (prepared with the training rows only).
    time : ndarray of shape (n,)
        Observed times in the unit of the cohort.
    event : ndarray of bool, shape (n,)
        Whether the event was seen.
    """

    x: Floats
    time: Floats
    event: NDArray[np.bool_]

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.time)

    def __add__(self, other: Rows) -> Rows:
        """Return these rows, then the others."""
        return Rows(
            np.concatenate([self.x, other.x]),
            np.concatenate([self.time, other.time]),
            np.concatenate([self.event, other.event]),
        )


@dataclass(frozen=True)
class Split:
    """One fold: the rows to learn from, to stop by, and to be scored on.

    A method that has no use for validation rows may add them to its training rows only where the experiment says so
    (`validation` is then empty already); as in the paper, none looks at `test`.
    """

    train: Rows
    validation: Rows
    test: Rows
    columns: tuple[str, ...]


class Fitted(Protocol):
    """A fitted method."""

    def survival(self, x: Floats, times: Floats) -> Floats | None:
        """Return S(t | x), shape (len(x), len(times)), or None if the method has no survival curves.

        `times` are increasing and ≥ 0, in the unit of the cohort.
        """
        ...

    def risk(self, x: Floats) -> Floats | None:
        """Return one risk score a row (higher is sooner) where the method has no curves, else None."""
        ...


@dataclass(frozen=True)
class Settings:
    """What an experiment asks of a method.

    Attributes
    ----------
    variant : {"as-published", "fair"}
        With the handicaps of the published benchmark, or repaired.
    hidden : tuple of int
        Widths of the hidden layers of methods that have a network.
    seed : int
        Seeds every random choice of the method.
    """

    variant: Variant = "fair"
    hidden: tuple[int, ...] = (16, 16)
    seed: int = 0


@dataclass(frozen=True)
class Method:
    """A method by name.

    Attributes
    ----------
    name : str
        As in the paper's tables where it is there.
    family : {"ours", "deep", "classical"}
        Which table it belongs to.
    fit : callable
        Takes a `Split` and `Settings`, returns a `Fitted`. Must not touch global state that other methods see
        (random generators of numpy and torch are seeded by the runner before and need not be restored).
    variants : mapping of variant to sentence
        The variants there are and what each does; a method that the paper's benchmark does not handicap has "fair" only
        if it is not in the paper, and both with the same sentence if it is.
    slow : bool
        Left out of the repeated experiment unless asked for.
    """

    name: str
    family: Literal["ours", "deep", "classical"]
    fit: Callable[[Split, Settings], Fitted]
    variants: Mapping[Variant, str] = field(default_factory=lambda: {"fair": "as the package offers it"})
    slow: bool = False
