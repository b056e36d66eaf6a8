"""From prior to posterior: data rule out curves, and bands become narrower with the number of rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import torch

from neuralsurv import NeuralSurv
from neuralsurv.data.simulate import SimulatedCohort, lognormal_cohort
from pictures.prior import default_prior
from pictures.sheet import BLUE, GREY, RED, label, panels, save

LEVEL = 0.9
LINES = 40
# Follow-up that is shown; nearly everybody is censored or dead by then.
END = 80.0


def two_people(cohort: SimulatedCohort) -> pd.DataFrame:
    """Return one person of each group, with the noise covariates at 0."""
    people = pd.DataFrame(0.0, index=["group 0", "group 1"], columns=cohort.x.columns)
    people.loc["group 1", "group"] = 1.0
    return people


def draw_posterior(out: Path, sizes: tuple[int, int] = (15, 150)) -> Path:
    """Draw curves of one person: from the prior, and from the posteriors of a small and a larger cohort."""
    times = np.linspace(0, END, 81)
    figure, rows = panels(3, sharey=True)
    for axes, size in zip(rows[0][1:], sizes, strict=True):
        model, cohort = _fitted(size, seed=0)
        person = two_people(cohort).iloc[[0]]
        curves = model.predict_survival(person, times)
        axes.plot(times, curves.draws[:LINES, 0].T, color=BLUE, alpha=0.35, linewidth=0.8)
        label(axes, f"after {size} rows, {int(cohort.event.sum())} events", "time")
        if size == sizes[0]:
            scaled = torch.from_numpy(times / model.time_scale_)
            x = torch.from_numpy(model.encoding_.transform(person))
            before = model.posterior_.cumulative_hazard_draws(default_prior(model, LINES, seed=2), scaled, x)
            rows[0][0].plot(times, torch.exp(-before)[:, 0].T.numpy(), color=GREY, alpha=0.6, linewidth=0.8)
            truth = cohort.true_survival(times, person)[0]
    label(rows[0][0], "prior, at the crude rate", "time", "S(t) of one person")
    for axes in rows[0]:
        axes.plot(times, truth, color="black", linestyle=":", label="truth")
        axes.set_ylim(0, 1.02)
    rows[0][0].legend(frameon=False, fontsize=9)
    return save(figure, out / "model_posterior.png")


def mean_width(size: int, cohorts: int, times: np.ndarray) -> float:
    """Return the width of the band, averaged over the two people, the times and several cohorts of one size."""
    widths = []
    for seed in range(cohorts):
        model, cohort = _fitted(size, seed)
        lower, upper = model.predict_survival(two_people(cohort), times).interval(LEVEL)
        widths.append((upper - lower).to_numpy().mean())
    return float(np.mean(widths))


def _fitted(size: int, seed: int) -> tuple[NeuralSurv, SimulatedCohort]:
    cohort = lognormal_cohort(size, seed=seed)
    return NeuralSurv(random_state=0, verbose=False).fit(cohort.x, cohort.y), cohort


def draw_bands(out: Path, sizes: tuple[int, ...] = (25, 100, 400, 1600), cohorts: int = 5) -> Path:
    """Draw the bands of two people for one cohort of each size, and the mean widths over several."""
    times = np.linspace(0, END, 81)
    figure, rows = panels(3, 2)
    places = rows.reshape(-1)
    for axes, size in zip(places, sizes, strict=False):
        model, cohort = _fitted(size, seed=0)
        people = two_people(cohort)
        curves = model.predict_survival(people, times)
        lower, upper = curves.interval(LEVEL)
        for k, colour in enumerate((BLUE, RED)):
            axes.plot(times, curves.median.iloc[k], color=colour, label=people.index[k])
            axes.fill_between(times, lower.iloc[k], upper.iloc[k], color=colour, alpha=0.2, linewidth=0)
            axes.plot(times, cohort.true_survival(times, people)[k], color="black", linestyle=":", linewidth=1.2)
        axes.set_ylim(0, 1.02)
        label(axes, f"{size:,} rows", "time", "S(t)")
    places[0].legend(frameon=False, fontsize=9)
    widths = [mean_width(size, cohorts, times[1:]) for size in sizes]
    last = places[len(sizes)]
    for empty in places[len(sizes) + 1 :]:
        empty.set_axis_off()
    last.loglog(sizes, widths, "o-", color="black", label=f"mean of {cohorts} cohorts")
    last.loglog(sizes, widths[-1] * np.sqrt(sizes[-1] / np.array(sizes)), ":", color=GREY, label="1 / √rows")
    last.set_xticks(sizes, [f"{size:,}" for size in sizes])
    last.minorticks_off()
    last.set_yticks([0.05, 0.1, 0.2, 0.4], ["0.05", "0.1", "0.2", "0.4"])
    last.legend(frameon=False, fontsize=9)
    label(last, "width of the 90 % band", "rows")
    last.margins(x=0.1)
    return save(figure, out / "model_bands.png")
