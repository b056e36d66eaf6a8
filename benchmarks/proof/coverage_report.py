"""The page, the picture and the check of the coverage study, from its stored records."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from coverage_jobs import DESIGNS, LEVELS, MIDDLE, NEAR, PEOPLE, PRESETS, ROWS, TIMES

LOWEST, HIGHEST = 0.85, 0.95
# What is asked of SAC in place of the coverage of S: that of the prediction interval.
INTERVAL_LOWEST, INTERVAL_HIGHEST = 0.88, 0.92
INTERVAL_DESIGNS = ("SAC",)
LEAST_COHORTS = 20
# A cell is outside of its range if its mean is, by more than this many standard errors.
ERRORS = 2.0
RULE = (
    f"A cell of design and rows is *outside* if the mean over its cohorts leaves the range by more than {ERRORS:g} of "
    "its standard errors (standard deviation over cohorts, divided by the root of their number), and *near* if it "
    "leaves it by less. It is *short* with fewer than "
    f"{LEAST_COHORTS} cohorts. The check fails if a cell is outside, short or missing. The range is "
    f"{LOWEST} to {HIGHEST} for the coverage of S(t | x) by the 90 % band, but for {', '.join(INTERVAL_DESIGNS)} "
    f"{INTERVAL_LOWEST} to {INTERVAL_HIGHEST} for that of a person's own event time by an interval which, by the "
    "model's own word, holds it with 90 %."
)
_LABELS = {"default": "`default`", "paper": "`paper`, `hidden=(16,)`"}
# The records of before the eleven designs have no digest of their model.
OLDER = "older"


def flat(record: dict[str, Any]) -> dict[str, Any]:
    """Return a record as a line of a table, with columns such as ``coverage 0.9``; older ones in the same columns."""
    plain = {name: value for name, value in record.items() if not isinstance(value, dict | list)}
    if "model" in record:
        return plain | {f"coverage {level}": value for level, value in record.get("coverage", {}).items()}
    levels = record.get("levels", {})
    plain |= {"model": OLDER, "commit": ""} | {f"coverage {level}": of["pointwise"] for level, of in levels.items()}
    if levels:
        plain |= {"half_width": levels["0.9"]["width"] / 2, "error_in_sd": plain.pop("standardised")}
    return plain


def table_of(records: Iterable[dict[str, Any]]) -> pd.DataFrame:
    """Return one line for each job; the last one where a job was repeated with the same model."""
    lines = {}
    for record in map(flat, records):
        if record["preset"] in PRESETS:
            names = ("preset", "design", "rows", "censoring", "replicate", "model")
            lines[tuple(record[name] for name in names)] = record
    if not lines:
        raise SystemExit("the store holds no results; do `run` first.")
    return pd.DataFrame(lines.values())


def newest(records: list[dict[str, Any]], preset: str = "default") -> pd.DataFrame:
    """Return the results of the model that was run last."""
    table = table_of(records)
    own = table[table["preset"] == preset]
    if own.empty:
        raise SystemExit(f"the store holds no results of {preset}; do `run` first.")
    return own[own["model"] == own["model"].iloc[-1]]


def small(table: pd.DataFrame) -> pd.DataFrame:
    """Return the cohorts of up to 1,000 rows."""
    return table[table["rows"] <= 1000]


def cell_means(table: pd.DataFrame) -> pd.DataFrame:
    """Return one line for each size and censoring share, so that cells count alike however many cohorts they hold."""
    return table.groupby(["rows", "censoring"]).mean(numeric_only=True)


def mean_and_error(values: pd.Series) -> tuple[float, float, int]:
    """Return mean, standard error (NaN of a single cohort) and number of the cohorts that have a value."""
    known = values.dropna()
    count = len(known)
    return float(known.mean()), float(known.std() / np.sqrt(count)) if count > 1 else np.nan, count


def verdict(mean: float, error: float, count: int, lowest: float, highest: float) -> str:
    """Return what `RULE` says of a cell: yes, near, outside or short."""
    if count < LEAST_COHORTS or np.isnan(error):
        return "short"
    beyond = max(lowest - mean, mean - highest)
    return "yes" if beyond <= 0 else "near" if beyond <= ERRORS * error else "outside"


def checked(table: pd.DataFrame) -> pd.DataFrame:
    """Return the verdict on every cell of the designs and sizes that are asked for, a line each."""
    lines = []
    for design in DESIGNS:
        by_interval = design in INTERVAL_DESIGNS
        name = "interval_90" if by_interval else "coverage 0.9"
        bounds = (INTERVAL_LOWEST, INTERVAL_HIGHEST) if by_interval else (LOWEST, HIGHEST)
        for rows in ROWS:
            own = table[(table["design"] == design) & (table["rows"] == rows)]
            mean, error, count = mean_and_error(own[name]) if name in own else (np.nan, np.nan, 0)
            word = verdict(mean, error, count, *bounds) if count else "missing"
            lines.append((design, rows, name, mean, error, count, word))
    return pd.DataFrame(lines, columns=["design", "rows", "measure", "mean", "error", "cohorts", "verdict"])


def problems(table: pd.DataFrame) -> list[str]:
    """Return the cells that do not hold, in words."""
    found = checked(table)
    wrong = found[~found["verdict"].isin(["yes", "near"])]
    return [
        f"{cell.design}, {cell.rows} rows: {cell.verdict}"
        + (f", {cell.measure} {cell.mean:.3f} ± {cell.error:.3f} in {cell.cohorts} cohorts" if cell.cohorts else "")
        for cell in wrong.itertuples()
    ]


def page(records: list[dict[str, Any]], today: dict[str, str]) -> str:
    """Return the page in Markdown; `today` has the digest of each preset's model, others are marked by their date."""
    parts = [
        "# Coverage of the bands",
        "",
        "Does a 90 % band contain the true curve nine times in ten? Cohorts are simulated and fitted, and curves are "
        f"predicted for {PEOPLE} new people at {TIMES} times up to the 90 % quantile of the training rows' event "
        "times. Coverage is the share of people and times at which the band contains the true S(t | x). A figure is "
        "the mean over cohorts ± its standard error.",
        "",
        "Designs (`neuralsurv.data.simulate`): *log-normal*, the two crossing groups of the paper's simulation; *SAC*, "
        "a sine, an accelerating and a constant hazard, mixed differently for each person, 45 covariates; "
        "*proportional*, Weibull with a linear log-risk; *crossing*, a falling Weibull and a rising gamma hazard with "
        "two continuous effects; *interaction*, Weibull with a product of two covariates. Six more are frozen for "
        "checks, and no model is developed on them: *accelerated*, log-normal times with a sine, a threshold and a "
        "square; *sparse*, 20 covariates of which two matter; *turning*, log-logistic with an effect that changes sign "
        "in time; *cure*, a share of people never has the event; *frailty*, a gamma frailty that is not observed; "
        "*two waves*, an early and a late wave of events with covariates of their own.",
        "",
        "![Coverage against the number of rows](coverage.png)",
        "",
    ]
    everything = table_of(records)
    for preset in [name for name in PRESETS if name in set(everything["preset"])]:
        own = everything[everything["preset"] == preset]
        models = list(dict.fromkeys(own["model"][::-1]))
        for number, model in enumerate(models):
            of = own[own["model"] == model]
            title = _LABELS[preset] if model == today[preset] else f"{_LABELS[preset]} as of {of['date'].max()}"
            parts += [f"## {title}", "", _provenance(of, failed=_failed(of)), ""]
            parts += _all_tables(of) if number == 0 else [*_cells(of, "coverage 0.9", 1, counts=True), ""]
    parts += [
        "## Where bands are too narrow",
        "",
        "*Accelerated, crossing, turning.* Effects of covariates change with time here, most of all early: while "
        "nearly everybody with some covariates is alive, the truth lies above the band, in the crossing design mostly "
        "by less than 0.01. Under the prior, hazards differ between people by factors, not by orders of magnitude. In "
        "the accelerated design curves also miss at the ends of the covariates, where few rows tell of a sine or a "
        "square. More rows make the bands narrower but not these errors smaller.",
        "",
        "*SAC.* Nine hidden numbers, each the sum of five covariates, decide which of three kinds of hazard a person "
        "has. That cannot be learned from so few rows, and a posterior that misses it takes people for more alike "
        "than they are. No band can be valid for all such cohorts and still be informative: one event per person "
        "cannot distinguish curves that depend on the covariates in a way too intricate to learn from pure chance, "
        "with the same curve for everybody (Barber 2020, *Is distribution-free inference possible for binary "
        "regression?*). The bands assume that effects are mostly sums of smooth effects of one or two covariates; "
        "where they are not, the bands are too narrow, and more rows make it worse until features are learned "
        "([large cohorts](../large.md)). What can be asked there is that the prediction interval of a person's own "
        "event time holds it as often as it says.",
        "",
        "Produced by `python benchmarks/proof/coverage_study.py run`, `table` and `plot`; the record of every cohort "
        "is in `benchmarks/proof/coverage.jsonl`.",
        "",
    ]
    return "\n".join(parts)


def _all_tables(table: pd.DataFrame) -> list[str]:
    """The check, and a table for every measure that was stored."""
    low, high = MIDDLE
    measures = (
        ("coverage 0.9", 1, "Coverage of the 90 % band, and the number of cohorts:"),
        ("interval_90", 1, "Coverage of a new person's own event time by a 90 % prediction interval (from the 10 % "
         "quantile on where more than 5 % of the draws lie beyond the training range):"),
        ("interval", 1, "Coverage of the equal-tailed interval, `predict_event_time(x).interval(0.9)`. Where its upper "
         "end is infinite it should hold up to 95 %:"),
        ("interval_mass", 1, "What that interval should hold by the model's own word:"),
        ("half_width", 1, "Half width of the 90 % band:"),
        ("absolute_error", 1, "Mean distance of the mean curve from the truth:"),
        ("error_in_sd", 1, "Root mean square of the error in posterior standard deviations (1 where the width is "
         "right):"),
        ("ibs", 1, "Integrated Brier score of the mean curve, in expectation over new people:"),
        ("ibs_excess", 1000, "The same less that of the true curves, in thousandths:"),
        ("within", 1, f"Share of people and times at which the truth is in the 90 % band or no further from it than "
         f"{NEAR}:"),
        ("middle", 1, f"Coverage of the 90 % band where the true survival is between {low:.0%} and {high:.0%}:"),
        ("fit_seconds", 1, "Processor seconds of a fit:"),
        ("predict_seconds", 1, f"Processor seconds of the predictions for {PEOPLE} people:"),
    )  # fmt: skip
    if "ibs" in table:
        table = table.assign(ibs_excess=table["ibs"] - table["ibs_truth"])
    # The older results were made with other sizes than those that are checked.
    parts = [] if OLDER in set(table["model"]) else [*_verdicts(table), ""]
    for name, factor, words in measures:
        if name in table and table[name].notna().any():
            parts += [words, "", *_cells(table, name, factor, counts=name == "coverage 0.9"), ""]
    return [*parts, *_levels(table), ""]


def _verdicts(table: pd.DataFrame) -> list[str]:
    found = checked(table)
    lines = [RULE, "", f"| design | {' | '.join(f'{rows:,} rows' for rows in ROWS)} |", f"|---|{'---|' * len(ROWS)}"]
    for design, own in found.groupby("design", sort=False):
        lines.append(f"| {design} | {' | '.join(own['verdict'])} |")
    return lines


def _cells(table: pd.DataFrame, name: str, factor: float, *, counts: bool = False) -> list[str]:
    """A line a design, a column a size: mean ± standard error over cohorts."""
    sizes = sorted(set(table["rows"]))
    lines = [f"| design | {' | '.join(f'{rows:,} rows' for rows in sizes)} |", f"|---|{'---|' * len(sizes)}"]
    for design in _designs(table):
        shown = []
        for rows in sizes:
            own = table[(table["design"] == design) & (table["rows"] == rows)]
            mean, error, count = mean_and_error(factor * own[name])
            if not count:
                shown.append("–")
                continue
            digits = 2 if mean >= 1.5 else 3
            text = f"{mean:.{digits}f}" + ("" if np.isnan(error) else f" ± {error:.{digits}f}")
            shown.append(f"{text} ({count})" if counts else text)
        lines.append(f"| {design} | {' | '.join(shown)} |")
    return lines


def _levels(table: pd.DataFrame) -> list[str]:
    """Coverage at every level, by design."""
    lines = [
        "Coverage at other levels, over all cohorts of a design:",
        "",
        f"| design | {' | '.join(f'{level:.0%}' for level in LEVELS)} | cohorts |",
        f"|---|{'---|' * (1 + len(LEVELS))}",
    ]
    for design in _designs(table):
        own = table[table["design"] == design]
        cells = [mean_and_error(own[f"coverage {level}"]) for level in LEVELS]
        shown = " | ".join(
            f"{mean:.3f}" + ("" if np.isnan(error) else f" ± {error:.3f}") for mean, error, _count in cells
        )
        lines.append(f"| {design} | {shown} | {cells[0][2]} |")
    return lines


def _failed(table: pd.DataFrame) -> int:
    return int(table["error"].notna().sum()) if "error" in table else 0


def _provenance(table: pd.DataFrame, failed: int) -> str:
    shares = ", ".join(f"{share:.0%}" for share in sorted(set(table["censoring"])))
    commits = ", ".join(name for name in dict.fromkeys(table["commit"]) if name)
    days = " to ".join(dict.fromkeys([table["date"].min(), table["date"].max()]))
    return (
        f"{len(table)} cohorts with {shares} of the rows censored; run {days}"
        + (f", commit {commits}" if commits else ", before the six frozen designs and the measures of event times")
        + "."
        + (f" {failed} fits ended with an error." if failed else "")
    )


def _designs(table: pd.DataFrame) -> list[str]:
    return [name for name in DESIGNS if name in set(table["design"])]


def picture(records: list[dict[str, Any]], out: Path) -> None:
    """Draw coverage of the 90 % band against the number of rows, a panel a design, with bars of two standard errors."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    stored = set(table_of(records)["preset"])
    presets = [name for name in PRESETS if name in stored]
    tables = {name: newest(records, name) for name in presets}
    designs = [name for name in DESIGNS if any(name in set(table["design"]) for table in tables.values())]
    across = min(4, len(designs))
    down = -(-len(designs) // across)
    figure, axes = pyplot.subplots(
        down, across, figsize=(2.9 * across, 0.4 + 2.4 * down), squeeze=False, sharex=True, sharey=True
    )
    colours = dict(zip(presets, ("#08306b", "#d94801"), strict=False))
    sizes = sorted(set().union(*(set(table["rows"]) for table in tables.values())))
    for ax in axes.flat[len(designs) :]:
        ax.set_axis_off()
    for number, design in enumerate(designs):
        ax = axes.flat[number]
        ax.axhspan(LOWEST, HIGHEST, color="0.92", zorder=0)
        ax.axhline(0.9, color="0.5", linewidth=0.8, zorder=1)
        for preset, table in tables.items():
            own = table[table["design"] == design]
            measures = [("coverage 0.9", "o", "-", "of S(t | x)"), ("interval_90", "s", ":", "of event times")]
            for name, marker, line, words in measures:
                if name in own and own[name].notna().any():
                    of = own.groupby("rows")[name]
                    error = 2 * np.nan_to_num(of.sem().to_numpy())
                    ax.errorbar(
                        of.mean().index.to_numpy() * (1 if name == "coverage 0.9" else 1.08), of.mean(), error,
                        color=colours[preset], marker=marker, linestyle=line, markersize=3.5, linewidth=1.2,
                        label=words if len(presets) == 1 else f"{preset}, {words}",
                    )  # fmt: skip
        ax.set_xscale("log")
        ax.set_xticks(sizes, [f"{rows:,}" for rows in sizes], rotation=45, fontsize=8)
        ax.minorticks_off()
        ax.set_xlim(0.8 * sizes[0], 1.25 * sizes[-1])
        ax.set_ylim(0, 1.02)
        ax.spines[["top", "right"]].set_visible(False)
        ax.set_title(design, fontsize=10)
        if number % across == 0:
            ax.set_ylabel("coverage of 90 %")
        if number >= len(designs) - across:
            ax.set_xlabel("training rows")
            ax.tick_params(labelbottom=True)
    axes.flat[0].legend(frameon=False, fontsize=8, loc="lower left")
    figure.tight_layout()
    figure.savefig(out, dpi=150)
    pyplot.close(figure)
