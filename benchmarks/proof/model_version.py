"""Which model a stored result is of: a digest of what it predicts, and the commit of its sources."""

from __future__ import annotations

import hashlib
import json
import subprocess
import warnings
from collections.abc import Callable
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import neuralsurv

_SOURCES = Path(neuralsurv.__file__).parent
_ROWS, _DRAWS, _TIMES = 60, 200, (5.0, 15.0, 40.0)


@cache
def commit() -> str:
    """Return the commit of the package's sources, with "+" where they were changed since; its version without git."""

    def git(*words: str) -> str:
        done = subprocess.run(["git", "-C", str(_SOURCES), *words], capture_output=True, text=True, check=True)
        return done.stdout.strip()

    try:
        return git("rev-parse", "--short=10", "HEAD") + ("+" if git("status", "--porcelain", ".") else "")
    except (OSError, subprocess.CalledProcessError):
        return version("neuralsurv")


def digest_of(make: Callable[..., Any]) -> str:
    """Return a digest of what a model predicts for a small cohort: another one after any change that moves a curve.

    Survival is rounded to three decimals: the last digits differ between machines.
    """
    from neuralsurv.data.simulate import accelerated_cohort

    cohort = accelerated_cohort(_ROWS, seed=20_261_118)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = make(draws=_DRAWS, verbose=False, random_state=0).fit(cohort.x, cohort.y)
        curves = model.predict_survival(cohort.x.head(4), _TIMES).mean.to_numpy()
    said = [[round(float(value), 3) for value in row] for row in curves]
    return hashlib.sha256(json.dumps(said).encode()).hexdigest()[:12]


@cache
def default_digest() -> str:
    """Return the digest of today's default model."""
    return digest_of(neuralsurv.NeuralSurv)
