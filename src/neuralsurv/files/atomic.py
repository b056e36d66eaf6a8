"""Atomic writes: a file is written under a temporary name beside its target and renamed when it is complete.

An error or Ctrl-C removes the temporary file at once. A killed process cannot, so the next write into the same folder
does: a file is locked while it is written, the system releases the lock when the process ends, and a partial file
without a lock is abandoned. A name can be reserved before there is a file, in the same way.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

try:
    import fcntl
except ImportError:  # Windows, which does not let go of an open file: what a killed process leaves there stays
    fcntl = None  # type: ignore[assignment]

_NAME = re.compile(r"\.neuralsurv-[0-9a-f]{16}\.(part|lock)")
_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
)


def destination(path: str | os.PathLike[str]) -> Path:
    """Return where a file of this name is written: the target of symbolic links, which are kept."""
    return Path(os.path.realpath(path))


def obstacle(path: str | os.PathLike[str]) -> str | None:
    """Return what is at a path if no file can take its place: "a folder", "a device" and so on; else None."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        # Symbolic links may form a loop.
        return "a symbolic link that leads nowhere" if os.path.islink(os.path.realpath(path)) else None
    return next((word for is_one, word in _KINDS if is_one(mode)), None)


@contextmanager
def held_name(target: Path) -> Iterator[bool]:
    """Hold the name of a file during the block, so that no two processes write the same one.

    Yields False if another process holds the name; True also where the system has no locks. `target` is as
    `destination` gives it.
    """
    digest = hashlib.sha256(os.fsencode(target.name)).hexdigest()[:16]
    path = target.parent / f".neuralsurv-{digest}.lock"
    while True:
        descriptor = _opened_lock(path)
        if descriptor is None:
            yield True
            return
        try:
            locked = _locked(descriptor)
            if locked is False:
                yield False
                return
            # Before it was locked, another process may have found the file and removed it; then try again.
            if locked is None or _is_at(descriptor, path):
                try:
                    yield True
                finally:
                    with contextlib.suppress(OSError):
                        os.unlink(path)
                return
        finally:
            os.close(descriptor)


def _opened_lock(path: Path) -> int | None:
    if fcntl is None:
        return None
    try:
        # In a shared folder, another user could have put a link or a pipe of this name there.
        return os.open(path, os.O_RDONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    except OSError:
        return None


def _locked(file: int | BinaryIO, *, wait: bool = False) -> bool | None:
    """Lock a file; return False if another process has it, and None where there are no locks."""
    if fcntl is None:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError:
        # Some network file systems have no locks.
        return None
    return True


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except OSError:
        return False


@contextmanager
def partial_file(folder: Path, *, private: bool = False) -> Iterator[tuple[Path, BinaryIO]]:
    """Open a new file in a folder; it is removed at the end of the block unless it has been renamed by then.

    Yields its name and the file, locked and, if `private`, only for the owner to read until then. What killed processes
    left in the folder is removed first.
    """
    remove_abandoned(folder)
    ours = False
    while not ours:
        path = folder / f".neuralsurv-{secrets.token_hex(8)}.part"
        with open(path, "xb") as file:
            try:
                if private and hasattr(os, "fchmod"):
                    os.fchmod(file.fileno(), 0o600)
                # Before it was locked, another process may have found the file and removed it; then try again.
                ours = not _locked(file, wait=True) or os.fstat(file.fileno()).st_nlink > 0
                if ours:
                    yield path, file
            finally:
                with contextlib.suppress(OSError):
                    os.unlink(path)


def put_in_place(path: Path, file: BinaryIO, target: Path, *, replace: bool = True) -> None:
    """Flush a partial file to the disk, then rename it to its target.

    With `replace` it may take the place of another file, whose owner and mode it then has; else FileExistsError is
    raised.
    """
    if replace:
        _take_after(file, target)
    file.flush()
    os.fsync(file.fileno())
    if fcntl is None:
        # Windows does not rename an open file. Elsewhere it stays open, and locked, so that no process removes it.
        file.close()
    if replace:
        os.replace(path, target)
    else:
        _take_free_name(path, target)
    # The new name too; not every system lets a folder be opened for that.
    with contextlib.suppress(OSError):
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _take_after(file: BinaryIO, target: Path) -> None:
    """Give a file the owner and the mode of the one it replaces."""
    if not hasattr(os, "fchmod"):
        return
    try:
        old = os.stat(target)
    except FileNotFoundError:
        return
    # Only the superuser can change the owner.
    with contextlib.suppress(OSError):
        os.fchown(file.fileno(), old.st_uid, old.st_gid)
    os.fchmod(file.fileno(), stat.S_IMODE(old.st_mode))


def _take_free_name(path: Path, target: Path) -> None:
    """Rename a file in one step, unless the name is taken."""
    try:
        os.link(path, target)
    except FileExistsError:
        raise
    except OSError:
        # A file system without hard links: an empty file reserves the name for a moment.
        os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        os.replace(path, target)


def remove_abandoned(folder: Path) -> None:
    """Remove the partial files and reserved names of processes that have ended."""
    with contextlib.suppress(OSError):
        for name in filter(_NAME.fullmatch, os.listdir(folder)):
            # Where locks do not work, the file is left.
            with contextlib.suppress(OSError), open(folder / name, "rb") as file:
                if _locked(file):
                    os.unlink(folder / name)
