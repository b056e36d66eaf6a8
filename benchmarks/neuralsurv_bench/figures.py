"""The figures: curves of the synthetic experiment, ranks and paired differences of the repeated one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from neuralsurv.errors import InputError
from neuralsurv_bench import published
from neuralsurv_bench.comparison import (
    ALL_COHORTS,
    NEARLY_ALL,
    PairedDifference,
    Ranking,
    paired_differences,
    rank_methods,
    score_frame,
)
from neuralsurv_bench.experiments import SYNTHETIC, size_setting
from neuralsurv_bench.methods.interface import Method
from neuralsurv_bench.repeated_tables import reference_method
from neuralsurv_bench.results import BRIER, CONCORDANCE, Metric, Results
from neuralsurv_bench.store import Record, Store

OTHERS_SHOWN = 2
# Told apart by people who see no red or no green (Okabe and Ito).
OUR_COLOUR = "#0072B2"
OTHER_COLOURS = ("#D55E00", "#009E73")
# Only how these two groups are drawn, in the order of their truth; the curves themselves come from the store.
_GROUP_STYLES = ("-", "--")


def pyplot() -> Any:
    """Return matplotlib's pyplot, drawing without a screen."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt


def write_figures(
    store: Store, methods: Mapping[str, Method], folder: Path, reference: str | None = None
) -> list[Path]:
    """Draw every figure that the store has results for and return the files.

    Parameters
    ----------
    store : Store
        The results.
    methods : mapping of str to Method
        The methods there are.
    folder : Path
        Where to write; made if it is not there.
    reference : str, optional
        Our method in the figures, with which the others are compared; the first of ours if not given.
    """
    folder.mkdir(parents=True, exist_ok=True)
    ours = reference_method(methods) if reference is None else reference
    drawn: dict[str, Any] = {}
    synthetic = store.records("synthetic")
    if any(record.key.method == ours for record in synthetic):
        drawn["synthetic"] = draw_synthetic(synthetic, methods, ours)
    repeated = store.records("repeated")
    for metric in (BRIER, CONCORDANCE):
        frame = score_frame(repeated, metric.name)
        frame = frame[[name for name in methods if name in frame.columns]]
        try:
            ranking = rank_methods(frame, higher_is_better=bool(metric.higher_is_better), least_share=NEARLY_ALL)
        except InputError:
            # Too little has run for ranks, as `neuralsurv-bench status` tells.
            continue
        drawn[f"ranks_{metric.name}"] = draw_ranks(ranking, metric)
        if ours in frame.columns:
            drawn[f"differences_{metric.name}"] = draw_differences(paired_differences(frame, ours), metric, ours)
    return [save_figure(figure, folder / f"{name}.png") for name, figure in drawn.items()]


def save_figure(figure: Any, path: Path) -> Path:
    """Write a figure, close it and return the file."""
    # Without the date and the version that matplotlib would write, the same results give the same file.
    figure.savefig(path, dpi=150, bbox_inches="tight", metadata={"Software": None})
    pyplot().close(figure)
    return path


def best_others(results: Results, ours: str, setting: str) -> list[tuple[Method, float]]:
    """Return the two methods, not of our family, with the lowest IBS at one size, with that IBS."""
    found = []
    for method in results.methods():
        summary = results.summary(method, "fair", BRIER, SYNTHETIC, setting)
        if method.family != "ours" and method.name != ours and summary.mean is not None:
            found.append((method, summary.mean))
    return sorted(found, key=lambda pair: pair[1])[:OTHERS_SHOWN]


def draw_synthetic(records: Sequence[Record], methods: Mapping[str, Method], ours: str) -> Any:
    """Draw, for each size, the true curve, ours with its band, and the two best others by IBS; return the figure."""
    plt = pyplot()
    results = Results(records, methods)
    sizes = published.columns("synthetic")
    figure, axes = plt.subplots(1, len(sizes), figsize=(4 * len(sizes), 3.6), sharey=True, squeeze=False)
    for ax, size in zip(axes[0], sizes, strict=True):
        setting = size_setting(size)
        own = methods[ours]
        own_score = results.summary(own, "fair", BRIER, SYNTHETIC, setting).mean
        shown = [] if own_score is None else [(own, own_score, OUR_COLOUR)]
        others = best_others(results, ours, setting)
        shown += [(method, score, colour) for (method, score), colour in zip(others, OTHER_COLOURS, strict=False)]
        for method, score, colour in shown:
            curves = results.of(method, "fair", SYNTHETIC, setting)[0].details["curves"]
            for group, style in zip(curves["groups"], _GROUP_STYLES, strict=True):
                if method is own:
                    ax.plot(curves["times"], group["truth"], color="black", linestyle=style, linewidth=1)
                    if "lower" in group:
                        ax.fill_between(curves["times"], group["lower"], group["upper"], color=colour, alpha=0.2)
                label = f"{method.name}, {score:.3f}" if style == "-" else None
                ax.plot(curves["times"], group["mean"], color=colour, linestyle=style, label=label)
        ax.set_title(f"N = {size}")
        ax.set_xlabel("time")
        ax.set_ylim(0, 1.02)
        if shown:
            ax.legend(title="method, IBS", fontsize=7, title_fontsize=7)
    axes[0][0].set_ylabel("survival (truth in black, band 90 %)")
    return figure


def draw_ranks(ranking: Ranking, metric: Metric) -> Any:
    """Draw the average ranks, with bars over methods that cannot be told apart; return the figure."""
    plt = pyplot()
    number, groups = len(ranking.methods), ranking.groups()
    figure, ax = plt.subplots(figsize=(8, 1.2 + 0.22 * number + 0.12 * len(groups)))
    for place, (method, rank) in enumerate(zip(ranking.methods, ranking.ranks, strict=True)):
        ax.plot([rank, rank], [0, -1 - place], color="0.75", linewidth=0.8, zorder=1)
        ax.plot(rank, -1 - place, "o", color=OUR_COLOUR, markersize=4, zorder=2)
        ax.annotate(f" {method}, {rank:.2f}", (rank, -1 - place), va="center", fontsize=8)
    for level, (first, last) in enumerate(groups):
        height = 0.6 + 0.5 * level
        ax.plot([ranking.ranks[first], ranking.ranks[last]], [height, height], color="black", linewidth=3)
    top = 1.2 + 0.5 * len(groups)
    ax.plot([1, 1 + ranking.critical_difference], [top, top], color=OTHER_COLOURS[0], linewidth=2)
    ax.annotate(
        f"critical difference {ranking.critical_difference:.2f}", (1, top + 0.25), fontsize=8, color=OTHER_COLOURS[0]
    )
    ax.set(xlim=(0.8, max(number, 1 + ranking.critical_difference) + 0.5), ylim=(-number - 1, top + 1.2), yticks=[])
    ax.set_xlabel(f"average rank by {metric.title} over {ranking.cohorts} cohorts; 1 is best")
    for side in ("left", "right", "top"):
        ax.spines[side].set_visible(False)
    return figure


def draw_differences(differences: Sequence[PairedDifference], metric: Metric, reference: str) -> Any:
    """Draw the paired differences averaged over cohorts with their intervals; return the figure."""
    plt = pyplot()
    averages = [one for one in differences if one.cohort == ALL_COHORTS] or list(differences)
    table = pd.DataFrame([(one.method, one.mean, one.lower, one.upper) for one in averages])
    table = table.sort_values(1, ascending=bool(metric.higher_is_better))
    figure, ax = plt.subplots(figsize=(7, 1 + 0.25 * len(table)))
    for place, (_, mean, lower, upper) in enumerate(table.itertuples(index=False)):
        if not math.isnan(lower):
            ax.plot([lower, upper], [place, place], color=OUR_COLOUR, linewidth=1.5)
        ax.plot(mean, place, "o", color=OUR_COLOUR, markersize=4)
    ax.axvline(0, color="0.5", linewidth=0.8)
    ax.set_yticks(range(len(table)), table[0], fontsize=8)
    ax.set_xlabel(f"{metric.title}: method minus {reference}, mean over cohorts with 95 % interval")
    return figure
