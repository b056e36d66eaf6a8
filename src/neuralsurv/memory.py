"""How much memory is available, and work that is refused because it would need more.

A process that allocates too much is killed by the system without a message, or slows the machine to a halt. What a fit
or a prediction will allocate is known from its sizes, so that it can be refused before anything is lost.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from neuralsurv.errors import InputError, NotEnoughMemoryError

# Overrides what the system reports, in GiB.
VARIABLE = "NEURALSURV_MEMORY_GIB"
# Less than this is not worth asking the system for, before each of thousands of small predictions.
_NEGLIGIBLE = 16 * 2**20
# A control group without a limit says so by a number of this size or more.
_NO_LIMIT = 2**60
# What torch says when an allocation fails; numpy raises MemoryError.
_TORCH_SAYS = ("can't allocate memory", "not enough memory")


def available(root: Path = Path("/")) -> float | None:
    """Return how many bytes this process may still allocate, or None where the system does not say.

    The least of: what the machine has left, what the control groups (containers, batch systems) leave, and what the
    limits on the process's own address space and data leave. The environment variable ``NEURALSURV_MEMORY_GIB``
    overrides all of them. `root` is where the file systems ``proc`` and ``sys`` are mounted; another one only in tests.
    """
    stated = os.environ.get(VARIABLE)
    if stated is not None:
        try:
            gib = float(stated)
        except ValueError:
            gib = -1.0
        if not gib >= 0:
            raise InputError(f"the environment variable {VARIABLE}={stated!r} must be a number of GiB, 0 or more.")
        return gib * 2**30
    found = [_of_machine(root), _of_groups(root), _of_process(root)]
    known = [left for left in found if left is not None]
    return max(0.0, min(known)) if known else None


def require(needed: float, work: str, advice: str) -> None:
    """Refuse work that needs more bytes than are available; the message is "{work} needs about …" and the advice."""
    if needed < _NEGLIGIBLE:
        return
    there = available()
    if there is not None and needed > there:
        raise NotEnoughMemoryError(
            f"{work} needs about {_words(needed)} of memory, and {_words(there)} are available. {advice} If less is "
            f"needed than that, set the environment variable {VARIABLE} to what may be used."
        )


@contextmanager
def explained(work: str, advice: str) -> Iterator[None]:
    """Turn an allocation that fails inside the block into a :class:`NotEnoughMemoryError`."""
    try:
        yield
    except NotEnoughMemoryError:
        raise
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and not any(words in str(error) for words in _TORCH_SAYS):
            raise
        raise NotEnoughMemoryError(f"{work} ran out of memory: {error}. {advice}") from error


def _words(size: float) -> str:
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 else f"{size / 2**20:.0f} MiB"


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""


def _table(text: str, separator: str | None = None) -> dict[str, str]:
    """Return a file of names and values as a table."""
    pairs = (line.split(separator, 1) for line in text.splitlines())
    return {pair[0].strip(): pair[1].strip() for pair in pairs if len(pair) == 2}


def _of_machine(root: Path) -> float | None:
    """Return what all processes together may still allocate: free or reclaimable memory, and free swap."""
    found = _table(_read(root / "proc/meminfo"), ":")
    if "MemAvailable" not in found:
        return None
    return sum(1024.0 * int(found.get(name, "0 kB").split()[0]) for name in ("MemAvailable", "SwapFree"))


def _of_groups(root: Path) -> float | None:
    """Return what the control groups of this process, of either version, leave it."""
    left = []
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        if controllers and "memory" not in controllers.split(","):
            continue
        base = root / "sys/fs/cgroup" / ("memory" if controllers else "")
        names = ("memory.limit_in_bytes", "memory.usage_in_bytes") if controllers else ("memory.max", "memory.current")
        # A limit holds for all groups below it. Inside a container the path may lead nowhere: then its root is ours.
        folder = base / path.strip("/")
        for group in [folder, *folder.parents]:
            limit, used = (_read(group / name).strip() for name in names)
            if limit.isdigit() and used.isdigit() and int(limit) < _NO_LIMIT:
                cache = _table(_read(group / "memory.stat"))
                reclaimable = cache.get("total_inactive_file", cache.get("inactive_file", "0"))
                left.append(float(int(limit) - int(used) + int(reclaimable)))
            if group == base:
                break
    return min(left) if left else None


def _of_process(root: Path) -> float | None:
    """Return what the limits on address space and data of this process leave it."""
    if sys.platform == "win32":
        return None
    import resource

    sizes = _read(root / "proc/self/statm").split()
    if len(sizes) < 6:
        return None
    page = os.sysconf("SC_PAGE_SIZE")
    left = []
    for limit, pages in ((resource.RLIMIT_AS, sizes[0]), (resource.RLIMIT_DATA, sizes[5])):
        soft = resource.getrlimit(limit)[0]
        if soft != resource.RLIM_INFINITY:
            left.append(float(soft - page * int(pages)))
    return min(left) if left else None
