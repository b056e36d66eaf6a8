"""The page and the picture of the coverage study, from its stored records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from coverage_jobs import (
    CENSORING,
    DESIGNS,
    LEVELS,
    MIDDLE,
    NEAR,
    PEOPLE,
    PRESETS,
    ROWS,
    ROWS_OF_LARGE,
    TIMES,
    fingerprint,
)

LOWEST, HIGHEST = 0.85, 0.95
_BAR = "0.9"
_LABELS = {"default": "`default`", "paper": "`paper`, `hidden=(16,)`"}


def current(records: list[dict[str, Any]]) -> pd.DataFrame:
    """Return one line for each job done with the choices that the presets make today; the last one where repeated."""
    kept = {}
    for record in records:
        if record["preset"] in PRESETS and record["fingerprint"] == fingerprint(record["preset"], record["rows"]):
            kept[tuple(record[name] for name in ("preset", "design", "rows", "censoring", "replicate"))] = record
    if not kept:
        raise SystemExit("the store holds no result of today's presets; do `run` first.")
    return pd.DataFrame(flat(record) for record in kept.values())


def small(table: pd.DataFrame) -> pd.DataFrame:
    """Return the cohorts that the bar is for."""
    return table[table["rows"] < ROWS_OF_LARGE[0]]


def flat(record: dict[str, Any]) -> dict[str, Any]:
    """Return a record with its levels as columns such as ``pointwise 0.9``."""
    levels = record.get("levels", {})
    plain = {name: value for name, value in record.items() if not isinstance(value, dict | list)}
    return plain | {f"{name} {level}": value for level, of in levels.items() for name, value in of.items()}


def page(records: list[dict[str, Any]]) -> str:
    """Return the page in Markdown."""
    everything = current(records)
    table = small(everything)
    parts = [
        "# Coverage of the bands",
        "",
        "Does a 90 % band contain the true curve nine times in ten? Cohorts are simulated and fitted, and curves are "
        f"predicted for {PEOPLE} new people at {TIMES} times up to the 90 % quantile of the training rows' event "
        "times. A figure is the share of people and times at which the band contains the true S(t | x), averaged over "
        "cohorts.",
        "",
        "Designs: *log-normal*, the two crossing groups of the paper's simulation; *SAC*, a sine, an accelerating and "
        "a constant hazard, mixed differently for each person, 45 covariates; *proportional*, Weibull with a linear "
        "log-risk; *crossing*, a falling Weibull and a rising gamma hazard with two continuous effects; *interaction*, "
        "Weibull with a product of two covariates (`neuralsurv.data.simulate`).",
        "",
        "![Coverage against the number of rows](coverage.png)",
        "",
    ]
    for preset in [name for name in PRESETS if name in set(table["preset"])]:
        own = table[table["preset"] == preset]
        failed = own["error"].notna().sum() if "error" in own else 0
        origin = _provenance(own) + (f" {failed} fits ended with an error." if failed else "")
        parts += [
            f"## {_LABELS[preset]}",
            "",
            origin,
            "",
            *_summary(own),
            "",
            *_misses(own),
            "",
            *_cells(own),
            "",
            *_levels(own),
            "",
        ]
    large = everything[(everything["rows"] >= ROWS_OF_LARGE[0]) & (everything["preset"] == "default")]
    if len(large):
        counts = large.groupby(["design", "rows", "censoring"]).size()
        parts += [
            f"## `default` with {ROWS_OF_LARGE[0]:,} rows and more",
            "",
            "There the model has neighbourhoods in place of its network ([the model](../default.md)). "
            f"{len(large)} cohorts, at least {counts.min()} in a cell; run {large['date'].min()} to "
            f"{large['date'].max()}. The targets above are for smaller cohorts; these do not count towards them.",
            "",
            *_misses(large),
            "",
            *_cells(large),
            "",
        ]
    parts += [
        "## Where bands are too narrow",
        "",
        "*Crossing.* At early times nearly everybody in the gamma group is alive, and the truth lies above the band, "
        "mostly by less than 0.01: under the prior, hazards differ between people by factors, not by orders of "
        "magnitude. Where survival is neither near 1 nor near 0, coverage is close to nominal.",
        "",
        "*SAC.* Nine hidden numbers, each the sum of five covariates, decide which of three kinds of hazard a person "
        "has. That cannot be learned from so few rows, and a posterior that misses it takes people for more alike "
        "than they are. No band can be valid for all such cohorts and still be informative: one event per person "
        "cannot distinguish curves that depend on the covariates in a way too intricate to learn from pure chance, "
        "with the same curve for everybody (Barber 2020, *Is distribution-free inference possible for binary "
        "regression?*). The bands assume that effects are mostly sums of smooth effects of one or two covariates; "
        "where they are not, the bands are too narrow, and more rows make it worse until features are learned "
        "([large cohorts](../large.md)).",
        "",
        "Produced by `python benchmarks/proof/coverage_study.py run`, `table` and `plot`; the record of every job is "
        "in `benchmarks/proof/coverage.jsonl`.",
        "",
    ]
    return "\n".join(parts)


def _summary(table: pd.DataFrame) -> list[str]:
    """One line for each design: the bar, and whether bias or width is behind a miss."""
    lines = [
        "Averages over all sizes and censoring shares, with their standard errors. *Half width* is that of the "
        "90 % band; *error* the mean distance of the mean curve from the truth; *error in sd* its root mean square in "
        "posterior standard deviations (1 where the width is right); *spread* how far apart the predicted curves of "
        "different people lie, as a share of how far the true ones do.",
        "",
        f"| design | coverage of 90 % | {LOWEST:.0%} to {HIGHEST:.0%} | whole curve | half width | error | error in sd "
        "| spread |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for design in _designs(table):
        own = table[table["design"] == design]
        of = cell_means(own)
        coverage = of[f"pointwise {_BAR}"].mean()
        lines.append(
            f"| {design} | {coverage:.3f}{_standard_error(own)} | "
            f"{'yes' if LOWEST <= coverage <= HIGHEST else 'no'} | {of[f'simultaneous {_BAR}'].mean():.3f} | "
            f"{of[f'width {_BAR}'].mean() / 2:.3f} | {of['absolute_error'].mean():.3f} | "
            f"{of['standardised'].mean():.2f} | {of['spread'].mean():.2f} |"
        )
    return lines


def _misses(table: pd.DataFrame) -> list[str]:
    """One line for each design: how far bands miss, and where."""
    low, high = MIDDLE
    lines = [
        f"By how much a band misses, and where. *Within {NEAR}*: the share of people and times at which the truth is "
        f"in the 90 % band or no further from it than {NEAR}; *middle*: the coverage where the true survival is "
        f"between {low:.0%} and {high:.0%}, and the share of such people and times.",
        "",
        f"| design | coverage of 90 % | within {NEAR} | middle | share of the middle |",
        "|---|---|---|---|---|",
    ]
    for design in _designs(table):
        of = cell_means(table[table["design"] == design])
        figures = (of[name].mean() for name in (f"pointwise {_BAR}", "within", "middle", "middle_share"))
        lines.append(f"| {design} | {' | '.join(f'{figure:.3f}' for figure in figures)} |")
    return lines


def cell_means(table: pd.DataFrame) -> pd.DataFrame:
    """Return one line for each size and censoring share, so that cells count alike however many cohorts they hold."""
    return table.groupby(["rows", "censoring"]).mean(numeric_only=True)


def _standard_error(table: pd.DataFrame) -> str:
    """Return the standard error of the mean over cells, where every cell has the two cohorts that it takes."""
    cells = table.groupby(["rows", "censoring"])[f"pointwise {_BAR}"]
    if cells.count().min() < 2:
        return ""
    return f" ± {np.sqrt((cells.var() / cells.count()).sum()) / len(cells):.3f}"


def _cells(table: pd.DataFrame) -> list[str]:
    """Coverage and width of the 90 % band in every cell."""
    shares = [share for share in CENSORING if share in set(table["censoring"])]
    lines = [
        "Coverage of the 90 % band / its width, by censoring share:",
        "",
        f"| design | rows | {' | '.join(f'{share:.0%}' for share in shares)} |",
        f"|---|---|{'---|' * len(shares)}",
    ]
    for design in _designs(table):
        for rows in sorted(set(table["rows"])):
            of = table[(table["design"] == design) & (table["rows"] == rows)]
            cells = [of[of["censoring"] == share] for share in shares]
            shown = [
                f"{c[f'pointwise {_BAR}'].mean():.2f} / {c[f'width {_BAR}'].mean():.2f}" if len(c) else "–"
                for c in cells
            ]
            lines.append(f"| {design} | {rows} | {' | '.join(shown)} |")
    return lines


def _levels(table: pd.DataFrame) -> list[str]:
    """Coverage at every level, by design."""
    lines = [
        "Coverage at other levels, over all cells:",
        "",
        f"| design | {' | '.join(f'{level:.0%}' for level in LEVELS)} |",
        f"|---|{'---|' * len(LEVELS)}",
    ]
    for design in _designs(table):
        of = cell_means(table[table["design"] == design])
        shown = " | ".join(f"{of[f'pointwise {level}'].mean():.3f}" for level in LEVELS)
        lines.append(f"| {design} | {shown} |")
    return lines


def _provenance(table: pd.DataFrame) -> str:
    counts = table.groupby(["design", "rows", "censoring"]).size()
    each = f"{counts.min()}" if counts.min() == counts.max() else f"{counts.min()} to {counts.max()}"
    cells = len(DESIGNS) * len(ROWS) * len(CENSORING)
    part = "" if len(counts) >= cells else f" **{cells - len(counts)} of {cells} cells are still missing.**"
    return (
        f"{len(table)} cohorts, {each} in a cell of design, rows and censoring share; "
        f"run {table['date'].min()} to {table['date'].max()}.{part}"
    )


def _designs(table: pd.DataFrame) -> list[str]:
    return [name for name in DESIGNS if name in set(table["design"])]


def picture(records: list[dict[str, Any]], out: Path) -> None:
    """Draw coverage of the 90 % band against the number of rows, a panel a design, a line a censoring share."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    table = small(current(records))
    presets = [name for name in PRESETS if name in set(table["preset"])]
    designs = _designs(table)
    figure, axes = pyplot.subplots(
        len(presets), len(designs), figsize=(2.6 * len(designs), 0.6 + 2.7 * len(presets)), squeeze=False, sharey=True
    )
    # From light to dark as less is seen; one hue, readable in grey.
    colours = dict(zip(CENSORING, ("#9ecae1", "#4292c6", "#08306b"), strict=True))
    for line, preset in enumerate(presets):
        for column, design in enumerate(designs):
            ax = axes[line, column]
            ax.axhspan(LOWEST, HIGHEST, color="0.92", zorder=0)
            ax.axhline(0.9, color="0.5", linewidth=0.8, zorder=1)
            for share in CENSORING:
                of = table[
                    (table["preset"] == preset) & (table["design"] == design) & (table["censoring"] == share)
                ].groupby("rows")[f"pointwise {_BAR}"]
                if len(of):
                    error = np.nan_to_num(of.sem().to_numpy())
                    # Slightly apart, so that the bars of three lines do not hide each other.
                    at = of.mean().index.to_numpy() * {0.2: 0.94, 0.5: 1.0, 0.8: 1.06}[share]
                    ax.errorbar(
                        at, of.mean(), error, color=colours[share], marker="o", markersize=3.5, linewidth=1.2,
                        label=f"{share:.0%} censored",
                    )  # fmt: skip
            shown = [rows for rows in ROWS if rows in set(table["rows"])]
            ax.set_xscale("log")
            ax.set_xticks(shown, [str(rows) for rows in shown])
            ax.minorticks_off()
            ax.set_xlim(0.8 * shown[0], 1.25 * shown[-1])
            ax.set_ylim(0, 1.02)
            ax.spines[["top", "right"]].set_visible(False)
            if line == 0:
                ax.set_title(design, fontsize=10)
            if line == len(presets) - 1:
                ax.set_xlabel("training rows")
        axes[line, 0].set_ylabel(f"{preset}\ncoverage of the 90 % band")
    axes[0, 0].legend(frameon=False, fontsize=8, loc="lower left")
    figure.tight_layout()
    figure.savefig(out, dpi=150)
    pyplot.close(figure)
