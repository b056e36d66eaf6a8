"""How many threads torch may use: small tensors are handled faster by one than by a team that has to meet."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

import torch

# Below this many numbers in the largest tensor of a step, one thread was faster than two on every problem tried.
_WORTH_A_TEAM = 2_000_000

# The number of threads is a setting of the whole process. With several fits in threads of one process (joblib's
# threading backend), the first to ask for one thread notes the setting and the last to finish restores it.
_lock = Lock()
_asking = 0
_before = 0


@contextmanager
def threads_for(numbers: int) -> Iterator[None]:
    """Let torch use one thread in this block if its largest tensor holds few numbers; restore the setting after it.

    The number of threads is never raised, so that a worker which joblib gave one core to stays within it.

    Parameters
    ----------
    numbers : int
        Size of the largest tensor of the work inside.
    """
    global _asking, _before
    if numbers >= _WORTH_A_TEAM:
        yield
        return
    with _lock:
        if _asking == 0:
            _before = torch.get_num_threads()
            torch.set_num_threads(1)
        _asking += 1
    try:
        yield
    finally:
        with _lock:
            _asking -= 1
            if _asking == 0:
                torch.set_num_threads(_before)
