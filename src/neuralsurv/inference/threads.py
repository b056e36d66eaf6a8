"""The number of threads of torch: work on small tensors is faster with one, which has nothing to synchronise."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Lock, Thread, local

import torch

# Below this many numbers in the largest tensor of a step, one thread was faster than two on every problem tried.
_WORTH_SEVERAL_THREADS = 2_000_000


class _Here(local):
    """What this Python thread is doing: in how many blocks it is, and its setting before the first of them."""

    blocks = 0
    before = 1


_here = _Here()
# Held while torch's setting for new threads is not what it was, so that no thread of ours starts with it.
_lock = Lock()


@contextmanager
def threads_for(numbers: int) -> Iterator[None]:
    """Let torch use one thread in this block if its largest tensor holds few numbers; restore the setting after it.

    Only the Python thread that runs the block is limited. Blocks may be nested, and may overlap in several Python
    threads, as those of fits under joblib's threading backend do; each thread gets back its own setting. The number of
    threads is never raised, so that a worker which joblib gave one core to stays within it.
    """
    if numbers >= _WORTH_SEVERAL_THREADS:
        yield
        return
    if _here.blocks == 0:
        # This may be what makes torch known to a new thread.
        with _lock:
            _here.before = torch.get_num_threads()
    _here.blocks += 1
    try:
        if torch.get_num_threads() > 1:
            _set_here(1)
        yield
    finally:
        _here.blocks -= 1
        if _here.blocks == 0 and _here.before != torch.get_num_threads():
            _set_here(_here.before)


def _set_here(number: int) -> None:
    """Set the number of threads that torch uses in this Python thread, and in no other.

    A Python thread that uses torch for the first time takes over the last number that was set anywhere, for good. So
    the limit of one fit would stay with whatever thread happens to start meanwhile. A helper, itself such a new thread,
    sees what new threads get, and sets that again after the change.
    """
    seen, changed = Event(), Event()

    def keep_for_new_threads() -> None:
        usual = torch.get_num_threads()
        seen.set()
        changed.wait()
        torch.set_num_threads(usual)

    with _lock:
        helper = Thread(target=keep_for_new_threads, daemon=True)
        helper.start()
        try:
            seen.wait()
            torch.set_num_threads(number)
        finally:
            changed.set()
            helper.join()


def _use_one_thread_after_a_fork() -> None:
    """Keep a forked child from waiting for threads that only its parent has.

    OpenMP's threads do not survive a fork, but the child's copy of its bookkeeping lists them, and the first piece of
    work that is shared out waits for them forever. With one thread nothing is shared out.
    """
    global _lock
    # Another thread of the parent may have held it.
    _lock = Lock()
    _here.before = 1
    torch.set_num_threads(1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_use_one_thread_after_a_fork)
