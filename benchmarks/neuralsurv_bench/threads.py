"""One thread for each job: the jobs themselves are what runs in parallel."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")


def ask_for_one_thread() -> None:
    """Set what libraries read when they are first imported; workers that are started later inherit it."""
    for name in _VARIABLES:
        os.environ[name] = "1"


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch, the linear algebra libraries and numba use one thread in this block; restore the setting after it."""
    # numba may not be imported yet, and reads this when it is.
    os.environ.setdefault("NUMBA_NUM_THREADS", "1")
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    numba = sys.modules.get("numba")
    numba_before = None if numba is None else numba.get_num_threads()
    if numba is not None:
        numba.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        torch.set_num_threads(before)
        if numba is not None:
            numba.set_num_threads(numba_before)
