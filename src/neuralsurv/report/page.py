"""A report as one HTML file, with its style, charts and script inside."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from importlib.resources import files

import numpy as np

from neuralsurv.names import counted
from neuralsurv.report.accuracy import Groups
from neuralsurv.report.build import MOST_COVARIATES, Report
from neuralsurv.report.svg import SvgChart, number

_BLUE, _ORANGE, _GREY = 0, 1, 6
# Effects in the chart, and letters of a name in it.
_MOST_EFFECTS, _LONGEST_NAME = 20, 30
# Nothing may be fetched, whatever a name in the data tries to smuggle in.
_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
)


def render(report: Report, facts: Sequence[tuple[str, str]]) -> str:
    """Return the page; `facts` are lines for its head: files, date, version."""
    sections = (_warnings, _cohort, _model, _people, _calibration, _discrimination, _effects, _least_certain)
    parts = [_head(report, facts), *(section(report) for section in sections)]
    title = html.escape(report.title)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{title}</title>\n<style>\n{_asset('report.css')}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(parts)
        + f'\n</main>\n<script type="module">\n{_asset("chart.js")}{_asset("report.js")}</script>\n</body>\n</html>\n'
    )


def _asset(name: str) -> str:
    return (files("neuralsurv.report") / "assets" / name).read_text(encoding="utf-8")


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Sequence[int] = ()) -> str:
    """Return a table; the columns in `numbers` are set to the right."""

    def cell(place: int, text: str, tag: str) -> str:
        kind = ' class="number"' if place in numbers else ""
        scope = ' scope="col"' if tag == "th" else ""
        return f"<{tag}{scope}{kind}>{html.escape(text)}</{tag}>"

    top = "".join(cell(k, text, "th") for k, text in enumerate(head))
    body = "".join(f"<tr>{''.join(cell(k, text, 'td') for k, text in enumerate(row))}</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'


def _figure(chart: SvgChart, caption: str, *, small: bool = False) -> str:
    legend = "".join(
        f'<li data-series="{k}"><svg class="key" viewBox="0 0 22 8" aria-hidden="true">'
        f'<line class="line {style}" x1="1" x2="21" y1="4" y2="4"/></svg>{html.escape(name)}</li>'
        for k, (name, style) in enumerate(chart.legend)
    )
    listed = f'<ul class="legend">{legend}</ul>' if len(chart.legend) > 1 else ""
    data = f'<script type="application/json">{chart.data()}</script>' if chart.series else ""
    kind = ' class="small"' if small else ""
    return f"<figure{kind}>{chart.svg()}{listed}<figcaption>{caption}</figcaption>{data}</figure>"


def _section(name: str, title: str, *content: str) -> str:
    head = f'<section id="{name}" aria-labelledby="{name}-title"><h2 id="{name}-title">{title}</h2>'
    return f"{head}{''.join(content)}</section>"


def _intervals(found: dict[str, np.ndarray]) -> list[str]:
    """Return the numbers of a prediction in words: the median of each with its interval."""
    columns = (found[name][:, 0].tolist() for name in ("median", "lower", "upper"))
    return [f"{number(middle)} ({number(low)} to {number(high)})" for middle, low, high in zip(*columns, strict=True)]


def _head(report: Report, facts: Sequence[tuple[str, str]]) -> str:
    listed = "".join(f"<div><dt>{html.escape(name)}</dt><dd>{html.escape(value)}</dd></div>" for name, value in facts)
    cohort, accuracy = report.cohort, report.accuracy
    figures = [
        (f"{cohort.rows:,}", "rows"),
        (f"{cohort.events:,}", f"events ({cohort.events / cohort.rows:.0%})"),
        ("–" if accuracy.concordance is None else f"{accuracy.concordance:.3f}", "concordance (0.5 is chance)"),
        (f"{accuracy.distribution.p_value:.2f}", "D-calibration p (small: poorly calibrated)"),
    ]
    tiles = "".join(f"<li><strong>{html.escape(value)}</strong> <span>{words}</span></li>" for value, words in figures)
    return (
        f'<header><h1>{html.escape(report.title)}</h1><dl class="facts">{listed}</dl>'
        f'<ul class="tiles">{tiles}</ul></header>'
    )


def _warnings(report: Report) -> str:
    if not report.warnings:
        return _section("warnings", "Warnings", "<p>None of the checks found a problem.</p>")
    items = "".join(f"<li>{html.escape(text)}</li>" for text in report.warnings)
    return _section("warnings", "Warnings", f'<ul class="warnings">{items}</ul>')


def _cohort(report: Report) -> str:
    part, level = report.cohort, f"{report.level:.0%}"
    half = "fewer than half have the event" if np.isinf(part.half) else f"half have the event by {number(part.half)}"
    follow_up = (
        "" if np.isinf(part.follow_up) else f" Median follow-up (reverse Kaplan–Meier) is {number(part.follow_up)}."
    )
    late = f" {counted(part.late, 'row enters', 'rows enter', form=',')} late (left truncation)." if part.late else ""
    size = f"{counted(part.rows, 'row', form=',')}, {counted(part.events, 'event', form=',')}"
    words = f"<p>{size}; {half}.{follow_up}{late}</p>"
    falls = "does not fall to one half" if np.isinf(part.half) else f"falls to one half at {number(part.half)}"
    alt = (
        f"Kaplan–Meier curve of {counted(part.rows, 'row')} with {counted(part.events, 'event')}; it {falls} and ends "
        f"at {part.survival[-1]:.0%}. The mean predicted curve lies beside it."
    )
    last = float(part.times[-1])
    chart = SvgChart((0.0, last), (0.0, 1.0), "time", "survival", alt)
    band = (part.lower, part.upper)
    chart.line("Kaplan–Meier", part.times, part.survival, _BLUE, steps=True, band=band, band_name=f"{level} interval")
    inside = report.times <= last
    chart.line("mean prediction", report.times[inside], report.mean[inside], _ORANGE)
    figure = _figure(
        chart, f"Kaplan–Meier estimate with its {level} pointwise interval, and the mean of the predicted curves."
    )
    risk = _table(
        ("time", *map(number, part.at_risk)),
        [("at risk", *(f"{n:,}" for n in part.at_risk.values()))],
        numbers=range(1, len(part.at_risk) + 1),
    )
    columns = _table(("covariate", "values", "missing"), report.covariates)
    return _section("cohort", "Cohort", words, figure, risk, "<h3>Covariates</h3>", columns)


def _model(report: Report) -> str:
    rows, before = [], ""
    for section, name, value in report.summary:
        rows.append((section if section != before else "", name, value))
        before = section
    elbo = report.elbo
    low, high = float(elbo.min()), float(elbo.max())
    room = 0.05 * (high - low) or 1.0
    steps = counted(len(elbo), "step")
    alt = f"The score of the fit goes from {number(float(elbo[0]))} to {number(float(elbo[-1]))} in {steps}."
    ends = (1.0, max(2.0, float(len(elbo))))
    chart = SvgChart(ends, (low - room, high + room), "step of the fit", "score (nats)", alt)
    chart.line("score", np.arange(1, len(elbo) + 1), elbo, _BLUE)
    caption = "Convergence: the score (evidence lower bound) should end on a plateau."
    table, figure = _table(("part", "what", "value"), rows), _figure(chart, caption, small=True)
    return _section("model", "Model and fit", f'<div class="pair">{table}{figure}</div>')


def _people(report: Report) -> str:
    shown, level, last = report.shown, f"{report.level:.0%}", float(report.shown.times[-1])
    curves = shown.curves
    ends = "; ".join(
        f"{name}: {curve[-1]:.0%} at {number(last)}" for name, curve in zip(shown.names, curves["median"], strict=True)
    )
    alt = f"Predicted survival of {counted(len(shown.names), 'person', 'people')} with {level} bands. {ends}."
    chart = SvgChart((0.0, last), (0.0, 1.0), "time", "survival", alt)
    for k, name in enumerate(shown.names):
        band = (curves["lower"][k], curves["upper"][k])
        chart.line(name, shown.times, curves["median"][k], k, band=band, band_name=f"{level} band")
    if report.chosen:
        who = "The people chosen with --people."
    else:
        who = "Five people, from the longest expected time without the event to the shortest."
    caption = f"{who} Lines are posterior medians, shades {level} credible bands."
    if report.last_training < last:
        chart.rule(up=report.last_training)
        caption += f" Right of the thin line, after {number(report.last_training)}, curves are extrapolated."
    rows = list(zip(shown.names, _intervals(shown.half), _intervals(shown.mean), shown.values, strict=True))
    head = ("person", f"median event time ({level})", f"mean time to {number(report.horizon)} ({level})", "covariates")
    note = "<p class='aside'>∞: the curve does not fall to one half within the training range.</p>"
    figure = _figure(chart, html.escape(caption))
    return _section("people", "Individual survival curves", figure, _table(head, rows), note)


def _calibration(report: Report) -> str:
    found = report.accuracy
    share = found.distribution.histogram / found.distribution.histogram.sum()
    edges = np.linspace(0, 1, len(share) + 1)
    alt = (
        "Histogram of predicted survival at the own event time; calibrated predictions give equal bars of 10 %. The "
        f"bars are {', '.join(f'{value:.0%}' for value in share)}."
    )
    top = max(0.2, float(share.max()) * 1.1)
    chart = SvgChart((0.0, 1.0), (0.0, top), "predicted survival at the person's own event time", "share of rows", alt)
    ends = zip(edges, edges[1:], share, strict=False)
    chart.bars(edges, share, _BLUE, [f"{left:.1f} to {right:.1f}: {value:.1%}" for left, right, value in ends])
    chart.rule(across=1 / len(share))
    p = found.distribution.p_value
    verdict = "rejects calibration" if p < 0.05 else "does not reject calibration"
    caption = f"D-calibration: bars of equal height are ideal. The test {verdict} (p = {p:.3f})."
    figures = [_figure(chart, caption, small=True), *map(_groups, found.groups)]
    distance = ""
    if found.distance is not None:
        distance = (
            f"<p>KM-calibration: the mean predicted curve is {np.sqrt(found.distance):.1%} away from Kaplan–Meier, as "
            f"a root mean square over time (its square, {found.distance:.2g}, is the usual figure).</p>"
        )
    return _section("calibration", "Calibration", distance, f'<div class="pair">{"".join(figures)}</div>')


def _groups(groups: Groups) -> str:
    """Return the figure of predicted against observed survival at one time."""
    table, time = groups.table, number(groups.time)
    pairs = "; ".join(f"{row.predicted:.0%} against {row.observed:.0%}" for row in table.itertuples())
    alt = f"Predicted against observed survival at {time} in {len(table)} groups: {pairs}."
    chart = SvgChart((0.0, 1.0), (0.0, 1.0), f"predicted survival at {time}", "observed (Kaplan–Meier)", alt)
    chart.rule(diagonal=True)
    words = [
        f"predicted {row.predicted:.0%}, observed {row.observed:.0%} (90 % interval {row.lower:.0%} to "
        f"{row.upper:.0%}), {counted(row.size, 'row')}"
        for row in table.itertuples()
    ]
    chart.dots(table["predicted"], table["observed"], table["lower"], table["upper"], _BLUE, words)
    caption = f"No row is followed up to {time}."
    if len(table):
        caption = (
            f"Survival at {time} in {len(table)} groups of {table['size'].min()} or more rows; on the diagonal, "
            "predicted equals observed."
        )
        if groups.p_value is not None:
            caption += f" Test of agreement in {groups.tested} groups: p = {groups.p_value:.3f}."
    return _figure(chart, caption, small=True)


def _discrimination(report: Report) -> str:
    found = report.accuracy
    index = "not defined for these rows" if found.concordance is None else f"{found.concordance:.3f}"
    words = f"<p>Concordance index (Antolini): {index}. 0.5 is chance, 1 is a perfect ranking.</p>"
    figures = []
    if found.discrimination is not None:
        area = found.discrimination
        times, name = area.index.to_numpy(), "area under the ROC curve"
        alt = (
            f"The {name} goes from {area['value'].iloc[0]:.2f} at {number(times[0])} to {area['value'].iloc[-1]:.2f} "
            f"at {number(times[-1])}; 0.5 is chance."
        )
        low = max(0.0, min(0.45, float(area["lower"].min())) - 0.02)
        chart = SvgChart((float(times[0]), float(times[-1])), (low, 1.0), "time", name, alt)
        chart.rule(across=0.5)
        chart.line(name, times, area["value"], _BLUE, band=(area["lower"], area["upper"]), band_name="90 % interval")
        caption = "Cumulative/dynamic area under the ROC curve, weighted for censoring, with a 90 % bootstrap interval."
        figures.append(_figure(chart, caption, small=True))
    if found.brier is not None:
        times, model, reference = found.brier.index.to_numpy(), found.brier["model"], found.brier["reference"]
        alt = (
            f"The Brier score of the model is at most {model.max():.3f}, on average {model.mean():.3f}; that of "
            f"Kaplan–Meier is {reference.mean():.3f} on average."
        )
        top = max(0.26, float(model.max()) * 1.05)
        chart = SvgChart((0.0, float(times[-1])), (0.0, top), "time", "Brier score", alt)
        chart.line("model", times, model, _BLUE)
        chart.line("Kaplan–Meier", times, reference, _GREY, dashed=True)
        caption = (
            "Squared error of predicted survival, weighted for censoring; lower is better. Below Kaplan–Meier, the "
            "covariates help."
        )
        figures.append(_figure(chart, caption, small=True))
    return _section("discrimination", "Discrimination", words, f'<div class="pair">{"".join(figures)}</div>')


def _effects(report: Report) -> str:
    if not report.effects:
        return _section("effects", "Covariate effects", "<p>No covariate varies among these rows.</p>")
    level, horizon = f"{report.level:.0%}", number(report.horizon)
    rows = [
        (effect.column, effect.change, number(effect.median), f"{number(effect.lower)} to {number(effect.upper)}")
        for effect in report.effects
    ]
    shown = [f"{name}, {change}: {middle} ({level} interval {ends})" for name, change, middle, ends in rows]
    words, effects = shown[:_MOST_EFFECTS], report.effects[:_MOST_EFFECTS]
    names = [f"{effect.column}: {effect.change}" for effect in effects]
    names = [name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…" for name in names]
    middle, lower, upper = zip(*((effect.median, effect.lower, effect.upper) for effect in effects), strict=True)
    low, high = min(0.0, *lower), max(0.0, *upper)
    room = 0.05 * (high - low) or 1.0
    alt = "Effect of each covariate. " + "; ".join(words) + "."
    chart = SvgChart((low - room, high + room), (0.0, 1.0), f"change of mean time to {horizon}", "", alt, names)
    chart.rule(up=0.0)
    chart.intervals(middle, lower, upper, _BLUE, words)
    caption = (
        f"Change of the mean time without the event up to {horizon} when one covariate changes and the others stay the "
        f"same, averaged over {counted(report.averaged, 'person', 'people')}, with {level} intervals from joint draws. "
        "An interval that contains 0 leaves the direction open. These are associations in the model, not causal "
        "effects."
    )
    covariates = len({effect.column for effect in report.effects})
    if covariates == MOST_COVARIATES < len(report.covariates):
        caption += f" Of {len(report.covariates)} covariates, the {covariates} with the largest effects are shown."
    table = _table(("covariate", "change", "effect", f"{level} interval"), rows, numbers=(2, 3))
    listed = f"<details><summary>All {len(rows)} effects as a table</summary>{table}</details>"
    return _section("effects", "Covariate effects", _figure(chart, caption), listed)


def _least_certain(report: Report) -> str:
    found, level, horizon = report.least_certain, f"{report.level:.0%}", number(report.horizon)
    worst = int(found.width.argmax())
    when, width = number(float(found.times[worst])), f"{found.width[worst]:.0%}"
    words = (
        f"<p>The {level} interval of a person's mean time to {horizon} is {number(found.typical_width)} wide at the "
        f"median. Curves are least certain around time {when}, where their bands span {width} on average. "
        "The widest intervals:</p>"
    )
    rows = list(zip(found.names, _intervals(found.mean), found.unusual, strict=True))
    table = _table(("person", f"mean time to {horizon} ({level})", "what is unusual"), rows)
    alt = f"The bands are widest around {when}, where they span {width} on average."
    ends = (0.0, max(0.1, float(found.width.max()) * 1.1))
    chart = SvgChart((0.0, float(found.times[-1])), ends, "time", f"mean width of the {level} band", alt)
    chart.line("mean width", found.times, found.width, _BLUE)
    figure = _figure(chart, "How wide the bands are over time.", small=True)
    return _section("least-certain", "Where the model is least certain", words, table, figure)
