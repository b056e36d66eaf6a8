"""A report as one HTML file, with its style, charts and script inside."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from importlib.resources import files

import numpy as np

from neuralsurv.names import counted
from neuralsurv.report import charts
from neuralsurv.report.build import Report
from neuralsurv.report.svg import SvgChart, number

# Nothing may be fetched, whatever a name in the data tries to smuggle in.
_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
)


def render(report: Report, facts: Sequence[tuple[str, str]]) -> str:
    """Return the page; `facts` are lines for its head: files, date, version."""
    parts = [
        _head(report, facts),
        _warnings(report),
        _cohort(report),
        _model(report),
        _people(report),
        _calibration(report),
        _discrimination(report),
        _effects(report),
        _least_certain(report),
    ]
    title = html.escape(report.options.title)
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


def _interval(values: tuple[float, float, float]) -> str:
    return f"{number(values[0])} ({number(values[1])} to {number(values[2])})"


def _head(report: Report, facts: Sequence[tuple[str, str]]) -> str:
    listed = "".join(f"<div><dt>{html.escape(name)}</dt><dd>{html.escape(value)}</dd></div>" for name, value in facts)
    cohort, accuracy = report.cohort, report.accuracy
    figures = [
        (f"{cohort.rows:,}", "rows"),
        (f"{cohort.events:,}", f"events ({cohort.events / cohort.rows:.0%})"),
        ("–" if accuracy.concordance is None else f"{accuracy.concordance:.3f}", "concordance (0.5 is chance)"),
        (f"{accuracy.distribution.p_value:.2f}", "p of D-calibration (small is bad)"),
    ]
    tiles = "".join(f"<li><strong>{html.escape(value)}</strong> <span>{words}</span></li>" for value, words in figures)
    return (
        f'<header><h1>{html.escape(report.options.title)}</h1><dl class="facts">{listed}</dl>'
        f'<ul class="tiles">{tiles}</ul></header>'
    )


def _warnings(report: Report) -> str:
    if not report.warnings:
        return _section("warnings", "Warnings", "<p>None of the checks found a problem.</p>")
    items = "".join(f"<li>{html.escape(text)}</li>" for text in report.warnings)
    return _section("warnings", "Warnings", f'<ul class="warnings">{items}</ul>')


def _cohort(report: Report) -> str:
    part = report.cohort
    half = "fewer than half have the event" if np.isinf(part.half) else f"half have the event by {number(part.half)}"
    follow_up = (
        "" if np.isinf(part.follow_up) else f" Median follow-up (reverse Kaplan–Meier) is {number(part.follow_up)}."
    )
    late = f" {counted(part.late, 'row enters', 'rows enter', form=',')} late (left truncation)." if part.late else ""
    size = f"{counted(part.rows, 'row', form=',')}, {counted(part.events, 'event', form=',')}"
    words = f"<p>{size}; {half}.{follow_up}{late}</p>"
    level = f"{report.options.level:.0%}"
    chart = charts.cohort_chart(part, report.times, report.mean, report.options.level)
    figure = _figure(
        chart, f"Kaplan–Meier estimate with its {level} pointwise interval, and the mean of the predicted curves."
    )
    risk = _table(
        ("time", *(number(float(t)) for t in part.risk_times)),
        [("at risk", *(f"{n:,}" for n in part.at_risk))],
        numbers=range(1, len(part.at_risk) + 1),
    )
    columns = _table(("covariate", "values", "missing"), report.covariates)
    return _section("cohort", "Cohort", words, figure, risk, "<h3>Covariates</h3>", columns)


def _model(report: Report) -> str:
    rows, before = [], ""
    for section, name, value in report.summary:
        rows.append((section if section != before else "", name, value))
        before = section
    table = _table(("part", "what", "value"), rows)
    figure = _figure(
        charts.elbo_chart(report.elbo),
        "Convergence: the score (evidence lower bound) should end on a plateau.",
        small=True,
    )
    return _section("model", "Model and fit", f'<div class="pair">{table}{figure}</div>')


def _people(report: Report) -> str:
    shown, level = report.shown, f"{report.options.level:.0%}"
    if report.options.people:
        who = "The people chosen with --people."
    else:
        who = "Five people, from the longest expected time without the event to the shortest."
    caption = f"{who} Lines are posterior medians, shades {level} credible bands."
    if report.last_training < shown.times[-1]:
        caption += f" Right of the thin line, after {number(report.last_training)}, curves are extrapolated."
    columns = zip(shown.names, map(_interval, shown.half), map(_interval, shown.mean), shown.values, strict=True)
    rows = [tuple(row) for row in columns]
    head = ("person", f"median event time ({level})", f"mean time to {number(report.horizon)} ({level})", "covariates")
    chart = charts.people_chart(shown, report.last_training, report.options.level)
    note = "<p class='aside'>∞: the curve does not fall to one half within the training range.</p>"
    figure = _figure(chart, html.escape(caption))
    return _section("people", "Individual survival curves", figure, _table(head, rows), note)


def _calibration(report: Report) -> str:
    found = report.accuracy
    p = found.distribution.p_value
    verdict = "rejects calibration" if p < 0.05 else "does not reject calibration"
    bars = _figure(
        charts.histogram_chart(found),
        f"D-calibration: bars of equal height are ideal. The test {verdict} (p = {p:.3f}).",
        small=True,
    )
    distance = ""
    if found.distance is not None:
        distance = (
            f"<p>KM-calibration: the mean predicted curve is {np.sqrt(found.distance):.1%} away from Kaplan–Meier, as "
            f"a root mean square over time (its square, {found.distance:.2g}, is the usual figure).</p>"
        )
    figures = [bars]
    for groups in found.groups:
        test = (
            "" if groups.p_value is None else f" Test of agreement in {groups.tested} groups: p = {groups.p_value:.3f}."
        )
        caption = (
            f"Survival at {number(groups.time)} in {len(groups.size)} groups of {groups.size.min()} or more rows; on "
            f"the diagonal, predicted equals observed.{test}"
            if len(groups.size)
            else f"No row is followed up to {number(groups.time)}."
        )
        figures.append(_figure(charts.groups_chart(groups), caption, small=True))
    return _section("calibration", "Calibration", distance, f'<div class="pair">{"".join(figures)}</div>')


def _discrimination(report: Report) -> str:
    found = report.accuracy
    index = "not defined for these rows" if found.concordance is None else f"{found.concordance:.3f}"
    words = f"<p>Concordance index (Antolini): {index}. 0.5 is chance, 1 is a perfect ranking.</p>"
    figures = []
    if found.discrimination is not None:
        figures.append(
            _figure(
                charts.discrimination_chart(found.discrimination),
                "Cumulative/dynamic area under the ROC curve, weighted for censoring, with a 90 % bootstrap interval.",
                small=True,
            )
        )
    if found.brier is not None:
        figures.append(
            _figure(
                charts.brier_chart(found.brier, found.brier_reference),
                "Squared error of predicted survival, weighted for censoring; lower is better. Below Kaplan–Meier, the "
                "covariates help.",
                small=True,
            )
        )
    return _section("discrimination", "Discrimination", words, f'<div class="pair">{"".join(figures)}</div>')


def _effects(report: Report) -> str:
    if not report.effects:
        return _section("effects", "Covariate effects", "<p>No covariate varies among these rows.</p>")
    level = f"{report.options.level:.0%}"
    shown = report.effects[:20]
    caption = (
        f"Change of the mean time without the event up to {number(report.horizon)} when one covariate changes and "
        f"the others stay the same, averaged over {counted(report.averaged, 'person', 'people')}, with {level} "
        "intervals from joint draws. An interval that contains 0 leaves the direction open. These are associations in "
        "the model, not causal effects."
    )
    rows = [
        (effect.column, effect.change, number(effect.median), f"{number(effect.lower)} to {number(effect.upper)}")
        for effect in report.effects
    ]
    table = _table(("covariate", "change", "effect", f"{level} interval"), rows, numbers=(2, 3))
    chart = charts.effects_chart(shown, report.horizon, report.options.level)
    listed = f"<details><summary>All {len(rows)} effects as a table</summary>{table}</details>"
    return _section("effects", "Covariate effects", _figure(chart, caption), listed)


def _least_certain(report: Report) -> str:
    found, level = report.least_certain, f"{report.options.level:.0%}"
    worst = int(found.width.argmax())
    words = (
        f"<p>The {level} interval of a person's mean time to {number(report.horizon)} is "
        f"{number(found.typical_width)} wide at the median. Curves are least certain around time "
        f"{number(float(found.times[worst]))}, where their bands span {found.width[worst]:.0%} on average. "
        "The widest intervals:</p>"
    )
    rows = [
        (name, _interval(mean), unusual)
        for name, mean, unusual in zip(found.names, found.mean, found.unusual, strict=True)
    ]
    table = _table(("person", f"mean time to {number(report.horizon)} ({level})", "what is unusual"), rows)
    figure = _figure(charts.width_chart(found, report.options.level), "How wide the bands are over time.", small=True)
    return _section("least-certain", "Where the model is least certain", words, table, figure)
