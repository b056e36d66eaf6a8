"""The page on fuzzing, from the stored chunks."""

from __future__ import annotations

import collections
from typing import Any

LAYERS = {
    "fit": "`NeuralSurv(...).fit(X, y)`, then two predictions",
    "read": "the same cohorts up to the numbers that a fit sees, and new rows through the same encoding",
    "file": "`neuralsurv.load` of damaged and forged model files, and a prediction where one opens",
    "table": "the command line's reader of tables: text, compressed text, Parquet, feather",
    "atheris": "`neuralsurv.load`, bytes led by which branches of the reader they reach (atheris)",
}
GROUPS = {
    "hazard": "Hazards that are put into a cohort",
    "outcome": "Outcomes",
    "type": "Types of a covariate",
    "X as": "What X comes in",
    "array": "Arrays in memory",
    "index": "Index of a table",
    "y as": "Form of the outcome",
    "new rows": "New rows, changed",
    "asked": "Predictions",
    "preset": "Presets",
    "file": "Model files",
    "table": "Tables from files",
}
_GOOD = ("fitted", "accepted", "opened", "cohort")


def latest(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the chunks of the newest source, and the last of two records of one chunk."""
    if not records:
        return []
    newest = records[-1]["fingerprint"]
    return list({(r["layer"], r["seed"], r["asked"]): r for r in records if r["fingerprint"] == newest}.values())


def _split(came: dict[str, int]) -> tuple[int, int]:
    """Return how many cases ended in curves (or numbers, a model, a table), and how many in one of our errors."""
    good = sum(came.get(name, 0) for name in _GOOD)
    return good, sum(count for name, count in came.items() if not name.startswith("asked")) - good


def page(records: list[dict[str, Any]], kept: int) -> str:
    """Return the page in Markdown."""
    own = latest(records)
    if not own:
        raise SystemExit("the store is empty; do `run` first.")
    tally: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    layers: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for record in own:
        layers[record["layer"]].update(
            {"cases": record["cases"], "broken": len(record["broken"]), "seconds": record["cpu_seconds"]}
        )
        layers[record["layer"]].update(record["came"].get("all", {}))
        for kind, came in record["came"].items():
            tally[kind].update(came)
    cases = sum(counts["cases"] for counts in layers.values())
    broken = sum(counts["broken"] for counts in layers.values())
    dates = sorted({record["date"] for record in own})
    when = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    return "\n".join(
        [
            "# Fuzzing",
            "",
            "<!-- Written by `python benchmarks/fuzz/fuzz.py table`; do not edit. -->",
            "",
            "Any input either gives finite, monotone curves or is refused with an error of this library that says "
            "what is wrong. A program generates the inputs: small cohorts (up to 12 rows and 5 columns, sometimes 100 "
            "and rarely 10,000) with any number of problems injected, model files that were damaged, or forged with a "
            "valid digest, and files for the command line.",
            "",
            "A case is **broken** if it raises an exception that is not in `neuralsurv.errors`, or a warning that "
            "is not ours; if a prediction holds NaN, leaves its range, is infinite where it should be finite, is "
            "not monotone, or has a different shape or index from its rows; if a cohort in which an independent, "
            "simple implementation of the rules finds no fault is refused, one with a fault is accepted, or the "
            "message does not name the column at fault; if opening a file runs code or allocates a gigabyte. Every "
            "case that was broken once is reduced and kept in `tests/fail/`, where the tests replay it; there are "
            f"{kept}.",
            "",
            f"The stored run ({when}, two cores): **{cases:,} cases, {broken} broken**.",
            "",
            *_layer_table(layers),
            "",
            *_notes(layers),
            "## The cases",
            "",
            "*Good* cases ended in a fitted model (an encoded cohort, an opened model, a table with a usable "
            "outcome), *refused* ones in an error of this library. A case counts in every row that it belongs to.",
            "",
            *_kind_tables(tally),
            "Produced by `python benchmarks/fuzz/fuzz.py run` and `table`, and `python benchmarks/fuzz/file_reader.py` "
            "for atheris; a line for each chunk of cases, with its seed, is in `benchmarks/fuzz/results.jsonl`.",
            "",
        ]
    )


def _layer_table(layers: dict[str, collections.Counter[str]]) -> list[str]:
    lines = ["| what is called | cases | good | refused | broken | ms a case |", "|---|--:|--:|--:|--:|--:|"]
    for layer, words in LAYERS.items():
        counts = layers.get(layer)
        if counts:
            came = {name: count for name, count in counts.items() if name not in ("cases", "broken", "seconds")}
            good, refused = _split(came)
            cost = 1000 * counts["seconds"] / max(1, counts["cases"])
            lines.append(
                f"| {words} | {counts['cases']:,} | {good:,} | {refused:,} | {counts['broken']} | {cost:.1f} |"
            )
    return lines


def _notes(layers: dict[str, collections.Counter[str]]) -> list[str]:
    fit = layers.get("fit")
    if not fit:
        return []
    return [
        f"So {fit['fitted']:,} of the cases are complete fits, with {fit['asked: answered']:,} predictions answered "
        f"and {fit['asked: refused']:,} refused. In {fit['gave up']:,} cases the numbers of a fit left the range of "
        "floating point (weights of 1e12 beside 1e-300, for example) and it ended with an error that names no column. "
        "Fits use small settings, few sweeps and at most 8 draws, so that thousands of them take an hour; the exact "
        "sampler, streamed fits, and user-defined networks are not among them.",
        "",
    ]


def _kind_tables(tally: dict[str, collections.Counter[str]]) -> list[str]:
    lines = []
    for group, title in GROUPS.items():
        own = {kind: came for kind, came in sorted(tally.items()) if kind.startswith(f"{group}: ")}
        if own:
            lines += [f"### {title}", "", "| kind | cases | good | refused |", "|---|--:|--:|--:|"]
            for kind, came in own.items():
                good, refused = _split(came)
                lines.append(f"| {kind.removeprefix(group + ': ')} | {good + refused:,} | {good:,} | {refused:,} |")
            lines.append("")
    return lines
