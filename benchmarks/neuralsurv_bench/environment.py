"""Versions and machine behind a result, without anything that names whose machine it was."""

from __future__ import annotations

import os
import platform
import re
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = (
    "neuralsurv",
    "torch",
    "numpy",
    "scipy",
    "pandas",
    "scikit-learn",
    "scikit-survival",
    "lifelines",
    "pycox",
    "torchtuples",
    "torchsurv",
    "SurvivalEVAL",
    "joblib",
)


@lru_cache(maxsize=1)
def environment() -> dict[str, Any]:
    """Return the versions of Python and of the packages that results depend on, and the kind of machine."""
    return {
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "machine": {
            "system": platform.system(),
            "architecture": platform.machine(),
            "processor": _processor(),
            "cores": os.cpu_count(),
            "memory_gib": _memory_gib(),
        },
    }


def without_paths(text: str) -> str:
    """Return `text` with the folders of every absolute path cut off: they name the machine, not the mistake.

    Examples
    --------
    >>> from neuralsurv_bench.environment import without_paths
    >>> without_paths("no such file: /home/somebody/data/rows.csv")
    'no such file: …/rows.csv'
    """
    return re.sub(r"(?<![\w/:.])(?:[A-Za-z]:)?[/\\](?:[\w.@+~ -]+[/\\])+", "…/", text)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    if information.exists():
        found = re.search(r"^model name\s*:\s*(.+)$", information.read_text(encoding="utf-8"), re.MULTILINE)
        if found:
            return found.group(1)
    return platform.processor()


def _memory_gib() -> int | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30)
    except (AttributeError, OSError, ValueError):
        return None
