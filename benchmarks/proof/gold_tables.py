"""The page on the gold posteriors: errors of the variational posterior, split by their cause, as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from gold_problems import PROBLEMS
from gold_stages import HIGHEST_R_HAT, draws_of, facts_of
from scipy.stats import wasserstein_distance

CHAINS = ("linear_facts", "network_facts")
BLAME = {"paper": "the mean-field bound", "default": "the Gaussian approximation"}
# A distance of less than this many times that of two halves of the chains is called noise.
NOISE = 2.5
# Below this ratio of standard deviations a posterior is called too narrow, above its inverse too wide.
TOO_NARROW = 0.9


@dataclass(frozen=True)
class Gap:
    """How one posterior of S differs from another, over 4 people and 3 times (the mean curve: over 25 times).

    Attributes
    ----------
    mean_error, worst_error : float
        Mean and largest difference of the mean curves.
    sd_ratio, lowest_ratio, highest_ratio : float
        Standard deviation over that of the reference: geometric mean, smallest, largest.
    distance : float
        Mean 1-Wasserstein distance.
    """

    mean_error: float
    worst_error: float
    sd_ratio: float
    lowest_ratio: float
    highest_ratio: float
    distance: float


def distances(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the 1-Wasserstein distances between draws (S, n, k) of two posteriors, shape (n, k)."""
    pairs = np.ndindex(a.shape[1:])
    flat = [wasserstein_distance(a[:, i, k], b[:, i, k]) for i, k in pairs]
    return np.array(flat).reshape(a.shape[1:])


def gap(stored: Mapping[str, Any], name: str, reference: str) -> Gap:
    """Compare two stored posteriors by their names."""
    error = np.abs(np.asarray(stored[f"{name}_mean"]) - np.asarray(stored[f"{reference}_mean"]))
    one, two = draws_of(stored, name), draws_of(stored, reference)
    ratio = one.std(0) / two.std(0)
    return Gap(
        float(error.mean()),
        float(error.max()),
        float(np.exp(np.log(ratio).mean())),
        float(ratio.min()),
        float(ratio.max()),
        float(distances(one, two).mean()),
    )


def held(stored: Mapping[str, Any], name: str, reference: str, level: float = 0.9) -> float:
    """Return the share of the reference's draws that the band of `name` holds, averaged over people and times."""
    low, high = np.quantile(draws_of(stored, name), [(1 - level) / 2, (1 + level) / 2], axis=0)
    draws = draws_of(stored, reference)
    return float(((draws >= low) & (draws <= high)).mean())


def noise(stored: Mapping[str, Any], name: str) -> float:
    """Return the distance between two halves of the chains: what is left when nothing differs."""
    draws = draws_of(stored, name)
    half = len(draws) // 2
    return float(distances(draws[:half], draws[half:]).mean())


def load(store: Path, problem: str, preset: str) -> dict[str, Any] | None:
    """Return the stored stages of a problem in one mapping, or None while not even the first is there."""
    out: dict[str, Any] = {}
    for stage in ("linear", "network", "check"):
        file = store / f"{problem}-{preset}-{stage}.npz"
        if not file.exists():
            if stage == "linear":
                return None
            continue
        with np.load(file) as content:
            out |= {name: content[name] for name in content.files if name != "facts"}
            out[f"{stage}_facts"] = facts_of(content)
    return out


def rows_of(lines: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table; the first line is its head."""
    head, *body = lines
    rule = ["---"] + ["---:"] * (len(head) - 1)
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, rule, *body]) + "\n"


def verdict(name: str, stored: Mapping[str, Any], preset: str) -> str:
    """Say in a sentence whether the variational posterior is too narrow, and what of that is whose doing."""
    field = gap(stored, "variational", "exact")
    against = "network" if "network_draws" in stored else "exact"
    total, share = gap(stored, "variational", against), held(stored, "variational", against)
    words = "too narrow" if total.sd_ratio < TOO_NARROW else "too wide" if total.sd_ratio > 1 / TOO_NARROW else "right"
    collapsed = " The fit had collapsed." if stored["linear_facts"]["collapsed"] else ""
    if against == "exact":
        return (
            f"- **{name}**: bands are {words} (standard deviations {field.sd_ratio:.2f} times those of the exact "
            f"posterior of the same linearised model); the 90 % band holds {100 * share:.0f} % of that posterior."
            f"{collapsed}"
        )
    line = gap(stored, "exact", "network")
    larger = BLAME[preset] if field.distance > line.distance else "the linearisation"
    part = f"The larger part of the distance comes from {larger}."
    if max(field.distance, line.distance) < NOISE * noise(stored, "network"):
        part = "The distance is hardly more than noise."
    return (
        f"- **{name}**: bands are {words} (standard deviations {total.sd_ratio:.2f} times those of the network's "
        f"posterior, {field.sd_ratio:.2f} times those of the same linearised model); the 90 % band holds "
        f"{100 * share:.0f} % of the network's posterior. {part}"
        f"{collapsed}"
    )


# What the first difference is called: the paper's posterior is mean field, the default's a Gaussian.
APPROXIMATION = {"paper": "mean field", "default": "Gaussian"}


def causes(preset: str) -> tuple[tuple[str, str, str], ...]:
    """Return the differences that are looked at: what is behind them, a posterior, and its reference."""
    return (
        (APPROXIMATION[preset], "variational", "exact"),
        ("linearisation", "exact", "network"),
        ("both", "variational", "network"),
    )


def preset_part(store: Path, preset: str) -> str:
    """Return the part of the page on one preset."""
    found = {make().name: load(store, key, preset) for key, make in PROBLEMS.items()}
    done = {name: stored for name, stored in found.items() if stored is not None}
    table = [
        ["problem", "cause", "mean curve: mean error", "largest", "ratio of sd", "smallest", "largest", "distance"]
    ]
    checks = [["problem", "rows", "events", "weights", "k-hat", "Gibbs R-hat", "ESS", "NUTS R-hat", "ESS", "noise"]]
    for name, stored in done.items():
        for cause, one, two in causes(preset):
            if f"{one}_draws" in stored and f"{two}_draws" in stored:
                d = gap(stored, one, two)
                numbers = [f"{d.mean_error:.4f}", f"{d.worst_error:.3f}", f"{d.sd_ratio:.2f}", f"{d.lowest_ratio:.2f}"]
                table.append([name, cause, *numbers, f"{d.highest_ratio:.2f}", f"{d.distance:.4f}"])
        sizes = [str(stored["linear_facts"][key]) for key in ("rows", "events", "weights")]
        sizes.append(f"{stored['check_facts']['k_hat']:.2f}" if "check_facts" in stored else "–")
        stages = [stored.get(f"{stage}_facts") for stage in ("linear", "network")]
        trust = [
            text for one in stages for text in ((f"{one['r_hat']:.4f}", f"{one['ess_bulk']:.0f}") if one else "––")
        ]
        last = "network" if "network_draws" in stored else "exact"
        checks.append([name, *sizes, *trust, f"{noise(stored, last):.4f}"])
    parts = [f"## Preset `{preset}`\n"]
    if done:
        facts = [stored[key] for stored in done.values() for key in CHAINS if key in stored]
        dates = sorted({one["date"] for one in facts})
        when = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
        draws = min(one["draws"] for one in facts)
        parts += [f"{draws:,} draws of each posterior, sampled {when}.\n", rows_of(table)]
        parts += ["### Are the bands too narrow?\n", "\n".join(verdict(*item, preset) for item in done.items()) + "\n"]
        parts += ["### Convergence of the chains\n", rows_of(checks)]
        high = [
            name
            for name, stored in done.items()
            if max(stored[key]["r_hat"] for key in CHAINS if key in stored) >= HIGHEST_R_HAT
        ]
        if high:
            parts.append(f"R-hat is not below {HIGHEST_R_HAT} for {', '.join(high)}: read those rows with care.\n")
    for stage, missing in (
        ("at all", [name for name in found if name not in done]),
        ("by NUTS", [name for name, stored in done.items() if "network_draws" not in stored]),
    ):
        if missing:
            parts.append(f"Not sampled {stage} yet: {', '.join(missing)}.\n")
    return "\n".join(parts)


def page(store: Path, presets: Sequence[str]) -> str:
    """Return the whole page."""
    stories = [["problem", "description"], *([make().name, make().story] for make in PROBLEMS.values())]
    text = [
        "# Gold posteriors\n",
        "<!-- Written by `python benchmarks/proof/gold.py table`; do not edit. -->\n",
        "On six small problems the posterior can be sampled exactly, twice: that of the *linearised* model, which "
        "the variational posterior approximates, by the [Gibbs sampler](../how-to/exact-draws.md), and that of the "
        "*network itself* by NUTS (NumPyro). The variational posterior differs from the first by its form (mean "
        "field with the Pólya–Gamma bound with `paper`, a Gaussian with `default`) and by the preset's quadrature "
        "rule, where the Gibbs sampler has none; the two exact ones differ by the linearisation. The scales of the "
        "default's prior are fixed at the best ones, so that all three have the same prior.\n",
        rows_of(stories).replace("---:", "---"),
        "Survival S(t) of four people is compared. *Mean curve*: difference of the posterior means of S along 25 "
        "times. *Ratio of sd*: posterior standard deviation of S over that of the reference, as a geometric mean over "
        "4 people and 3 times (the quartiles of the observed times), with its smallest and largest value; below 1 is "
        "too narrow. *Distance*: 1-Wasserstein distance between the posteriors of S, in units of probability, "
        "averaged over the same 12. R-hat and ESS (effective sample size) are the worst over these 12 and log phi; "
        "*noise* is the distance between two halves of the reference's chains; *k-hat* is that of importance weights "
        "of the variational posterior (`diagnostics_.importance`).\n",
    ]
    return "\n".join([*text, *(preset_part(store, preset) for preset in presets)]).rstrip() + "\n"
