"""The charts of a report."""

from __future__ import annotations

import numpy as np

from neuralsurv.names import counted
from neuralsurv.report.accuracy import Accuracy, Groups, OverTime
from neuralsurv.report.cohort_description import CohortDescription
from neuralsurv.report.effects import Effect
from neuralsurv.report.individuals import LeastCertain, ShownPeople
from neuralsurv.report.svg import SvgChart, number

_BLUE, _ORANGE, _GREY = 0, 1, 6


def cohort_chart(part: CohortDescription, times: np.ndarray, mean: np.ndarray, level: float) -> SvgChart:
    """Draw Kaplan–Meier with its band, and the mean of the predicted curves."""
    last = float(part.times[-1])
    half = "does not fall to one half" if np.isinf(part.half) else f"falls to one half at {number(part.half)}"
    chart = SvgChart(
        (0.0, last), (0.0, 1.0), "time", "survival",
        f"Kaplan–Meier curve of {counted(part.rows, 'row')} with {counted(part.events, 'event')}; it {half} and ends "
        f"at {part.survival[-1]:.0%}. The mean predicted curve lies beside it.",
    )  # fmt: skip
    chart.line("Kaplan–Meier", part.times, part.survival, _BLUE, steps=True, band=(part.lower, part.upper),
               band_name=f"{level:.0%} interval")  # fmt: skip
    inside = times <= last
    chart.line("mean prediction", times[inside], mean[inside], _ORANGE)
    return chart


def elbo_chart(elbo: np.ndarray) -> SvgChart:
    """Draw the score of the fit after each of its steps: the evidence lower bound, with what belongs to it."""
    sweeps = np.arange(1, len(elbo) + 1)
    low, high = float(elbo.min()), float(elbo.max())
    room = 0.05 * (high - low) or 1.0
    chart = SvgChart(
        (1.0, max(2.0, float(len(elbo)))), (low - room, high + room), "step of the fit", "score (nats)",
        f"The score of the fit goes from {number(float(elbo[0]))} to {number(float(elbo[-1]))} in "
        f"{counted(len(elbo), 'step')}.",
    )  # fmt: skip
    chart.line("score", sweeps, elbo, _BLUE)
    return chart


def people_chart(shown: ShownPeople, last_training: float, level: float) -> SvgChart:
    """Draw individual survival curves with their bands."""
    ends = "; ".join(
        f"{name}: {curve[-1]:.0%} at {number(float(shown.times[-1]))}"
        for name, curve in zip(shown.names, shown.median, strict=True)
    )
    chart = SvgChart(
        (0.0, float(shown.times[-1])), (0.0, 1.0), "time", "survival",
        f"Predicted survival of {counted(len(shown.names), 'person', 'people')} with {level:.0%} bands. {ends}.",
    )  # fmt: skip
    for k, name in enumerate(shown.names):
        band = (shown.lower[k], shown.upper[k])
        chart.line(name, shown.times, shown.median[k], k, band=band, band_name=f"{level:.0%} band")
    if last_training < shown.times[-1]:
        chart.rule(up=last_training)
    return chart


def histogram_chart(accuracy: Accuracy) -> SvgChart:
    """Draw D-calibration: the distribution of predicted survival at the observed event times."""
    share = accuracy.distribution.histogram / accuracy.distribution.histogram.sum()
    edges = np.linspace(0, 1, len(share) + 1)
    chart = SvgChart(
        (0.0, 1.0), (0.0, max(0.2, float(share.max()) * 1.1)), "predicted survival at the person's own event time",
        "share of rows",
        "Histogram of predicted survival at the own event time; calibrated predictions give equal bars of 10 %. The "
        f"bars are {', '.join(f'{value:.0%}' for value in share)}.",
    )  # fmt: skip
    words = [
        f"{left:.1f} to {right:.1f}: {value:.1%}" for left, right, value in zip(edges, edges[1:], share, strict=False)
    ]
    chart.bars(edges, share, _BLUE, words)
    chart.rule(across=1 / len(share))
    return chart


def groups_chart(groups: Groups) -> SvgChart:
    """Draw predicted against observed survival at one time."""
    pairs = "; ".join(f"{a:.0%} against {b:.0%}" for a, b in zip(groups.predicted, groups.observed, strict=True))
    chart = SvgChart(
        (0.0, 1.0), (0.0, 1.0), f"predicted survival at {number(groups.time)}", "observed (Kaplan–Meier)",
        f"Predicted against observed survival at {number(groups.time)} in {len(groups.size)} groups: {pairs}.",
    )  # fmt: skip
    chart.rule(diagonal=True)
    words = [
        f"predicted {a:.0%}, observed {b:.0%} (90 % interval {c:.0%} to {d:.0%}), {counted(n, 'row')}"
        for a, b, c, d, n in zip(
            groups.predicted, groups.observed, groups.lower, groups.upper, groups.size, strict=True
        )
    ]
    chart.dots(groups.predicted, groups.observed, groups.lower, groups.upper, _BLUE, words)
    return chart


def discrimination_chart(found: OverTime) -> SvgChart:
    """Draw the area under the time-dependent ROC curve."""
    low = min(0.45, float(found.lower.min()))
    chart = SvgChart(
        (float(found.times[0]), float(found.times[-1])), (max(0.0, low - 0.02), 1.0), "time",
        "area under the ROC curve",
        f"The area under the ROC curve goes from {found.value[0]:.2f} at {number(float(found.times[0]))} to "
        f"{found.value[-1]:.2f} at {number(float(found.times[-1]))}; 0.5 is chance.",
    )  # fmt: skip
    chart.rule(across=0.5)
    band = (found.lower, found.upper)
    chart.line("area under the ROC curve", found.times, found.value, _BLUE, band=band, band_name="90 % interval")
    return chart


def brier_chart(model: OverTime, reference: OverTime | None) -> SvgChart:
    """Draw the Brier score over time, beside that of Kaplan–Meier."""
    top = max(0.26, float(model.value.max()) * 1.05)
    chart = SvgChart(
        (0.0, float(model.times[-1])), (0.0, top), "time", "Brier score",
        f"The Brier score of the model is at most {model.value.max():.3f}, on average {model.value.mean():.3f}"
        + ("." if reference is None else f"; that of Kaplan–Meier is {reference.value.mean():.3f} on average."),
    )  # fmt: skip
    chart.line("model", model.times, model.value, _BLUE)
    if reference is not None:
        chart.line("Kaplan–Meier", reference.times, reference.value, _GREY, dashed=True)
    return chart


def effects_chart(effects: list[Effect], horizon: float, level: float) -> SvgChart:
    """Draw the effects on the restricted mean, as intervals."""
    low, high = min(0.0, *(e.lower for e in effects)), max(0.0, *(e.upper for e in effects))
    room = 0.05 * (high - low) or 1.0
    names = [_short(f"{effect.column}: {effect.change}") for effect in effects]
    words = [
        f"{effect.column}, {effect.change}: {number(effect.median)} ({level:.0%} interval {number(effect.lower)} to "
        f"{number(effect.upper)})"
        for effect in effects
    ]
    chart = SvgChart(
        (low - room, high + room), (0.0, 1.0), f"change of mean time to {number(horizon)}", "",
        "Effect of each covariate. " + "; ".join(words) + ".", names,
    )  # fmt: skip
    chart.rule(up=0.0)
    chart.intervals([e.median for e in effects], [e.lower for e in effects], [e.upper for e in effects], _BLUE, words)
    return chart


def _short(text: str, most: int = 30) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def width_chart(found: LeastCertain, level: float) -> SvgChart:
    """Draw the mean width of the bands over time."""
    top = max(0.1, float(found.width.max()) * 1.1)
    worst = int(found.width.argmax())
    chart = SvgChart(
        (0.0, float(found.times[-1])), (0.0, top), "time", f"mean width of the {level:.0%} band",
        f"The bands are widest around {number(float(found.times[worst]))}, where they span {found.width[worst]:.0%} on "
        "average.",
    )  # fmt: skip
    chart.line("mean width", found.times, found.width, _BLUE)
    return chart
