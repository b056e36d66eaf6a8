"""How many threads torch may use: small tensors are handled faster by one than by a team that has to meet."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

# Below this many numbers in the largest tensor of a step, one thread was faster than two on every problem tried.
_WORTH_A_TEAM = 2_000_000


@contextmanager
def threads_for(numbers: int) -> Iterator[None]:
    """Let torch use one thread in this block if its largest tensor holds few numbers; restore the setting after it.

    Parameters
    ----------
    numbers : int
        Size of the largest tensor of the work inside.
    """
    before = torch.get_num_threads()
    if numbers < _WORTH_A_TEAM:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
