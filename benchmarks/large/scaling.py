"""How time and memory of a streamed fit grow with the rows: cohorts of known truth on disk, a fresh process each.

    python benchmarks/large/scaling.py 100000 1000000 10000000  # writes a line of JSON for each to scaling.jsonl
    python benchmarks/large/scaling.py table                    # writes docs/benchmarks/scaling.md from the latest

A cohort is written to a temporary folder in Parquet files of a million rows, 250,000 at a time. The fit is that of the
default preset with 8 units and 8 nodes a row, one pass of feature learning and one of natural-gradient steps. Peak
memory is that of the process that fits. The error is the mean absolute difference between the posterior mean of
S(t | x) and the truth, over 500 new people and 8 times.
"""

from __future__ import annotations

import json
import math
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RESULTS = HERE / "scaling.jsonl"
TABLE = HERE.parents[1] / "docs" / "benchmarks" / "scaling.md"
FILE_ROWS, WRITE_ROWS = 1_000_000, 250_000
COVARIATES = 6
MIB = 2**20


def rates(x: Any) -> Any:
    """Return the constant and the growing part of the hazard, λ(t | x) = a(x) + b(x)·t."""
    import numpy as np

    steady = 0.1 * np.exp(0.7 * x[:, 0] - 0.5 * x[:, 1] * x[:, 2])
    growing = 0.05 * np.exp(0.6 * np.sin(2 * x[:, 3]) + 0.4 * x[:, 4])
    return steady, growing


def cohort(rows: int, seed: int) -> Any:
    """Draw rows: event times by the inverse of the cumulative hazard, censored by an exponential time or at 12."""
    import numpy as np
    import pandas as pd

    random = np.random.default_rng(seed)
    x = random.normal(size=(rows, COVARIATES))
    a, b = rates(x)
    level = random.exponential(size=rows)
    event_time = (np.sqrt(a**2 + 2 * b * level) - a) / b
    end = np.minimum(random.exponential(10.0, size=rows), 12.0)
    table = pd.DataFrame(x, columns=[f"x{k}" for k in range(COVARIATES)])
    return table.assign(time=np.minimum(event_time, end) + 1e-6, event=event_time <= end)


def write(folder: str, rows: int) -> None:
    """Write a cohort as Parquet files, some rows at a time."""
    import pyarrow
    import pyarrow.parquet

    for number, first in enumerate(range(0, rows, FILE_ROWS)):
        writer = None
        for begin in range(first, min(first + FILE_ROWS, rows), WRITE_ROWS):
            count = min(WRITE_ROWS, rows - begin, first + FILE_ROWS - begin)
            part = pyarrow.Table.from_pandas(cohort(count, seed=begin), preserve_index=False)
            writer = writer or pyarrow.parquet.ParquetWriter(Path(folder) / f"{number:04d}.parquet", part.schema)
            writer.write_table(part)
        assert writer is not None
        writer.close()


def peak() -> float:
    """Return the peak resident memory of this process, in MiB."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / MIB


def fit(folder: str) -> dict[str, Any]:
    """Fit a cohort and measure; the error is against the truth."""
    import numpy as np
    import torch

    from neuralsurv import NeuralSurv

    torch.set_num_threads(1)
    before, began = peak(), (time.perf_counter(), time.process_time())
    model = NeuralSurv(hidden=(8,), quadrature_points=8, random_state=0, draws=200, verbose=False)
    passes = {"training_passes": 1, "passes": 1, "training_batch_size": 1024}
    model.fit_stream(folder, time="time", event="event", method="mini-batch", **passes)
    seconds, cpu, after = time.perf_counter() - began[0], time.process_time() - began[1], peak()
    people = cohort(500, seed=2**31).drop(columns=["time", "event"])
    a, b = (part[:, None] for part in rates(people.to_numpy()))
    times = np.linspace(1, 8, 8)
    truth = np.exp(-a * times - b * times**2 / 2)
    error = float(np.abs(model.predict_survival(people, times).mean.to_numpy() - truth).mean())
    return {
        "rows": model.training_["rows"],
        "before_mib": round(before, 1),
        "peak_mib": round(after, 1),
        "seconds": round(seconds, 1),
        "cpu_seconds": round(cpu, 1),
        "error": error,
        "weights": model.posterior_.network.size,
        "warnings": list(model.diagnostics_.messages),
    }


def in_a_fresh_process(*step: str) -> str:
    """Run one step of this file as a command and return what it printed."""
    return subprocess.run(
        [sys.executable, __file__, *step], check=True, stdout=subprocess.PIPE, text=True, encoding="utf-8"
    ).stdout


def write_table() -> None:
    """Write the table from the latest record of each size."""
    latest = {record["rows"]: record for record in map(json.loads, RESULTS.read_text(encoding="utf-8").splitlines())}
    sizes = sorted(latest)
    lines = [
        "| rows | Parquet | CPU seconds | a million rows | wall seconds | peak memory | error of S |",
        "|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for size in sizes:
        r = latest[size]
        lines.append(
            f"| {size:,} | {r['parquet_mib']:,.0f} MiB | {r['cpu_seconds']:.0f} | "
            f"{r['cpu_seconds'] / size * 1e6:.1f} | {r['seconds']:.0f} | {r['peak_mib']:.0f} MiB | {r['error']:.4f} |"
        )
    first, last = latest[sizes[0]], latest[sizes[-1]]
    power = math.log(last["cpu_seconds"] / first["cpu_seconds"]) / math.log(sizes[-1] / sizes[0])
    dates = sorted({record["date"] for record in latest.values()})
    TABLE.write_text(
        "# Scaling with the number of rows\n\nWritten by `python benchmarks/large/scaling.py table`; run on "
        f"{', '.join(dates)}, one thread of a machine of {last['machine']['cores']} cores shared with other work (so "
        "CPU seconds are more reliable than wall-clock seconds).\n\n"
        + "\n".join(lines)
        + f"\n\nCPU seconds grow with the rows to the power of {power:.2f}; peak memory by "
        f"{last['peak_mib'] - first['peak_mib']:.0f} MiB from the first row of the table to the last.\n",
        encoding="utf-8",
    )
    print(TABLE.read_text(encoding="utf-8"))


def main(arguments: list[str]) -> None:
    """Run the command."""
    if arguments == ["table"]:
        write_table()
        return
    for rows in map(int, arguments):
        with tempfile.TemporaryDirectory() as folder:
            in_a_fresh_process("write", folder, str(rows))
            size = sum(file.stat().st_size for file in Path(folder).iterdir()) / MIB
            found = json.loads(in_a_fresh_process("fit", folder).splitlines()[-1])
        record = {
            "date": datetime.now(UTC).date().isoformat(),
            **found,
            "parquet_mib": round(size, 1),
            "machine": {"processor": platform.machine(), "cores": os.cpu_count()},
        }
        print(json.dumps(record), flush=True)
        with RESULTS.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["write"]:
        write(sys.argv[2], int(sys.argv[3]))
    elif sys.argv[1:2] == ["fit"]:
        print(json.dumps(fit(sys.argv[2])))
    else:
        main(sys.argv[1:])
