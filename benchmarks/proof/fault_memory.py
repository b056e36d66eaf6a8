"""What fits were said to need against what they took at their peak."""

from __future__ import annotations

import json
import os
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from fault_rounds import ended, forked, peak

from neuralsurv import NeuralSurv, PaperNeuralSurv, memory
from neuralsurv.errors import NeuralSurvWarning

FITS: dict[str, dict[str, Any]] = {
    "default, 2,500 rows, 5 columns": {"rows": 2500, "columns": 5},
    "default, 1,200 rows, 40 columns": {"rows": 1200, "columns": 40},
    "paper, 400 rows, 5 columns": {"rows": 400, "columns": 5, "preset": "paper", "starts": 1, "max_sweeps": 3},
    "paper, 150 rows, 20 columns, dual": {
        **{"rows": 150, "columns": 20, "preset": "paper", "starts": 1, "max_sweeps": 1, "hidden": (8,)},
        **{"quadrature": "gauss-legendre", "quadrature_points": 12, "solver": "dual"},
    },
}

ESTIMATORS: dict[str, type[NeuralSurv] | type[PaperNeuralSurv]] = {"default": NeuralSurv, "paper": PaperNeuralSurv}


def measured(rows: int, columns: int, preset: str = "default", **settings: Any) -> tuple[float, float]:
    """Return the estimate and the growth of the peak of one fit, in MiB, in a process of its own."""
    rng = np.random.default_rng(0)
    X, time, event = rng.normal(size=(rows, columns)), rng.uniform(0.05, 1, rows), rng.random(rows) < 0.5
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report"

        def work() -> None:
            said: list[float] = []
            # Every room asks for itself; the largest demand is that of the fit.
            for module in _askers():
                module.require = lambda needed, work, advice: said.append(needed)
            before = peak()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", NeuralSurvWarning)
                ESTIMATORS[preset](verbose=False, random_state=0, **settings).fit(X, (time, event))
            report.write_text(json.dumps([max(said) / 2**20, peak() - before]), encoding="ascii")

        code = ended(forked(work))
        if code:
            raise SystemExit(f"a fit of {rows} rows ended with code {code}")
        estimate, taken = json.loads(report.read_text(encoding="utf-8"))
    return estimate, taken


def _askers() -> list[Any]:
    from neuralsurv.inference import footprint

    return [footprint, memory]


def warm_up() -> None:
    """Fit once in this process, so that what is loaded at the first fit is not counted as the fit's own."""
    os.environ.pop(memory.VARIABLE, None)
    rng = np.random.default_rng(0)
    for estimator in ESTIMATORS.values():
        estimator(verbose=False, random_state=0, hidden=(2,)).fit(
            rng.normal(size=(30, 2)), (rng.uniform(0.1, 1, 30), np.arange(30) % 2 == 0)
        )
