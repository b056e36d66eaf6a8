"""What a pass of a streamed fit costs: a formula for operations, memory, disk and traffic, checked against runs.

    python benchmarks/large/costs.py            # measures some passes and writes docs/benchmarks/costs.md
    python benchmarks/large/costs.py --rows 1000000000 --machines 64 --cores 32     # what another size would take

The formula is that of docs/large.md. Two constants are measured on this machine: how fast matrix products of the size
of a block are, and how long an elementwise operation takes. Times are CPU seconds of one thread.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
TABLE = HERE.parents[1] / "docs" / "benchmarks" / "costs.md"
# Rows, covariates, hidden units, nodes a row, most directions.
CASES = (
    (4096, 6, 8, 8, 200),
    (16384, 6, 8, 8, 200),
    (4096, 6, 8, 16, 200),
    (4096, 20, 32, 12, 100),
    (4096, 20, 32, 12, 200),
)
BLOCK = 256
PORTION = 4096 * BLOCK
# Elementwise operations of a point: a unit of the network (value, slope and their products), and a node of the
# Gauss-Hermite rule (exponential, sigmoid, products). Of a direction: it is worked out, joined to the others, scaled
# twice, projected, squared and summed; 30 is not counted but read off the measured passes.
A_UNIT, A_HERMITE, A_DIRECTION, HERMITE = 12, 8, 30, 15


@dataclass(frozen=True)
class Size:
    """A problem: rows N, encoded covariates p, hidden units, nodes K, share of events, directions r."""

    rows: int
    covariates: int
    units: int
    nodes: int
    events: float
    rank: int
    weights: int

    @property
    def points(self) -> float:
        """P = N·(K + share of events)."""
        return self.rows * (self.nodes + self.events)

    def sweep_products(self) -> float:
        """Return the operations of matrix products in one pass of the posterior."""
        p, u, r = self.points, self.units, self.rank
        squares = 2.5 * p * r**2
        if r == self.weights:
            return squares + 4 * p * u * (self.covariates + 1)
        return squares + 2 * self.rows * u * self.covariates * r + 8 * p * u * r

    def sweep_elements(self) -> float:
        """Return the elementwise operations of one pass of the posterior."""
        return self.points * (A_UNIT * self.units + HERMITE * A_HERMITE + A_DIRECTION * self.rank)

    def numbers(self) -> int:
        """Return the length of the vector of sums."""
        return 4 + self.rank + self.rank * (self.rank + 1) // 2

    def memory(self) -> float:
        """Return bytes of a process beyond the libraries: a block, the algebra of the directions, the basis."""
        block = 8 * BLOCK * (self.nodes + self.events) * (3 * self.rank + 4 * self.units + 4 * HERMITE)
        shared = 0 if self.rank == self.weights else 2 * 8 * BLOCK * self.units * self.rank
        return block + shared + 8 * (8 * self.rank**2 + 3 * self.weights * self.rank)

    def disk(self, machines: int) -> float:
        """Return bytes of encoded rows of a process."""
        return 8 * (4 + self.covariates) * self.rows / machines

    def traffic(self, machines: int, steps: int) -> float:
        """Return bytes that a process sends in one pass with so many sums over all processes."""
        return 0.0 if machines == 1 else steps * 8 * self.numbers() * 2 * (machines - 1) / machines


def machine() -> tuple[float, float]:
    """Return operations a second of matrix products, and of elementwise work, of one thread."""
    import torch

    torch.set_num_threads(1)
    a, b = torch.randn(200, 2000, dtype=torch.float64), torch.randn(2000, 200, dtype=torch.float64)
    began = time.process_time()
    for _ in range(60):
        a @ b
    products = 60 * 2 * 200 * 2000 * 200 / (time.process_time() - began)
    values = torch.randn(2000, 100, dtype=torch.float64)
    began = time.process_time()
    for _ in range(60):
        torch.sigmoid(values).mul_(values)
    return products, 60 * 4 * values.numel() / (time.process_time() - began)


def measured(rows: int, covariates: int, units: int, nodes: int, directions: int) -> tuple[Size, float]:
    """Return the size of a problem and the CPU seconds of one pass over its rows."""
    import numpy as np
    import torch

    from neuralsurv import NeuralSurv
    from neuralsurv.inference.stream.streamed_problem import StreamedProblem

    random = np.random.default_rng(0)
    x = random.normal(size=(rows, covariates))
    time_, end = random.exponential(np.exp(-0.5 * x[:, 0])), random.exponential(2.0, size=rows)
    table: dict[str, Any] = {f"x{k}": x[:, k] for k in range(covariates)}
    table |= {"time": np.minimum(time_, end) + 1e-6, "event": time_ <= end}
    seconds: list[float] = []
    plain = StreamedProblem.sums

    def timed(self: Any, blocks: Any, q: Any) -> torch.Tensor:
        began = time.process_time()
        result = plain(self, blocks, q)
        seconds.append(time.process_time() - began)
        return result

    StreamedProblem.sums = timed  # type: ignore[method-assign]
    try:
        model = NeuralSurv(hidden=(units,), quadrature_points=nodes, random_state=0, max_sweeps=1, verbose=False)
        model.fit_stream([table], time="time", event="event", method="exact", training_passes=0, directions=directions)
    finally:
        StreamedProblem.sums = plain  # type: ignore[method-assign]
    share = float((time_ <= end).mean())
    network = model.posterior_.network
    size = Size(rows, covariates, units, nodes, share, model.diagnostics_.rank, network.size)
    return size, min(seconds)


def check() -> None:
    """Measure some passes, compare with the formula, and write the table."""
    import warnings

    warnings.simplefilter("ignore")
    products, elements = machine()
    lines = [
        "| N | p | units | K | m | r | formula, CPU s | measured, CPU s | ratio |",
        "|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for case in CASES:
        size, seconds = measured(*case)
        said = size.sweep_products() / products + size.sweep_elements() / elements
        lines.append(
            f"| {size.rows:,} | {size.covariates} | {size.units} | {size.nodes} | {size.weights} | {size.rank} | "
            f"{said:.2f} | {seconds:.2f} | {seconds / said:.2f} |"
        )
        print(lines[-1], flush=True)
    TABLE.write_text(
        "# Cost of a pass: formula and measurements\n\nWritten by `python benchmarks/large/costs.py` on "
        f"{datetime.now(UTC).date().isoformat()}, one thread of a machine of two cores shared with other work: "
        f"{products / 1e9:.1f}·10⁹ operations a second in matrix products of the size of a block, "
        f"{elements / 1e9:.2f}·10⁹ elementwise. The constants of the formula are on [the page](../large.md).\n\n"
        + "\n".join(lines)
        + "\n\n## A billion rows, by the formula\n\n"
        + foretell(10**9, 64, 32, 10, 64, 12, 200)
        + "\nMini-batch steps over many machines send a sum for every step: with so many rows, few exact passes after "
        "feature learning are cheaper. `--rows`, `--machines` and the other options are for other sizes.\n",
        encoding="utf-8",
    )


def foretell(rows: int, machines: int, cores: int, covariates: int, units: int, nodes: int, directions: int) -> str:
    """Return in words what a size would take on machines whose cores are like this one's."""
    linear = 2 * covariates + 8 + covariates * (covariates - 1) // 2
    weights = linear + units * (covariates + 2) + units + 1
    rank = weights if weights <= 300 else linear + 1 + min(directions, weights - linear)
    size = Size(rows, covariates, units, nodes, 0.5, rank, weights)
    products, elements = machine()
    pass_seconds = size.sweep_products() / products + size.sweep_elements() / elements
    # Feature learning: 4 random nodes, a forward and a backward pass.
    training = rows * (4 + size.events) * (12 * units * (covariates + 1) / products + 3 * A_UNIT * units / elements)
    portions, steps, total = -(-rows // PORTION), rows // 4096, machines * cores
    found = {
        "one pass of the posterior": f"{pass_seconds / 3600:.1f} CPU hours, {pass_seconds / total / 60:.1f} minutes",
        "one pass of features": f"{training / 3600:.1f} CPU hours, {training / total / 60:.1f} minutes",
        "memory of a process": f"{size.memory() / 2**20:.0f} MiB beyond the libraries",
        "order of the blocks": f"{8 * rows / BLOCK * 2 / 2**20:.0f} MiB",
        "disk of a process": f"{size.disk(total) / 2**30:.2f} GiB",
        "traffic of an exact pass": f"{size.traffic(total, portions) / 2**20:.1f} MiB a process, {portions} sums",
        "traffic of a mini-batch pass, 4,096 rows a step": f"{size.traffic(total, steps) / 2**30:.1f} GiB a process, "
        f"{steps:,} sums",
    }
    head = (
        f"N = {rows:,}, p = {covariates}, {units} units, K = {nodes}: m = {weights}, r = {rank}; "
        f"{machines} machines of {cores} cores like this one's, one process a core.\n\n| | |\n|---|---|\n"
    )
    return head + "\n".join(f"| {what} | {much} |" for what, much in found.items()) + "\n"


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, help="say what so many rows would take, instead of measuring")
    parser.add_argument("--machines", type=int, default=1)
    parser.add_argument("--cores", type=int, default=1)
    parser.add_argument("--covariates", type=int, default=10)
    parser.add_argument("--units", type=int, default=64)
    parser.add_argument("--nodes", type=int, default=12)
    parser.add_argument("--directions", type=int, default=200)
    given = parser.parse_args()
    if given.rows is None:
        check()
    else:
        print(foretell(**vars(given)))


if __name__ == "__main__":
    main()
