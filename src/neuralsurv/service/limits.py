"""How much a request may ask for, and how long it may take."""

from __future__ import annotations

from dataclasses import dataclass, fields

from neuralsurv.errors import InputError

# Times may be asked for up to this many times the last training time. Further out a curve is a guess about a guess, the
# integrals up to there cost many times as much, and a restricted mean is read off steps that are too coarse.
FARTHEST = 10.0


@dataclass(frozen=True)
class Limits:
    """Limits of the service; a request beyond one is refused before any work is done for it."""

    body_bytes: int = 2**20  # of a request
    people: int = 1000
    times: int = 500
    cells: int = 50_000  # people times times: the size of an answer
    seconds: float = 30.0  # from the arrival of a request to its answer, waiting included
    body_seconds: float = 10.0  # from the first byte of a request to its last
    waiting: int = 128  # predictions that may wait or run at the same time

    def __post_init__(self) -> None:
        """Refuse limits that would refuse everything."""
        for field in fields(self):
            value = getattr(self, field.name)
            if not value > 0:
                raise InputError(f"the limit {field.name}={value!r} must be above 0.")
