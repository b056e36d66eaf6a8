"""The critical-difference diagram: mean ranks of all learners, and an interval around each of two controls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from neuralsurv_bench.comparison import Ranking
from neuralsurv_bench.figures import OTHER_COLOURS, OUR_COLOUR, pyplot
from neuralsurv_bench.results import Metric

_GREY = "0.45"


def draw_critical_differences(rankings: Sequence[tuple[Metric, Ranking]], controls: Mapping[str, str]) -> Any:
    """Draw a panel of mean ranks for each metric; return the figure.

    Parameters
    ----------
    rankings : sequence of (Metric, Ranking)
        The metrics with their rankings, each with the critical difference to a control.
    controls : mapping of str to str
        The two learners that the others are compared with, and what to call each in the legend.
    """
    plt = pyplot()
    tallest = max(len(ranking.methods) for _, ranking in rankings)
    figure, axes = plt.subplots(
        1, len(rankings), figsize=(5.2 * len(rankings), 1.5 + 0.25 * tallest), squeeze=False, layout="constrained"
    )
    colours = dict(zip(controls, (OUR_COLOUR, OTHER_COLOURS[0]), strict=True))
    for ax, (metric, ranking) in zip(axes[0], rankings, strict=True):
        critical = ranking.critical_difference
        ranks = dict(zip(ranking.methods, ranking.ranks, strict=True))
        for place, (name, rank) in enumerate(ranks.items()):
            colour = colours.get(name, _GREY)
            ax.plot([0, rank], [place, place], color="0.9", linewidth=0.8, zorder=1)
            if name in colours:
                label = f"{controls[name]} ± critical difference"
                ends = [rank - critical, rank + critical]
                ax.plot(ends, [place, place], color=colour, alpha=0.3, linewidth=7, solid_capstyle="butt", label=label)
                ax.vlines(ends, -0.6, len(ranks) - 0.4, color=colour, linestyle=":", linewidth=1)
            ax.plot(rank, place, "o", color=colour, markersize=7 if name in colours else 4.5, zorder=3)
            ax.annotate(f"{rank:.1f}", (rank, place), (7, 0), textcoords="offset points", va="center", fontsize=8)
        ax.set_yticks(range(len(ranks)), [controls.get(name, name) for name in ranks], fontsize=9)
        for text, name in zip(ax.get_yticklabels(), ranks, strict=True):
            if name in colours:
                text.set(color=colours[name], fontweight="bold")
        ax.set(xlim=(0.5, len(ranks) + 1), ylim=(len(ranks) - 0.4, -0.6), xticks=[1, *range(5, len(ranks) + 1, 5)])
        ax.set_xlabel(f"mean rank over {ranking.cohorts} tasks; 1 is best")
        ax.set_title(f"{metric.title}   (critical difference {critical:.1f})", fontsize=10)
        for side in ("left", "right", "top"):
            ax.spines[side].set_visible(False)
        ax.tick_params(axis="y", length=0)
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, fontsize=9, frameon=False)
    return figure
