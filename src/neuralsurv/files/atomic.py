"""Files on their way to a name: written beside it, and gone if they never get there, however the process ends.

An error or Ctrl-C takes the file away at once. A process that is killed cannot, so whoever next writes into the same
folder does: a file is locked while it is written, the system takes the lock back when a process ends, and a partial
file that nobody holds is nobody's. A name can be held before there is a file, in the same way.
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
    """Return where a file of this name is written: where symbolic links lead, so that they stay what they are."""
    return Path(os.path.realpath(path))


def obstacle(path: str | os.PathLike[str]) -> str | None:
    """Return what is at a path if no file can take its place: "a folder", "a device" and so on; else None."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        # Links that lead to each other have no end.
        return "a symbolic link that leads nowhere" if os.path.islink(os.path.realpath(path)) else None
    return next((word for is_one, word in _KINDS if is_one(mode)), None)


@contextmanager
def held_name(target: Path) -> Iterator[bool]:
    """Hold the name of a file during the block, so that no two processes make the same one.

    Parameters
    ----------
    target : Path
        The file, which need not exist, as `destination` gives it.

    Yields
    ------
    bool
        False if another process holds the name. True also where the system has no locks.
    """
    digest = hashlib.sha256(os.fsencode(target.name)).hexdigest()[:16]
    path = target.parent / f".neuralsurv-{digest}.lock"
    while True:
        descriptor = _opened_lock(path)
        if descriptor is None:
            yield True
            return
        try:
            locked = _try_lock(descriptor)
            if locked is False:
                yield False
                return
            # Before it was locked, another process may have found the file and taken it away; then anew.
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
        # In a folder of many users, a link or a pipe of this name could have been laid by another one.
        return os.open(path, os.O_RDONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    except OSError:
        return None


def _try_lock(descriptor: int) -> bool | None:
    """Lock a file and return whether that worked, or None where there are no locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except OSError:
        return False


@contextmanager
def partial_file(folder: Path, *, private: bool = False) -> Iterator[tuple[Path, BinaryIO]]:
    """Open a new file in a folder; it is taken away at the end of the block unless it has been renamed by then.

    Parameters
    ----------
    folder : Path
        Where; what killed processes left there is taken away first.
    private : bool
        Whether nobody else may read it before it has its name.

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
                if private and hasattr(os, "fchmod"):
                    os.fchmod(file.fileno(), 0o600)
                # Before it was locked, another process may have found the file and taken it away; then anew.
                ours = not _lock(file) or os.fstat(file.fileno()).st_nlink > 0
                if ours:
                    yield path, file
            finally:
                with contextlib.suppress(OSError):
                    os.unlink(path)


def put_in_place(path: Path, file: BinaryIO, target: Path, *, replace: bool = True) -> None:
    """See a partial file onto the disk, and then give it its name.

    Parameters
    ----------
    path, file
        The partial file.
    target : Path
        Its name, as `destination` gives it.
    replace : bool
        Whether it may take the place of another file, whose owner and mode it then has; else FileExistsError is raised.
    """
    if replace:
        _take_after(file, target)
    file.flush()
    os.fsync(file.fileno())
    if fcntl is None:
        # Windows does not rename an open file. Elsewhere it stays open, for without its lock it would be nobody's.
        file.close()
    if replace:
        os.replace(path, target)
    else:
        _take_free_name(path, target)
    # The name too. Not every system lets a folder be opened for that.
    with contextlib.suppress(OSError):
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _take_after(file: BinaryIO, target: Path) -> None:
    """Give a file the owner and the mode of the one whose place it takes."""
    if not hasattr(os, "fchmod"):
        return
    try:
        old = os.stat(target)
    except FileNotFoundError:
        return
    # Only the superuser can give a file away; for others it stays their own.
    with contextlib.suppress(OSError):
        os.fchown(file.fileno(), old.st_uid, old.st_gid)
    os.fchmod(file.fileno(), stat.S_IMODE(old.st_mode))


def _take_free_name(path: Path, target: Path) -> None:
    """Give a file a name that no other file has, in one step."""
    try:
        os.link(path, target)
    except FileExistsError:
        raise
    except OSError:
        # A file system without hard links: the name is taken first, and is empty for a moment.
        os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        os.replace(path, target)


def remove_abandoned(folder: Path) -> None:
    """Take away the partial files and the held names of processes that are no more."""
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
