"""Files on their way to a name: written beside it, and gone if they never get there, however the process ends.

An error or Ctrl-C takes the file away at once. A process that is killed cannot, so whoever next writes into the same
folder does: a file is locked while it is written, the system takes the lock back when a process ends, and a partial
file that nobody holds is nobody's.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

try:
    import fcntl
except ImportError:  # Windows, which does not let go of an open file: what a killed process leaves there stays
    fcntl = None  # type: ignore[assignment]

_NAME = re.compile(r"\.neuralsurv-[0-9a-f]{16}\.part")


@contextmanager
def partial_file(folder: Path) -> Iterator[tuple[Path, BinaryIO]]:
    """Open a new file in a folder; it is taken away at the end of the block unless it has been renamed by then.

    Parameters
    ----------
    folder : Path
        Where; what killed processes left there is taken away first.

    Yields
    ------
    path, file
        Its name and the file, open for writing and locked.
    """
    remove_abandoned(folder)
    ours = False
    while not ours:
        path = folder / f".neuralsurv-{secrets.token_hex(8)}.part"
        with open(path, "xb") as file:
            try:
                # Before it was locked, another process may have found the file and taken it away; then anew.
                ours = not _lock(file) or os.fstat(file.fileno()).st_nlink > 0
                if ours:
                    yield path, file
            finally:
                with contextlib.suppress(OSError):
                    os.unlink(path)


def put_in_place(path: Path, file: BinaryIO, target: Path) -> None:
    """See a partial file onto the disk, and then give it its name, in place of what may have it."""
    file.flush()
    os.fsync(file.fileno())
    if fcntl is None:
        # Windows does not rename an open file. Elsewhere it stays open, for without its lock it would be nobody's.
        file.close()
    os.replace(path, target)
    # The name too. Not every system lets a folder be opened for that.
    with contextlib.suppress(OSError):
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def remove_abandoned(folder: Path) -> None:
    """Take away the partial files of processes that are no more."""
    if fcntl is None:
        return
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            if _NAME.fullmatch(name):
                _remove_unlocked(folder / name)


def _lock(file: BinaryIO) -> bool:
    """Lock a file and return whether that worked; some network file systems have no locks."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
    except OSError:
        return False
    return True


def _remove_unlocked(path: Path) -> None:
    """Take a file away if nobody holds a lock on it; where locks do not work, leave it."""
    with contextlib.suppress(OSError), open(path, "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.unlink(path)
