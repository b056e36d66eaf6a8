"""Load test of the service on loopback: requests a second and p99 at 1, 8 and 64 clients, memory over many requests.

Starts ``neuralsurv serve`` as a process of its own with a model of the veterans cohort, and asks it from this process
over connections that stay open. Writes ``results.md`` beside this file.

    python benchmarks/service/load.py                     # as stored: 100,000 requests for the memory
    python benchmarks/service/load.py --requests 2000 --seconds 3 --out -    # a quick look
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pandas as pd

HERE = Path(__file__).parent
COHORT = HERE.parents[1] / "docs" / "data" / "veterans.csv"
PERSON = {"age": 63, "karnofsky": 60, "months_from_diagnosis": 7, "cell_type": "large", "prior_therapy": "no",
          "treatment": "test"}  # fmt: skip


def request(method: str, path: str, body: Any = None) -> bytes:
    """Return the bytes of a request."""
    data = b"" if body is None else json.dumps(body).encode()
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {len(data)}"
    )
    return f"{head}\r\n\r\n".encode() + data


PREDICT = request("POST", "/predict", {"people": [PERSON], "times": [90, 180, 365]})
CURVE = request("POST", "/predict", {"people": [PERSON], "times": [9.0 * k for k in range(1, 101)]})
REFUSED = request("POST", "/predict", {"people": [{**PERSON, "cell_type": "squamos"}], "times": [90]})
# What is sent while memory is watched: of ten requests six predictions, two that are refused, and two others.
MIX = [PREDICT, PREDICT, REFUSED, PREDICT, request("GET", "/health"), PREDICT, PREDICT, REFUSED, PREDICT,
       request("GET", "/metrics")]  # fmt: skip


class Client:
    """One connection that stays open."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def __aenter__(self) -> Client:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()
        await self._writer.wait_closed()

    async def ask(self, content: bytes) -> int:
        """Send a request, read the whole answer and return its status."""
        self._writer.write(content)
        head = await self._reader.readuntil(b"\r\n\r\n")
        lines = head.lower().split(b"\r\n")
        length = next(int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length:"))
        await self._reader.readexactly(length)
        return int(lines[0].split()[1])


@contextmanager
def service(model: Path, workers: int) -> Any:
    """Start the service, and give its process and port."""
    command = [sys.executable, "-m", "neuralsurv", "serve", str(model), "--port", "0", "--json"]
    command += ["--workers", str(workers)] if workers > 1 else []
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, encoding="utf-8")
    try:
        assert process.stdout is not None
        yield process, urlsplit(json.loads(process.stdout.readline())["url"]).port
    finally:
        process.terminate()
        process.wait(30)


async def rate(port: int, clients: int, seconds: float, content: bytes = PREDICT) -> dict[str, float]:
    """Ask for predictions from so many clients at once, each sending the next when it has its answer."""
    taken: list[float] = []
    end = time.perf_counter() + seconds

    async def one() -> None:
        async with Client(port) as client:
            while time.perf_counter() < end:
                began = time.perf_counter()
                status = await client.ask(content)
                taken.append(time.perf_counter() - began)
                assert status == 200, status

    began = time.perf_counter()
    await asyncio.gather(*[one() for _ in range(clients)])
    passed = time.perf_counter() - began
    half, tail = np.quantile(taken, [0.5, 0.99])
    return {"clients": clients, "requests": len(taken), "rate": len(taken) / passed, "p50": half, "p99": tail}


async def memory(port: int, pid: int, requests: int, clients: int) -> list[tuple[int, float]]:
    """Send requests of every kind and return the memory of the service after each twentieth part of them."""
    sent, watched = 0, [(0, resident(pid))]
    lock = asyncio.Lock()

    async def one() -> None:
        nonlocal sent
        async with Client(port) as client:
            while sent < requests:
                number = sent
                sent += 1
                status = await client.ask(MIX[number % len(MIX)])
                assert status in (200, 422), status
                if (number + 1) % (requests // 20) == 0:
                    async with lock:
                        watched.append((number + 1, resident(pid)))
                        print(f"  {number + 1} requests, {watched[-1][1]:.1f} MB", flush=True)

    await asyncio.gather(*[one() for _ in range(clients)])
    return watched


def family(pid: int) -> list[Path]:
    """Return a process and those that it started, as folders of the process table."""
    started = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    return [Path(f"/proc/{pid}"), *(place for child in started for place in family(int(child)))]


def resident(pid: int) -> float:
    """Return the memory of a process and those that it started in MB; what they share counts once for each."""
    texts = [(place / "status").read_text(encoding="ascii") for place in family(pid)]
    lines = [next(line for line in text.splitlines() if line.startswith("VmRSS")) for text in texts]
    return sum(int(line.split()[1]) for line in lines) / 1e3


def processor_seconds(pid: int) -> float:
    """Return the processor time that a process and those that it started have used."""
    found = [(place / "stat").read_text(encoding="ascii").rpartition(")")[2].split() for place in family(pid)]
    return sum(int(parts[11]) + int(parts[12]) for parts in found) / os.sysconf("SC_CLK_TCK")


def fit(path: Path, draws: int) -> None:
    """Fit the model that is served."""
    from neuralsurv import NeuralSurv

    NeuralSurv(random_state=0, draws=draws, verbose=False).fit(pd.read_csv(COHORT), time="days", event="died").save(
        path
    )


def table(rows: list[dict[str, float]]) -> list[str]:
    """Return rates as a table in Markdown."""
    lines = [
        "| clients | requests | requests a second | p50 (ms) | p99 (ms) | service's processor time (ms a request) |",
        "|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        lines.append(
            f"| {row['clients']:.0f} | {row['requests']:.0f} | {row['rate']:.0f} | {1e3 * row['p50']:.1f} | "
            f"{1e3 * row['p99']:.1f} | {1e3 * row['spent']:.2f} |"
        )
    return lines


def page(
    rates: dict[str, list[dict[str, float]]], watched: list[tuple[int, float]], workers: int, facts: dict[str, str]
) -> str:
    """Return the results as Markdown."""
    lines = [
        "# Load test of the service",
        "",
        "Written by `python benchmarks/service/load.py`. A model of the veterans cohort (default preset, 137 rows) by",
        "`neuralsurv serve`; one person a request; clients on the same machine, connections kept open.",
        "",
        *(f"- {name}: {value}" for name, value in facts.items()),
    ]
    for title, rows in rates.items():
        lines += ["", f"## {title}", "", *table(rows)]
    start = watched[len(watched) // 10][1]
    lines += [
        "",
        f"## Memory, {counted(workers)}",
        "",
        f"Over {watched[-1][0]:,} requests of eight clients (of ten, six predictions, two that are refused, `/health`",
        f"and `/metrics`): {start:.1f} MB after the first tenth, {watched[-1][1]:.1f} MB at the end, at most",
        f"{max(size for _, size in watched):.1f} MB.",
        "",
        "| requests | memory (MB) |",
        "|---:|---:|",
        *(f"| {count:,} | {size:.1f} |" for count, size in watched),
        "",
    ]
    return "\n".join(lines)


def counted(workers: int) -> str:
    """Return a number of workers in words."""
    return "one worker" if workers == 1 else f"{workers} workers"


def rates_of(model: Path, workers: int, chosen: argparse.Namespace) -> dict[str, list[dict[str, float]]]:
    """Start the service and measure its rates, for three times and for a curve of a hundred."""
    rates: dict[str, list[dict[str, float]]] = {}
    with service(model, workers) as (process, port):
        asyncio.run(rate(port, 2 * workers, 2.0))
        for content, what in ((PREDICT, "three times"), (CURVE, "a hundred times")):
            rows = rates[f"Rates, {counted(workers)}, {what}"] = []
            for clients in (int(part) for part in chosen.clients.split(",")):
                before = processor_seconds(process.pid)
                found = asyncio.run(rate(port, clients, chosen.seconds, content))
                spent = (processor_seconds(process.pid) - before) / found["requests"]
                rows.append({**found, "spent": spent})
                print(counted(workers), what, rows[-1], flush=True)
    return rates


def main() -> None:
    """Run the load test."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=15.0, help="for each number of clients")
    parser.add_argument("--clients", default="1,8,64")
    parser.add_argument(
        "--workers", default="1,2", help="numbers of workers for the rates; the last is that for memory"
    )
    parser.add_argument("--requests", type=int, default=100_000, help="while memory is watched")
    parser.add_argument("--draws", type=int, default=1000, help="posterior draws of the model")
    parser.add_argument("--out", default=str(HERE / "results.md"), help="where results go; - prints them")
    chosen = parser.parse_args()
    rates: dict[str, list[dict[str, float]]] = {}
    busy = os.getloadavg()[0]
    counts = [int(part) for part in chosen.workers.split(",")]
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "veterans.neuralsurv"
        fit(model, chosen.draws)
        for workers in counts:
            rates |= rates_of(model, workers, chosen)
        with service(model, counts[-1]) as (process, port):
            watched = asyncio.run(memory(port, process.pid, chosen.requests, 8))
    facts = {
        "date": date.today().isoformat(),
        "machine": f"{os.cpu_count()} cores for service and clients together, Python {platform.python_version()}",
        "load of the machine before the run": f"{busy:.1f} (above 0, other work was competing)",
        "draws": str(chosen.draws),
    }
    text = page(rates, watched, counts[-1], facts)
    if chosen.out == "-":
        print(text)
    else:
        Path(chosen.out).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
