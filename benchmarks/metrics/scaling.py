"""Time and memory of concordance indices and Brier scores from a thousand to a hundred thousand rows.

Every figure comes from a process of its own, with one thread: CPU seconds of the call, and by how much the peak
resident memory of the process rises during it, data not counted. Beside ours stands scikit-survival, or pycox where
scikit-survival has no such metric. Run as ``python benchmarks/metrics/scaling.py``; ``--rows 1000`` makes it quick, and
``--out benchmarks/metrics/results.md`` stores the table.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

COLUMNS = 100
METRICS = ("harrell", "uno", "antolini", "brier")
PEERS = {"harrell": "scikit-survival", "uno": "scikit-survival", "antolini": "pycox", "brier": "scikit-survival"}
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
PACKAGES = ("neuralsurv", "numpy", "scikit-survival", "pycox", "numba")


def peak() -> float:
    """Return the peak resident memory of this process, in MiB."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20


def cohort(rows: int) -> dict[str, Any]:
    """Simulate outcomes and curves that cross; all training times are later, so that every weight is defined."""
    import numpy as np

    rng = np.random.default_rng(0)
    risk, shape = rng.normal(size=rows), np.exp(0.3 * rng.normal(size=rows))
    failure, censoring = rng.weibull(shape) * np.exp(-risk), 2 * rng.exponential(size=rows)
    observed = np.minimum(failure, censoring)
    times = np.quantile(observed, np.linspace(0.005, 0.995, COLUMNS))
    survival = np.empty((rows, COLUMNS))
    for k, t in enumerate(times):
        survival[:, k] = np.exp(-((t * np.exp(risk)) ** shape))
    last = observed.max() + 1
    return {
        "time": observed,
        "event": failure <= censoring,
        "risk": risk,
        "survival": survival,
        "times": times,
        "train_time": np.append(observed, last),
        "train_event": np.append(failure <= censoring, True),
        "tau": float(times[-1]),
    }


def ours(metric: str, c: dict[str, Any]) -> Callable[[], Any]:
    """Return our metric, ready to be called."""
    from neuralsurv import metrics

    training = {"train_time": c["train_time"], "train_event": c["train_event"]}
    curves = (c["time"], c["event"], c["survival"], c["times"])
    return {
        "harrell": lambda: metrics.harrell_concordance(c["time"], c["event"], c["risk"]),
        "uno": lambda: metrics.uno_concordance(c["time"], c["event"], c["risk"], **training),
        "antolini": lambda: metrics.antolini_concordance(*curves, tau=c["tau"]),
        "brier": lambda: metrics.integrated_brier_score(*curves, **training),
    }[metric]


def peer(metric: str, c: dict[str, Any]) -> Callable[[], Any]:
    """Return the same metric of the other package, ready to be called."""
    import pandas as pd

    if metric == "antolini":
        from pycox.evaluation import EvalSurv

        evaluation = EvalSurv(pd.DataFrame(c["survival"].T, index=c["times"]), c["time"], c["event"].astype("int64"))
        small = EvalSurv(evaluation.surv.iloc[:, :9], c["time"][:9], c["event"][:9].astype("int64"))
        small.concordance_td("antolini")  # compiles it
        return lambda: evaluation.concordance_td("antolini")
    from sksurv import metrics
    from sksurv.util import Surv

    test, train = Surv.from_arrays(c["event"], c["time"]), Surv.from_arrays(c["train_event"], c["train_time"])
    return {
        "harrell": lambda: metrics.concordance_index_censored(c["event"], c["time"], c["risk"])[0],
        "uno": lambda: metrics.concordance_index_ipcw(train, test, c["risk"])[0],
        "brier": lambda: metrics.integrated_brier_score(train, test, c["survival"], c["times"]),
    }[metric]


def measure(whose: str, metric: str, rows: int) -> dict[str, float]:
    """Run one metric once."""
    call = (ours if whose == "ours" else peer)(metric, cohort(rows))
    before, began = peak(), time.process_time()
    value = call()
    return {"value": float(value), "seconds": time.process_time() - began, "mib": peak() - before}


def in_a_fresh_process(whose: str, metric: str, rows: int) -> dict[str, float]:
    """Run one measurement of this file as a command and return what it found."""
    command = [sys.executable, __file__, "--measure", whose, metric, "--rows", str(rows)]
    done = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True, env={**os.environ, **ONE_THREAD}, encoding="utf-8"
    )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def table(rows: list[int], peer_limit: int) -> list[str]:
    """Measure everything and return the lines of a Markdown table, printing each as it is ready."""
    lines = [
        "| metric | rows | seconds | memory, MiB | other package | its seconds | its memory, MiB | times ours |",
        "|---|--:|--:|--:|---|--:|--:|--:|",
    ]
    print("\n".join(lines), flush=True)
    for metric in METRICS:
        for n in rows:
            mine = in_a_fresh_process("ours", metric, n)
            cells = [metric, f"{n:,}", f"{mine['seconds']:.2f}", f"{mine['mib']:.0f}", PEERS[metric]]
            if n <= peer_limit:
                other = in_a_fresh_process("peer", metric, n)
                # pycox reads curves as steps and ours as lines; the others are the same number.
                if abs(other["value"] - mine["value"]) > (0.02 if metric == "antolini" else 1e-9):
                    raise AssertionError(f"{metric} at {n} rows: ours {mine['value']}, theirs {other['value']}")
                ratio = other["seconds"] / max(mine["seconds"], 1e-3)
                cells += [f"{other['seconds']:.2f}", f"{other['mib']:.0f}", f"{ratio:.1f}"]
            else:
                cells += ["", "", ""]
            lines.append("| " + " | ".join(cells) + " |")
            print(lines[-1], flush=True)
    return lines


def main(arguments: list[str] | None = None) -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[1000, 10_000, 30_000, 100_000], help="sizes to run")
    parser.add_argument("--peer-limit", type=int, default=100_000, help="largest size for the other packages")
    parser.add_argument("--out", type=Path, help="file to write the table to, as Markdown")
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.measure:
        print(json.dumps(measure(*options.measure, options.rows[0])))
        return
    lines = table(options.rows, options.peer_limit)
    if options.out:
        day = datetime.now(UTC).date().isoformat()
        versions = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
        head = [
            "# Time and memory of the metrics",
            "",
            f"Written by `scaling.py` on {day}: Python {platform.python_version()}, {versions}; {platform.system()} "
            f"{platform.machine()}, one thread.",
            "",
            f"Curves have {COLUMNS} times. Seconds are CPU seconds; memory is what the peak of the process rises by "
            "during the call, so 0 means that it fits into what was used before to make the data. pycox counts all "
            "pairs in compiled code and reads curves as steps; ours reads them as lines.",
            "",
        ]
        options.out.write_text("\n".join([*head, *lines, ""]), encoding="utf-8")


if __name__ == "__main__":
    main()
