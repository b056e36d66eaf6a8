"""How long fits and predictions take, as ratios within one run on one machine, and how cost grows.

    python benchmarks/speed/speed.py            every row of the table, in turn (some twenty minutes on two idle cores)
    python benchmarks/speed/speed.py colon      one row
    python benchmarks/speed/speed.py report evaluate --rival-src DIR    the same with a checkout of an earlier commit

Every measurement is a process of its own, so that its peak memory is its own; the sides of a ratio take turns. Results
go to `results.jsonl` beside this file, and `docs/benchmarks/speed.md` is rewritten from the latest of each.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from cases import AGAINST_EARLIER, CASES

HERE = Path(__file__).parent
RESULTS = HERE / "results.jsonl"
TABLE = HERE.parents[1] / "docs" / "benchmarks" / "speed.md"
# The sides of a ratio take turns, this many times each.
ROUNDS = {
    **dict.fromkeys(("colon paper", "colon default", "colon DeepSurv"), 3),
    **dict.fromkeys(("support paper", "support default", "support CoxTime"), 2),
    **dict.fromkeys(("small default", "small ridge Cox"), 3),
}
EARLIER = ", earlier"


def run(names: list[str], rival: Path | None) -> None:
    """Measure cases, each in a fresh process, and store them; those of an earlier source after their own."""
    if rival is not None:
        names = [each for name in names for each in (name, name + EARLIER) if each in CASES or name in AGAINST_EARLIER]
    for turn in range(max(ROUNDS.values())):
        for name in names:
            if turn < ROUNDS.get(name, 1):
                source = rival if name.endswith(EARLIER) else HERE.parents[1]
                output = subprocess.run(
                    [sys.executable, __file__, "--one", name.removesuffix(EARLIER)],
                    check=True,
                    stdout=subprocess.PIPE,
                    text=True,
                    encoding="utf-8",
                    env={**os.environ, "PYTHONPATH": str(source / "src")},
                ).stdout
                record = {"case": name, "commit": commit(source), **json.loads(output.splitlines()[-1])}
                record |= environment()
                with RESULTS.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(record) + "\n")
                print(name, {key: record[key] for key in ("seconds", "peak_mib") if key in record}, flush=True)


def commit(source: Path) -> str:
    """Return the commit of a checkout; with a plus if it was changed since."""
    described = ["git", "-C", str(source), "describe", "--always", "--exclude=*", "--dirty=+"]
    return subprocess.run(described, check=True, capture_output=True, text=True).stdout.strip()


def environment() -> dict[str, Any]:
    """Return date, versions and machine."""
    import torch

    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def latest() -> dict[str, list[dict[str, Any]]]:
    """Return, for every case, its latest records, as many as it has rounds."""
    found: dict[str, list[dict[str, Any]]] = {}
    for line in RESULTS.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        found.setdefault(record["case"], []).append(record)
    return {name: records[-ROUNDS.get(name, 1) :] for name, records in found.items()}


def growth(records: list[tuple[float, float]]) -> float:
    """Return the exponent of a power law through the first and the last of (size, seconds)."""
    (first, early), (last, late) = records[0], records[-1]
    return math.log(late / early) / math.log(last / first)


def write_table() -> None:
    """Write the page from the latest records."""
    found = latest()

    def seconds(name: str, clock: str = "processor_seconds") -> float:
        return median(record[clock] for record in found[name])

    lines = ["| what | measured | must hold |", "|---|---|---|"]
    for cohort, rival_name in (("colon", "DeepSurv"), ("support", "CoxTime")):
        theirs = f"{cohort} {rival_name}"
        for preset in ("paper", "default"):
            ours = f"{cohort} {preset}"
            if ours in found and theirs in found:
                wall = [seconds(name, "seconds") for name in (ours, theirs)]
                lines.append(
                    f"| {cohort.upper()}: `{preset}`, {rival_name} | {wall[0]:.1f} s, {wall[1]:.1f} s, ratio "
                    f"{wall[0] / wall[1]:.2f} (processor time {seconds(ours):.1f} s, {seconds(theirs):.1f} s, ratio "
                    f"{seconds(ours) / seconds(theirs):.2f}) | at most 1 |"
                )
    pairs = [
        (f"fit {n}", f"fit {n} {rival_name}", f"{n:,} rows: `default`, {words}")
        for n in (5000, 50_000)
        for rival_name, words in (("forest", "scikit-survival's forest of 500 trees"), ("CoxTime", "CoxTime"))
    ]
    small = "fit and curves of 100 rows: `default`, lifelines' ridge Cox tuned by five inner folds"
    for ours, theirs, words in [*pairs, ("small default", "small ridge Cox", small)]:
        if ours in found and theirs in found:
            wall = [seconds(name, "seconds") for name in (ours, theirs)]
            lines.append(
                f"| {words} | {wall[0]:.1f} s, {wall[1]:.1f} s, ratio {wall[0] / wall[1]:.2f} (processor time "
                f"{seconds(ours):.1f} s, {seconds(theirs):.1f} s, ratio {seconds(ours) / seconds(theirs):.2f}) | at "
                "most 1 |"
            )
    for kind, limit in (("rows", "4 GiB"), ("weights", "8 GiB")):
        sizes = sorted(int(name.split()[1]) for name in found if name.startswith(kind))
        if len(sizes) > 1:
            points = [(float(size), seconds(f"{kind} {size}")) for size in sizes]
            peak = max(record["peak_mib"] for size in sizes for record in found[f"{kind} {size}"])
            times = ", ".join(f"{size:,}: {value:.1f} s" for size, (_, value) in zip(sizes, points, strict=True))
            lines.append(
                f"| growth with {kind} ({times}) | exponent {growth(points):.2f}, peak {peak:.0f} MiB | at most 1.1, "
                f"{limit} |"
            )
    if "predict" in found:
        record = found["predict"][-1]
        lines.append(
            f"| prediction of 10,000 people × 100 times × 500 draws | {record['processor_seconds']:.0f} s, its matrix "
            f"product {record['product_processor_seconds']:.0f} s, ratio "
            f"{record['processor_seconds'] / record['product_processor_seconds']:.1f} | at most 3 |"
        )
    for name, words, limit in (
        ("bands", "survival of 635 people × 120 times × 1,000 draws, METABRIC, with intervals", "1/10"),
        ("risk", "risk of 10,000 people", ""),
        ("report", "`report` on 400 rows × 18 columns", "1/6"),
        ("evaluate", "`evaluate` on 400 rows × 18 columns", "1/6"),
    ):
        if name in found and name + EARLIER in found:
            ours, theirs = seconds(name), seconds(name + EARLIER)
            earlier = found[name + EARLIER][-1]["commit"]
            must = f"at most {limit}" if limit else ""
            lines.append(
                f"| {words}: now, at {earlier} | {ours:.2f} s, {theirs:.2f} s, ratio 1/{theirs / ours:.1f} | {must} |"
            )
    for forest in ("risk forest", "risk forest, low memory"):
        if "risk" in found and forest in found:
            ours, theirs = seconds("risk", "seconds"), seconds(forest, "seconds")
            words = forest.replace("risk forest", "scikit-survival's forest of 500 trees")
            must = "at most 1" if forest == "risk forest" else ""
            lines.append(
                f"| risk of 10,000 people: ours, {words} | {ours:.2f} s, {theirs:.2f} s, ratio {ours / theirs:.2f} "
                f"(processor time {seconds('risk'):.2f} s, {seconds(forest):.2f} s, ratio "
                f"{seconds('risk') / seconds(forest):.2f}) | {must} |"
            )
    if "wide report" in found:
        lines.append(f"| `report` on 60 rows × 80 columns | {seconds('wide report'):.1f} s | ends |")
    if "imports" in found:
        parts = found["imports"][-1]["seconds"]
        base = parts["torch"]
        ratios = ", ".join(f"{name} {value / base:.2f}" for name, value in parts.items())
        lines.append(f"| import time, relative to torch | {ratios} | neuralsurv at most 1.2 |")
    dates = sorted(record["date"] for records in found.values() for record in records)
    head = (
        f"Written by `python benchmarks/speed/speed.py`; measured from {dates[0]} to {dates[-1]} on "
        f"{found[next(iter(found))][-1]['cores']} cores. Comparisons with other packages use wall-clock time, with "
        "alternating runs (median of the rounds) and all cores available; a ratio of processor time above that of "
        "wall-clock time means that ours uses more cores. Everything else is processor time, which is less sensitive "
        "to the load of the machine."
        "\n\n"
    )
    TABLE.write_text("# Speed\n\n" + head + "\n".join(lines) + "\n", encoding="utf-8")


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("case", nargs="*", help="beginning of the names of cases; all if none is given")
    parser.add_argument("--rival-src", type=Path, help="a checkout of an earlier commit, to compare with")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(CASES[arguments.one]()))
        return
    chosen = [name for name in CASES if not arguments.case or name.startswith(tuple(arguments.case))]
    run(chosen, arguments.rival_src)
    write_table()
    print(TABLE.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
