"""The options of a streamed fit, and the plan that they lead to for a number of rows."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from neuralsurv.arguments import one_of, whole_number
from neuralsurv.errors import InputError
from neuralsurv.inference.stream.kept_directions import KEEP_ALL
from neuralsurv.inference.stream.packed_rows import BLOCK_ROWS

METHODS = ("auto", "exact", "mini-batch")
# Up to this many rows "auto" sweeps over all of them; that takes about three times as many passes as the steps.
_ROWS_FOR_SWEEPS = 200_000
# Rows that feature learning processes in all, by default.
_ROWS_TO_LEARN_FROM = 2_000_000
_MOST_TRAINING_PASSES = 50
_PASSES = 2
_BATCH_ROWS = 4096
_TRAINING_ROWS = 256
_RATE = 5e-3
_DIRECTIONS = 200


@dataclass(frozen=True)
class StreamPlan:
    """The plan of a streamed fit."""

    exact: bool  # whether the posterior comes from sweeps over all rows, or from natural-gradient steps on mini-batches
    training_passes: int  # passes of feature learning; 0 leaves the network at its random draw
    passes: int  # passes of the natural-gradient steps
    # Blocks of rows in a step of feature learning, and of the posterior.
    training_blocks: int
    blocks: int
    rate: float  # largest learning rate of feature learning
    directions: int  # largest number of directions of the network that the posterior keeps
    keep_all: int  # up to this many weights, all are kept


@dataclass(frozen=True)
class StreamSettings:
    """Options of a streamed fit; None leaves a choice to the number of rows."""

    method: str  # sweeps over all rows, or steps on mini-batches: "auto", "exact" or "mini-batch"
    # Passes of feature learning, and of the natural-gradient steps.
    training_passes: int | None
    passes: int | None
    # Rows per step of either.
    batch_size: int | None
    training_batch_size: int | None
    directions: int | None  # largest number of directions of the network that the posterior keeps
    modes: int  # of the posterior

    def check(self) -> None:
        """Refuse invalid options."""
        one_of("method", self.method, METHODS)
        for name, number in asdict(self).items():
            if name != "method" and number is not None:
                whole_number(name, number, least=0 if name == "training_passes" else 1)
                if name.endswith("batch_size") and number % BLOCK_ROWS:
                    raise InputError(f"{name}={number!r} must be a multiple of {BLOCK_ROWS}.")
        if self.training_passes == 0 and self.training_batch_size is not None:
            raise InputError(
                f"training_batch_size={self.training_batch_size!r} does nothing with training_passes=0; leave it out."
            )

    def check_method(self, method: str) -> None:
        """Refuse options that only another method uses."""
        given = {"passes": self.passes, "batch_size": self.batch_size}
        for name, number in given.items():
            if number is not None and method == "exact":
                raise InputError(
                    f"{name}={number!r} is for steps on samples of the rows, and this fit sweeps over all of them; "
                    "leave it out, or set method='mini-batch'."
                )

    def plan(self, rows: int) -> StreamPlan:
        """Return the plan for a number of rows."""
        passes = max(1, min(_MOST_TRAINING_PASSES, round(_ROWS_TO_LEARN_FROM / rows)))
        return StreamPlan(
            exact=self.method == "exact" or (self.method == "auto" and rows <= _ROWS_FOR_SWEEPS),
            training_passes=_or(self.training_passes, passes),
            passes=_or(self.passes, _PASSES),
            training_blocks=_or(self.training_batch_size, _TRAINING_ROWS) // BLOCK_ROWS,
            blocks=_or(self.batch_size, _BATCH_ROWS) // BLOCK_ROWS,
            rate=_RATE,
            directions=_or(self.directions, _DIRECTIONS),
            # A small number that was asked for is a limit for small networks as well.
            keep_all=min(KEEP_ALL, _or(self.directions, KEEP_ALL)),
        )


def _or(number: int | None, usual: int) -> int:
    return usual if number is None else int(number)
