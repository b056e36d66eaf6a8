"""How much time and memory a fit of a network of a million weights takes, in a process of its own.

A network of dense layers, given as a custom module, all of whose weights are Bayesian, is fitted to a simulated
cohort with the default model; then curves with bands are predicted for a few people. One line of JSON goes to the file
given by ``--out``. Run as ``python benchmarks/memory/million_weights.py``; ``--width 100`` makes it quick.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import sys
import time
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

COVARIATES = 4
PACKAGES = ("neuralsurv", "torch", "numpy", "pandas")
MIB = 2**20


def peak() -> float:
    """Return the peak resident memory of this process, in MiB."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / MIB


def run(rows: int, width: int, people: int, draws: int, epochs: int) -> dict[str, Any]:
    """Fit, predict and measure."""
    import warnings

    import numpy as np
    import torch
    from torch import Tensor, nn

    from neuralsurv import NeuralSurv, OwnNetwork
    from neuralsurv.data.simulate import lognormal_cohort
    from neuralsurv.errors import NeuralSurvWarning

    class Wide(nn.Module):
        """Two hidden layers of equal width."""

        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(
                nn.Linear(COVARIATES + 1, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 1)
            )

        def forward(self, t: Tensor, x: Tensor) -> Tensor:
            out: Tensor = self.layers(torch.cat([t[:, None], x], 1))
            return out

    cohort = lognormal_cohort(rows, noise=COVARIATES - 1, seed=0)
    torch.manual_seed(0)
    network = OwnNetwork(Wide(), epochs=epochs)
    model = NeuralSurv(network=network, draws=draws, average=False, verbose=False, random_state=0)
    before, began, busy = peak(), time.perf_counter(), time.process_time()
    with warnings.catch_warnings():
        # That some information is left out is among the results.
        warnings.simplefilter("ignore", NeuralSurvWarning)
        model.fit(cohort.x, cohort.y)
    fitted, fit_seconds, fit_busy = peak(), time.perf_counter() - began, time.process_time() - busy
    began, busy = time.perf_counter(), time.process_time()
    low, high = model.predict_survival(cohort.x.head(people), np.linspace(0, model.time_scale_, 20)).interval(0.9)
    return {
        "weights": model.posterior_.network.size,
        "directions": model.diagnostics_.rank,
        "lost_information": round(model.diagnostics_.lost_information, 2),
        "band_width": round(float((high.to_numpy() - low.to_numpy()).mean()), 3),
        "before_mib": round(before, 1),
        "fitted_mib": round(fitted, 1),
        "predicted_mib": round(peak(), 1),
        "fit_seconds": round(fit_seconds, 1),
        "fit_cpu_seconds": round(fit_busy, 1),
        "predict_seconds": round(time.perf_counter() - began, 1),
        "predict_cpu_seconds": round(time.process_time() - busy, 1),
        "threads": torch.get_num_threads(),
    }


def main(arguments: list[str] | None = None) -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200, help="rows of the cohort (default: 200)")
    parser.add_argument("--width", type=int, default=1000, help="units of each hidden layer (default: 1000)")
    parser.add_argument("--people", type=int, default=2, help="people to predict for (default: 2)")
    parser.add_argument("--draws", type=int, default=100, help="posterior draws (default: 100)")
    parser.add_argument("--epochs", type=int, default=5, help="epochs of training before it (default: 5)")
    parser.add_argument("--out", type=Path, help="file to which a line of JSON is added")
    given = parser.parse_args(arguments)
    settings = {name: value for name, value in vars(given).items() if name != "out"}
    found = run(**settings)
    record = {
        "date": datetime.now(UTC).date().isoformat(),
        **settings,
        **found,
        "versions": {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}},
        "machine": {"system": platform.system(), "processor": platform.machine(), "cores": os.cpu_count()},
    }
    print(f"{found['weights']:,} weights, {given.rows} rows: {found['directions']} directions kept")
    print(f"fit:        {found['fit_seconds']:7.1f} s, peak memory {found['fitted_mib']:8.1f} MiB")
    print(f"prediction: {found['predict_seconds']:7.1f} s, peak memory {found['predicted_mib']:8.1f} MiB")
    if given.out is not None:
        with given.out.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(record) + "\n")


if __name__ == "__main__":
    main()
