"""The page and the picture of simulation-based calibration, from its stored records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from sbc_bands import Verdict, judge
from sbc_models import CHAINS, DRAWS, LEAST_EVENTS, METHODS, ROWS, SHRUNK, THIN

# All bands of one posterior hold together with probability 95 %.
LEVEL = 0.05
_STORIES = {
    "paper": "the paper's priors (standard normal weights of 4 tanh units, phi from Gamma(1, 1)), linearised at a draw",
    "default": "the default model's network of 8 units and its prior at the medians of its scales, phi held",
}


def ranks_of(records: list[dict[str, Any]], model: str, fingerprint: str) -> dict[str, dict[str, np.ndarray]]:
    """Return the ranks by method and quantity, one for each replicate; methods of earlier versions are left out."""
    own = {(r["method"], r["replicate"]): r for r in _records_of(records, model, fingerprint)}
    out: dict[str, dict[str, list[int]]] = {}
    for record in own.values():
        for method, found in record["ranks"].items():
            for name, rank in found.items():
                out.setdefault(method, {}).setdefault(name, []).append(rank)
    return {method: {name: np.array(of) for name, of in found.items()} for method, found in out.items()}


def _records_of(records: list[dict[str, Any]], model: str, fingerprint: str) -> list[dict[str, Any]]:
    return [
        r for r in records if r["model"] == model and r["fingerprint"] == fingerprint and r["method"] in METHODS[model]
    ]


def verdicts(ranks: dict[str, np.ndarray]) -> dict[str, Verdict]:
    """Judge all quantities of one posterior together."""
    return {name: judge(of, DRAWS, LEVEL / len(ranks)) for name, of in ranks.items()}


def page(records: list[dict[str, Any]], prints: dict[str, str]) -> str:
    """Return the page in Markdown."""
    parts = [
        "# Simulation-based calibration",
        "",
        "<!-- Written by `python benchmarks/proof/sbc.py table`; do not edit. -->",
        "",
        "Draw weights and phi from the prior, simulate a cohort from the model with them, and compute its posterior; "
        f"then the truth is distributed like a draw from that posterior, and its rank among {DRAWS} draws is uniform. "
        "Where the posterior is too narrow, ranks accumulate at both ends and their distribution function lies above "
        "the diagonal on the left and below it on the right; where it is biased, it lies on one side.",
        "",
        f"Cohorts have {ROWS} rows and two covariates, and at least {LEAST_EVENTS} events. The ranked quantities are "
        "phi, where it is unknown, and S(t | x) of two people at two times. Networks are linearised at a point that "
        "does not depend on the data, so that data come from the model that is fitted: this page tests the inference "
        "alone; the "
        f"linearisation is the subject of [gold posteriors](gold.md). The exact sampler keeps every {THIN}th sweep of "
        f"{CHAINS} chains. *Shrunk* is the exact posterior with every draw pulled to the mean by a factor of {SHRUNK}: "
        "it must fail, or the test would have no power.",
        "",
        "A posterior is called *uniform* where the distribution function of the ranks stays within a band that holds "
        "at all points, and for all quantities of the posterior, with probability 95 % if nothing is wrong (Säilynoja, "
        "Bürkner and Vehtari 2022). *Spread* is the standard deviation of the ranks over that of uniform ones, above 1 "
        "where the posterior is too narrow. *Symmetric* is the p-value of the variational form (Yao and others 2018), "
        "which only tests whether the distribution of the ranks is symmetric, that is, for a bias.",
        "",
        "![Distribution function of the ranks minus that of uniform ones](sbc.png)",
        "",
    ]
    for model, story in _STORIES.items():
        ranks = ranks_of(records, model, prints[model])
        if not ranks:
            parts += [f"## `{model}`", "", "Not run yet.", ""]
            continue
        own = _records_of(records, model, prints[model])
        counts = {len(of) for found in ranks.values() for of in found.values()}
        count = f"{min(counts)}" if len(counts) == 1 else f"{min(counts)} to {max(counts)}"
        dates = sorted({r["date"] for r in own})
        parts += [f"## `{model}`", "", f"{count} cohorts; {story}; run {dates[0]} to {dates[-1]}.", ""]
        parts += [*_table(ranks), "", *_words(ranks), ""]
    parts += [
        "Produced by `python benchmarks/proof/sbc.py run`, `table` and `plot`; the record of every job is in "
        "`benchmarks/proof/sbc.jsonl`.",
        "",
    ]
    return "\n".join(parts)


def _table(ranks: dict[str, dict[str, np.ndarray]]) -> list[str]:
    lines = ["| posterior | quantity | uniform | spread | symmetric |", "|---|---|---|--:|--:|"]
    for method, of in ranks.items():
        for name, verdict in verdicts(of).items():
            uniform = "yes" if verdict.uniform else "**no**"
            label = name.replace("|", "\\|")
            lines.append(f"| {method} | {label} | {uniform} | {verdict.spread:.2f} | {verdict.asymmetry:.3f} |")
    return lines


def _words(ranks: dict[str, dict[str, np.ndarray]]) -> list[str]:
    lines = []
    for method, of in ranks.items():
        found = verdicts(of)
        failed = [name for name, verdict in found.items() if not verdict.uniform]
        if not failed:
            lines.append(f"- **{method}**: passes.")
            continue
        narrow = [name for name in failed if found[name].spread > 1]
        why = "too narrow" if len(narrow) == len(failed) else "biased, or too wide in part"
        lines.append(f"- **{method}**: fails for {len(failed)} of {len(found)} quantities; {why}.")
    return lines


def picture(records: list[dict[str, Any]], prints: dict[str, str], out: Path) -> None:
    """Draw the distribution functions, a line of panels a model, a panel a posterior."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    found = {model: ranks_of(records, model, prints[model]) for model in _STORIES}
    found = {model: ranks for model, ranks in found.items() if ranks}
    if not found:
        raise SystemExit("the store holds no result of today's models; do `run` first.")
    width = max(len(ranks) for ranks in found.values())
    figure, axes = pyplot.subplots(
        len(found), width, figsize=(3.2 * width, 0.4 + 2.6 * len(found)), squeeze=False, sharex=True, sharey=True
    )
    colours = ("#d95f02", "#08306b", "#2171b5", "#6baed6", "#9ecae1")
    for line, (model, ranks) in enumerate(found.items()):
        for column in range(width):
            ax = axes[line, column]
            if column >= len(ranks):
                ax.set_visible(False)
                continue
            method, of = list(ranks.items())[column]
            for number, (name, verdict) in enumerate(verdicts(of).items()):
                if number == 0:
                    ax.fill_between(verdict.share, verdict.low, verdict.high, color="0.88", linewidth=0, step="mid")
                # phi in a colour of its own, survival in blues.
                shade = colours[0] if name == "phi" else colours[1 + (number - ("phi" in of)) % 4]
                ax.plot(verdict.share, verdict.difference, color=shade, linewidth=1.2, label=name)
            ax.axhline(0, color="0.5", linewidth=0.6)
            ax.set_title(f"{model}: {method}", fontsize=10)
            ax.spines[["top", "right"]].set_visible(False)
            if line == len(found) - 1:
                ax.set_xlabel("rank / number of draws")
        axes[line, 0].set_ylabel("difference to uniform")
        axes[line, 0].legend(frameon=False, fontsize=6.5, loc="upper right")
    figure.tight_layout()
    figure.savefig(out, dpi=150)
    pyplot.close(figure)
