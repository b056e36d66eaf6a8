"""``neuralsurv demo``: the paper's synthetic cohort, fitted and shown in the terminal and as pictures."""

from __future__ import annotations

import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table

from neuralsurv import NeuralSurv
from neuralsurv.data.simulate import SimulatedCohort, lognormal_cohort, lognormal_survival
from neuralsurv.errors import NeuralSurvWarning
from neuralsurv.prediction import plots
from neuralsurv.prediction.prediction import Prediction

LEVEL = 0.9
_BARS = "▁▂▃▄▅▆▇█"


def _people(cohort: SimulatedCohort) -> pd.DataFrame:
    """Return one person of each group, with the noise covariates at 0."""
    people = pd.DataFrame(0.0, index=["group 0", "group 1"], columns=cohort.x.columns)
    people.loc["group 1", "group"] = 1.0
    return people


def _spark(values: np.ndarray) -> str:
    """Draw a row of numbers as a row of blocks."""
    low, high = float(np.min(values)), float(np.max(values))
    steps = (values - low) / (high - low or 1.0) * (len(_BARS) - 1)
    return "".join(_BARS[round(step)] for step in steps.tolist())


def _curve_table(found: dict[str, np.ndarray], truth: np.ndarray, times: np.ndarray) -> Table:
    table = Table(title=f"Survival: posterior median [{LEVEL:.0%} band], and the truth")
    table.add_column("time", justify="right")
    for group in (0, 1):
        table.add_column(f"group {group}", justify="right")
        table.add_column("truth", justify="right", style="dim")
    for k in range(9, len(times), 10):
        cells = [f"{times[k]:.0f}"]
        for group in (0, 1):
            middle, low, high = (found[name][group, k] for name in ("median", "lower", "upper"))
            true = truth[group, k]
            where = "in" if low <= true <= high else "out"
            cells += [f"{middle:.2f} [{low:.2f}, {high:.2f}]", f"{true:.2f} {where}"]
        table.add_row(*cells)
    return table


def _summary_table(
    model: NeuralSurv, cohort: SimulatedCohort, curves: dict[str, np.ndarray], truth: np.ndarray, seconds: float
) -> Table:
    inside = ((curves["lower"] <= truth) & (truth <= curves["upper"]))[:, 1:]
    found = model.diagnostics_
    rows = {
        "rows, events": f"{len(cohort.time)}, {int(cohort.event.sum())}",
        "weights": f"{model.posterior_.network.size}",
        "scales of the prior": ", ".join(f"{name} {scale:.2f}" for name, scale in found.scales.items()),
        "settings of them tried, averaged": f"{found.sweeps}, {found.settings}",
        "ELBO and log hyper-prior": f"{model.elbo_[0]:.2f} to {model.elbo_[-1]:.2f}",
        "largest error of the median curve": f"{np.abs(curves['median'] - truth).max():.3f}",
        f"truth inside the {LEVEL:.0%} band": f"{inside.mean():.0%} of the times shown",
        "seconds to fit": f"{seconds:.1f}",
    }
    table = Table(title="Summary", show_header=False)
    for name, value in rows.items():
        table.add_row(name, value)
    return table


def _draw(
    model: NeuralSurv, people: pd.DataFrame, curves: Prediction, truth: np.ndarray, times: np.ndarray, folder: Path
) -> list[Path]:
    import matplotlib
    from matplotlib import pyplot

    matplotlib.use("Agg")
    axes = plots.plot_prediction(curves, level=LEVEL)
    for curve, label in zip(truth, ("truth", None), strict=True):
        axes.plot(times, curve, color="black", linestyle=":", linewidth=1.2, label=label)
    axes.legend(frameon=False)
    axes.set_title(f"Posterior median with {LEVEL:.0%} band, against the truth", fontsize=10)
    hazard = plots.plot_prediction(model.predict_hazard(people, times[1:]), level=LEVEL)
    hazard.set_title(f"Hazard: posterior median with {LEVEL:.0%} band", fontsize=10)
    files = [folder / "demo_survival.png", folder / "demo_hazard.png"]
    for picture, file in zip((axes.figure, hazard.figure), files, strict=True):
        picture.savefig(file, dpi=130)
        pyplot.close(picture)
    return files


def run(folder: Path, rows: int) -> None:
    """Fit the cohort, print what came out, and write the pictures into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    console = Console()
    console.print(
        f"[bold]neuralsurv[/bold]: the default model on the paper's synthetic cohort, {rows} rows, two groups with "
        "crossing hazards and three covariates without effect."
    )
    cohort = lognormal_cohort(rows, seed=0)
    began = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", NeuralSurvWarning)
        model = NeuralSurv(random_state=0).fit(cohort.x, cohort.y)
    seconds = time.perf_counter() - began
    times = np.linspace(0, float(np.quantile(cohort.time, 0.98)), 61)
    people = _people(cohort)
    curves = model.predict_survival(people, times)
    found, truth = curves.arrays(LEVEL), np.stack([lognormal_survival(group, times) for group in (0, 1)])
    console.print(_curve_table(found, truth, times))
    for group in (0, 1):
        console.print(f"survival of group {group} to time {times[-1]:.0f}: {_spark(found['median'][group])}")
    console.print(_summary_table(model, cohort, found, truth, seconds))
    for warning in caught:
        console.print(f"[yellow]warning:[/yellow] {warning.message}")
    for file in _draw(model, people, curves, truth, times, folder):
        console.print(f"picture: {file}")
