"""The time limit of a request."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

from neuralsurv.errors import OutOfTimeError


@dataclass
class Deadline:
    """The time at which work for a request stops, by the clock of :func:`time.monotonic`."""

    end: float

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        """Return the deadline a number of seconds from now."""
        return cls(time.monotonic() + seconds)

    @property
    def left(self) -> float:
        """Seconds that are left, 0 or more."""
        return max(0.0, self.end - time.monotonic())

    def give_up(self) -> None:
        """Expire now: the client has disconnected, or has been answered otherwise."""
        self.end = -math.inf

    def check(self) -> None:
        """Raise an error if it has passed."""
        if time.monotonic() > self.end:
            raise OutOfTimeError("the prediction took longer than allowed; ask for fewer people, times or quantities.")
