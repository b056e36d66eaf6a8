r"""Anderson extrapolation: where a fixed-point iteration leads, guessed from its last few steps.

Of the last steps from :math:`x_k` to :math:`g_k`, those combinations of the differences are taken that best cancel the
last change :math:`g_k - x_k`; what the same combination does to :math:`g_k` is the guess. For a linear map in a few
dimensions it is exact.

References
----------
H. F. Walker, P. Ni (2011), Anderson acceleration for fixed-point iterations.
"""

from __future__ import annotations

from collections import deque

import torch
from torch import Tensor

# Relative to the trace: differences that are nearly the same are not distinguished below it.
_RIDGE = 1e-10


class Anderson:
    """The memory of a fixed-point iteration of n numbers: the last `depth` differences of steps.

    `weight`, shape (n,), is how much each number counts in the length of a change.

    Examples
    --------
    >>> import torch
    >>> from neuralsurv.inference.optimise.anderson import Anderson
    >>> memory = Anderson(torch.ones(1, dtype=torch.float64))
    >>> for start in (0.0, 1.0):  # x -> x / 2 + 1, which leads to 2
    ...     memory.add(torch.tensor([start], dtype=torch.float64), torch.tensor([start / 2 + 1], dtype=torch.float64))
    >>> round(float(memory.guess()), 6)
    2.0
    """

    def __init__(self, weight: Tensor, depth: int = 5) -> None:
        self._root = weight.sqrt()
        self._ends: deque[Tensor] = deque(maxlen=depth + 1)
        self._changes: deque[Tensor] = deque(maxlen=depth + 1)

    def add(self, start: Tensor, end: Tensor) -> None:
        """Learn from a step."""
        self._ends.append(end)
        self._changes.append(self._root * (end - start))

    def forget(self) -> None:
        """Forget all steps."""
        self._ends.clear()
        self._changes.clear()

    def guess(self) -> Tensor | None:
        """Return where the iteration leads; None before it has two steps that differ."""
        if len(self._ends) < 2:
            return None
        changes, ends = (torch.stack(list(kept)) for kept in (self._changes, self._ends))
        bends = changes.diff(dim=0)
        gram = bends @ bends.T
        size = float(gram.trace())
        if not size > 0:
            return None
        gram.diagonal().add_(_RIDGE * size)
        shares: Tensor = torch.linalg.solve(gram, bends @ changes[-1])
        return ends[-1] - shares @ ends.diff(dim=0)
