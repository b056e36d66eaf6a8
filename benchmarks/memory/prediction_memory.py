"""How much memory a large prediction takes, in a process of its own.

Fits a small model, then asks a fresh process for the mean and the 90 % interval of survival curves, and reports the
peak resident memory of that process before and after. One line of JSON goes to the file given by ``--out``.
Run as ``python benchmarks/memory/prediction_memory.py``; ``--people 2000`` makes it quick.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

# The library is imported only in the processes that are started here: a new process counts the memory of the one
# that started it as its own peak.

COVARIATES = 4
PACKAGES = ("neuralsurv", "torch", "numpy", "pandas")
MIB = 2**20


def peak() -> float:
    """Return the peak resident memory of this process, in MiB."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / MIB


def fit(file: str, draws: int) -> dict[str, Any]:
    """Fit a model to a simulated cohort and save it; its size matters here, not how good it is."""
    import warnings

    from neuralsurv import PaperNeuralSurv
    from neuralsurv.data.simulate import lognormal_cohort
    from neuralsurv.errors import NeuralSurvWarning

    cohort = lognormal_cohort(100, noise=COVARIATES - 1, seed=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NeuralSurvWarning)
        model = PaperNeuralSurv(
            hidden=(16,), quadrature_points=20, starts=1, max_sweeps=20, draws=draws, random_state=0
        )
        model.fit(cohort.x, cohort.y)
    model.save(file)
    return {"weights": model.posterior_.network.size}


def predict(file: str, people: int, times: int) -> dict[str, Any]:
    """Predict for many people and measure."""
    import numpy as np
    import torch

    from neuralsurv import load
    from neuralsurv.data.simulate import lognormal_cohort

    model = load(file)
    X = lognormal_cohort(people, noise=COVARIATES - 1, seed=1).x
    curves = model.predict_survival(X, np.linspace(0, model.time_scale_, times))
    before, began = peak(), time.perf_counter()
    tables = [curves.mean, *curves.interval(0.9)]
    seconds, after = time.perf_counter() - began, peak()
    assert all(table.shape == (people, times) for table in tables)
    return {
        "before_mib": round(before, 1),
        "after_mib": round(after, 1),
        "tables_mib": round(sum(table.to_numpy().nbytes for table in tables) / MIB, 1),
        "cube_mib": round(8 * people * times * int(model.draws) / MIB, 1),
        "seconds": round(seconds, 1),
        "threads": torch.get_num_threads(),
    }


def in_a_fresh_process(*step: str) -> dict[str, Any]:
    """Run one step of this file as a command and return what it found."""
    done = subprocess.run(
        [sys.executable, __file__, *step], check=True, stdout=subprocess.PIPE, text=True, encoding="utf-8"
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main(arguments: list[str] | None = None) -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--people", type=int, default=100_000, help="rows to predict for (default: 100000)")
    parser.add_argument("--times", type=int, default=100, help="times for each (default: 100)")
    parser.add_argument("--draws", type=int, default=1000, help="posterior draws (default: 1000)")
    parser.add_argument("--out", type=Path, help="file to which a line of JSON is added")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder) / "model")
        fitted = in_a_fresh_process("fit", file, str(given.draws))
        found = in_a_fresh_process("predict", file, str(given.people), str(given.times))
    record = {
        "date": datetime.now(UTC).date().isoformat(),
        "people": given.people,
        "times": given.times,
        "draws": given.draws,
        **fitted,
        **found,
        "versions": {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}},
        "machine": {"system": platform.system(), "processor": platform.machine(), "cores": os.cpu_count()},
    }
    print(f"{given.people} people x {given.times} times x {given.draws} draws, {found['seconds']:.1f} seconds")
    print(f"peak memory before the prediction: {found['before_mib']:8.1f} MiB")
    print(f"peak memory after it:              {found['after_mib']:8.1f} MiB")
    print(f"the three tables of results:       {found['tables_mib']:8.1f} MiB")
    print(f"all draws at once would have been: {found['cube_mib']:8.1f} MiB")
    if given.out is not None:
        with given.out.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(record) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["fit"]:
        print(json.dumps(fit(sys.argv[2], int(sys.argv[3]))))
    elif sys.argv[1:2] == ["predict"]:
        print(json.dumps(predict(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))))
    else:
        main()
