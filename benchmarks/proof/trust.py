"""The figures of the page "How far to trust it", from the stored results of the studies.

``python benchmarks/proof/trust.py`` writes them into docs/trust.md between its two marks; ``--check`` only says whether
they are there already.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from coverage_report import cell_means, newest, small
from gold_problems import PROBLEMS
from gold_tables import gap, load
from job_store import read_store
from sbc_report import ranks_of, verdicts

FOLDER = Path(__file__).parent
PAGE = FOLDER.parents[1] / "docs" / "trust.md"
BEGIN = "<!-- Figures: written by `python benchmarks/proof/trust.py`. -->"
END = "<!-- End of the figures. -->"
PRESETS = ("default", "paper")


def coverage() -> list[tuple[str, str]]:
    """Return, for each design, the share of the truth that a 90 % band of the default holds."""
    table = small(newest(read_store(FOLDER / "coverage.jsonl")))
    found = []
    for design, own in table.groupby("design", sort=False):
        means = cell_means(own)["coverage 0.9"]
        by_rows = means.groupby("rows").mean()
        sizes = ", ".join(f"{size:,} rows {value:.2f}" for size, value in by_rows.items())
        found.append((f"coverage of a 90 % band, *{design}* design", f"{means.mean():.2f} ({sizes})"))
    cells = len(table.groupby(["design", "rows", "censoring"]))
    count = f"{len(table)} cohorts in {cells} cells of design, rows and censoring, run up to {table['date'].max()}"
    return [*found, ("… from", count)]


def gold() -> list[tuple[str, str]]:
    """Return ratios of standard deviations of S to those of exact posteriors: geometric mean, least and most."""
    found = []
    for preset in PRESETS:
        for reference, words in (("exact", "that of its linearised model"), ("network", "that of the network itself")):
            ratios = []
            for problem in PROBLEMS:
                stored = load(FOLDER / "gold", problem, preset)
                if stored is not None and f"{reference}_draws" in stored:
                    ratios.append(gap(stored, "variational", reference).sd_ratio)
            middle = np.exp(np.mean(np.log(ratios)))
            text = f"{middle:.2f} ({min(ratios):.2f} to {max(ratios):.2f} in {len(ratios)} problems)"
            found.append((f"`{preset}`: sd of S over {words}", text))
    return found


def calibration() -> list[tuple[str, str]]:
    """Return which posteriors pass simulation-based calibration."""
    from sbc import fingerprint

    records = read_store(FOLDER / "sbc.jsonl")
    found = []
    for model in PRESETS:
        ranks = ranks_of(records, model, fingerprint(model))
        verdict = {name: all(one.uniform for one in verdicts(of).values()) for name, of in ranks.items()}
        passed = ", ".join(f"*{name}*" for name, good in verdict.items() if good)
        failed = ", ".join(f"*{name}*" for name, good in verdict.items() if not good)
        count = min(len(of) for quantities in ranks.values() for of in quantities.values())
        found.append((f"`{model}`: simulation-based calibration, {count} cohorts", f"pass: {passed}; fail: {failed}"))
    return found


def fuzzing() -> list[tuple[str, str]]:
    """Return how many inputs were tried on the newest sources, and how many broke a promise."""
    records = read_store(FOLDER.parent / "fuzz" / "results.jsonl")
    newest = [record for record in records if record["fingerprint"] == records[-1]["fingerprint"]]
    cases: dict[str, int] = {}
    for record in newest:
        cases[record["layer"]] = cases.get(record["layer"], 0) + record["cases"]
    parts = ", ".join(f"{count:,} {layer}" for layer, count in cases.items())
    broken = sum(len(record["broken"]) for record in newest)
    return [("inputs tried, and broken", f"{sum(cases.values()):,} ({parts}); {broken} broken")]


def faults() -> list[tuple[str, str]]:
    """Return the rounds of each kind of fault, and how many of them broke something."""
    last = read_store(FOLDER / "faults.jsonl")[-1]["scenarios"]
    rounds = sum(scenario["rounds"] for scenario in last.values())
    broken = sum(len(scenario["problems"]) for scenario in last.values())
    return [("kills, full disks, two writers, too little memory", f"{rounds:,} rounds, {broken} broken")]


PARTS: tuple[tuple[str, Callable[[], list[tuple[str, str]]]], ...] = (
    ("[Coverage](proof/coverage.md)", coverage),
    ("[Gold posteriors](proof/gold.md)", gold),
    ("[Simulation-based calibration](proof/sbc.md)", calibration),
    ("[Fuzzing](proof/fuzzing.md)", fuzzing),
    ("[Faults](proof/faults.md)", faults),
)


def figures() -> str:
    """Return the table."""
    lines = ["| | | |", "|---|---|---|"]
    for title, part in PARTS:
        for number, (what, value) in enumerate(part()):
            lines.append(f"| {'' if number else title} | {what} | {value} |")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; end with 1 if the page has other figures")
    given: Any = parser.parse_args(arguments)
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    new = f"{before}{BEGIN}\n\n{figures()}\n\n{END}{after}"
    if given.check:
        return int(new != text)
    PAGE.write_text(new, encoding="utf-8")
    print(figures())
    return 0


if __name__ == "__main__":
    sys.exit(main())
