"""Every table of the paper from the store, ours beside the published figure, and where they come from."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from neuralsurv_bench import published
from neuralsurv_bench.default_tables import full_tables, ingredients_tables
from neuralsurv_bench.experiments import (
    EXPERIMENTS,
    EXPLAINED_COHORTS,
    RUNTIME_COHORT,
    SYNTHETIC,
    distinct_variants,
    layers_setting,
    prior_setting,
    size_setting,
)
from neuralsurv_bench.methods import neuralsurv_paper
from neuralsurv_bench.methods.interface import Method, Variant
from neuralsurv_bench.protocol import FOLDS
from neuralsurv_bench.repeated_tables import repeated_tables
from neuralsurv_bench.results import (
    BRIER,
    CONCORDANCE,
    D_CALIBRATION,
    KM_CALIBRATION,
    Metric,
    Results,
    difference_text,
    published_text,
)
from neuralsurv_bench.store import Record, Store
from neuralsurv_bench.table_text import Cell, Table, mark_best, to_latex, to_markdown

Methods = Mapping[str, Method]
Builder = Callable[[Sequence[Record], Methods], Iterator[Table]]

# The paper prints each of its comparisons in two parts.
PARTS = ((CONCORDANCE, BRIER), (D_CALIBRATION, KM_CALIBRATION))
_NOTE = (
    "Mean ± standard deviation over folds, by the paper's definitions of the metrics. As published: rerun by us "
    "with the handicaps of the published benchmark; paper: the printed figure; difference: as published minus paper; "
    "fair: repaired."
)


def comparison_tables(
    table: published.Table, records: Sequence[Record], methods: Methods, columns: Sequence[tuple[str, str, str]]
) -> Iterator[Table]:
    """Yield the tables of an experiment that the paper prints as methods by metrics.

    Parameters
    ----------
    table : str
        The table in `published.json`.
    records : sequence of Record
        Results of the experiment.
    methods : mapping of str to Method
        The methods there are.
    columns : sequence of (str, str, str)
        Column of the published table, with cohort and setting of its jobs.
    """
    results = Results(records, methods)
    for metrics in PARTS:
        for column, cohort, setting in (one for one in columns if results.any(*one[1:])):
            folds = FOLDS if cohort != SYNTHETIC else 1
            header, body = ["method"], [[Cell(method.name)] for method in results.methods()]
            for metric in metrics:
                header += [f"{metric.title}, as published", "paper", "difference", "fair"]
                for row, cells in zip(
                    body, _metric_cells(table, results, metric, column, cohort, setting, folds), strict=True
                ):
                    row.extend(cells)
            title = f"{setting or cohort}: {' and '.join(metric.title for metric in metrics)}"
            yield Table(title, header, body, _NOTE)


def _metric_cells(
    table: published.Table, results: Results, metric: Metric, column: str, cohort: str, setting: str, folds: int
) -> list[list[Cell]]:
    """Return the four cells of a metric for each method: as published, paper, difference, fair."""
    methods = results.methods()
    variants: tuple[Variant, ...] = ("as-published", "fair")
    again, fair = ([results.summary(m, variant, metric, cohort, setting) for m in methods] for variant in variants)
    printed = [published.figure(table, column, published.row_of(method), metric.name) for method in methods]
    differences = [
        None if mean is None or paper is None else mean - paper
        for mean, paper in zip([one.complete_mean(folds) for one in again], printed, strict=True)
    ]
    shown = [
        _marked([one.complete_mean(folds) for one in again], [one.text(metric, folds) for one in again], metric),
        _marked(printed, [published_text(paper, metric) for paper in printed], metric),
        [Cell(difference_text(difference)) for difference in differences],
        _marked([one.complete_mean(folds) for one in fair], [one.text(metric, folds) for one in fair], metric),
    ]
    return [list(row) for row in zip(*shown, strict=True)]


def _marked(values: Sequence[float | None], texts: Sequence[str], metric: Metric) -> list[Cell]:
    if metric.higher_is_better is None:
        return [Cell(text) for text in texts]
    return mark_best(values, texts, higher_is_better=metric.higher_is_better)


def _paper_folds(table: published.Table) -> Builder:
    def tables(records: Sequence[Record], methods: Methods) -> Iterator[Table]:
        columns = [(cohort, cohort, "") for cohort in published.columns(table)]
        return comparison_tables(table, records, methods, columns)

    return tables


def synthetic_tables(records: Sequence[Record], methods: Methods) -> Iterator[Table]:
    """Yield the tables of the synthetic experiment, one test set for each size."""
    columns = [(size, SYNTHETIC, size_setting(size)) for size in published.columns("synthetic")]
    return comparison_tables("synthetic", records, methods, columns)


def prior_tables(records: Sequence[Record], methods: Methods) -> Iterator[Table]:
    """Yield q(phi) on the first fold and the metrics over folds for each prior, beside the published ones."""
    results = Results(records, methods)
    metrics = [metric for part in PARTS for metric in part]
    settings = [prior_setting(prior) for prior in published.rows("prior")]
    for cohort in (one for one in published.columns("prior") if any(results.any(one, s) for s in settings)):
        header = ["method", "prior", "q(φ), fold 0", "median [95 %]", "paper: q(φ)", "paper: median [95 %]"]
        header += [name for metric in metrics for name in (metric.title, "paper")]
        body = []
        for method in results.methods():
            for prior in published.rows("prior"):
                setting = prior_setting(prior)
                first = [r for r in results.of(method, "fair", cohort, setting) if r.key.fold == 0]
                ours = first[0].details.get("phi", {}) if first else {}
                paper = {name: published.figure("prior", cohort, prior, name) for name in published.metrics("prior")}
                row = [method.name, f"Gamma({prior.replace('-', ', ')})", *_gamma_texts(ours), *_gamma_texts(paper)]
                for metric in metrics:
                    row.append(results.summary(method, "fair", metric, cohort, setting).text(metric, FOLDS))
                    row.append(published_text(paper[metric.name], metric))
                body.append([Cell(text) for text in row])
        note = "Gamma posteriors as shape, rate, in scaled time; metrics as mean ± standard deviation over folds."
        yield Table(f"{cohort}: prior of φ", header, body, note)


def explain_tables(records: Sequence[Record], methods: Methods) -> Iterator[Table]:
    """Yield, for each cohort, the paper preset with one change at a time, and how many folds collapse."""
    results = Results(records, methods)
    for cohort in (one for one in EXPLAINED_COHORTS if any(results.any(one, c) for c in neuralsurv_paper.CHANGES)):
        header = [
            "method",
            "what is changed",
            *(metric.title for metric in PARTS[0]),
            "collapsed folds",
            "φ shape, fold 0",
        ]
        body = []
        for method in results.methods():
            for change in neuralsurv_paper.CHANGES:
                found = [one for one in results.of(method, "fair", cohort, change) if one.status == "finished"]
                collapsed = sum(bool(one.details.get("collapsed")) for one in found)
                shapes = [one.details["phi"]["shape"] for one in found if one.key.fold == 0]
                texts = [
                    results.summary(method, "fair", metric, cohort, change).text(metric, FOLDS) for metric in PARTS[0]
                ]
                shape = f"{shapes[0]:.1f}" if shapes else "–"
                body.append(
                    [Cell(text) for text in (method.name, change, *texts, f"{collapsed} of {len(found)}", shape)]
                )
        paper = [
            published_text(published.figure("central", cohort, published.PAPERS_OWN, metric.name), metric)
            for metric in PARTS[0]
        ]
        body.append([Cell(text) for text in (published.PAPERS_OWN, "the paper", *paper, "–", "–")])
        yield Table(f"{cohort}: one change at a time", header, body, "Mean ± standard deviation over folds.")


def _gamma_texts(gamma: Mapping[str, float | None]) -> tuple[str, str]:
    numbers = [gamma.get(name) for name in ("shape", "rate", "median", "lower", "upper")]
    if any(number is None for number in numbers):
        return "–", "–"
    shape, rate, median, lower, upper = numbers
    return f"{shape:.3f}, {rate:.3f}", f"{median:.3f} [{lower:.3f}, {upper:.3f}]"


def runtime_tables(records: Sequence[Record], methods: Methods) -> Iterator[Table]:
    """Yield, for each size, seconds and their ratio to ours beside the ratio of the published minutes."""
    ours = neuralsurv_paper.paper_method(None)
    results = Results(records, {ours.name: ours, **methods})
    timed = [(method, variant) for method in results.methods() for variant in distinct_variants(method)]
    layers = published.metrics("runtime_minutes")
    for size in published.columns("runtime_minutes"):
        if not any(results.any(RUNTIME_COHORT, layers_setting(size, hidden)) for hidden in layers):
            continue
        header = ["method", "variant"]
        body = [[method.name, variant] for method, variant in timed]
        for hidden in layers:
            header += [f"{hidden}: seconds", "ratio to ours", "paper: ratio"]
            own = _seconds(results, ours, "fair", size, hidden)
            papers = published.figure("runtime_minutes", size, published.PAPERS_OWN, hidden)
            for row, (method, variant) in zip(body, timed, strict=True):
                seconds = _seconds(results, method, variant, size, hidden)
                minutes = published.figure("runtime_minutes", size, published.row_of(method), hidden)
                row += [_number(seconds), _number(_ratio(seconds, own)), _number(_ratio(minutes, papers))]
        note = (
            "Median over repetitions of the time to fit, one fold of COLON, one thread, with the methods alternating "
            "on one machine; hidden layers as widths. As published trains as long as the paper's benchmark did; fair "
            "may stop early. Ratio: a method's time over that of our paper preset; the paper's is the same from its "
            "own minutes, measured on graphics processors. Methods without a network have one time."
        )
        yield Table(f"N = {size}", header, [[Cell(text) for text in row] for row in body], note)


def _seconds(results: Results, method: Method, variant: Variant, size: str, layers: str) -> float | None:
    setting = size_setting(size) if method.family == "classical" else layers_setting(size, layers)
    found = [r.fit_seconds for r in results.of(method, variant, RUNTIME_COHORT, setting) if r.status == "finished"]
    seconds = [second for second in found if second is not None]
    return statistics.median(seconds) if seconds else None


def _ratio(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else part / whole


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}"


BUILDERS: dict[str, Builder] = {
    "central": _paper_folds("central"),
    "classical": _paper_folds("classical"),
    "ablation": _paper_folds("ablation"),
    "synthetic": synthetic_tables,
    "prior": prior_tables,
    "explain": explain_tables,
    "runtime": runtime_tables,
    "ingredients": ingredients_tables,
    "full": full_tables,
}


def write_tables(store: Store, methods: Methods, folder: Path, reference: str | None = None) -> list[Path]:
    """Write the tables of every experiment that has results and return the files.

    Parameters
    ----------
    store : Store
        The results.
    methods : mapping of str to Method
        The methods there are.
    folder : Path
        Where to write; made if it is not there.
    reference : str, optional
        The method that the others are compared with in the repeated experiment; the first of ours if not given.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    builders: dict[str, Builder] = {**BUILDERS, "repeated": partial(repeated_tables, reference=reference)}
    for name, build in builders.items():
        records = store.records(name)
        if not records:
            continue
        tables = list(build(records, methods))
        head = f"# {name}: {EXPERIMENTS[name].title}\n\n{provenance(records)}\n\n"
        for suffix, text in (
            (".md", head + "\n".join(map(to_markdown, _notes_once(tables))) + failure_list(records)),
            (".tex", "\n".join(map(to_latex, tables))),
        ):
            path = folder / f"{name}{suffix}"
            path.write_text(text, encoding="utf-8")
            written.append(path)
    return written


def _notes_once(tables: Sequence[Table]) -> Iterator[Table]:
    """Yield the tables without a note that the table before has as well."""
    before = ""
    for table in tables:
        yield replace(table, note="") if table.note == before else table
        before = table.note


def provenance(records: Sequence[Record]) -> str:
    """Return a paragraph with number and dates of the jobs, versions, machine, and the source of published figures."""
    return f"{run_conditions(records)} Published figures: {published.source()}"


def run_conditions(records: Sequence[Record]) -> str:
    """Return number and dates of the jobs, versions and machine, in sentences."""
    dates = sorted(record.date[:10] for record in records)
    failed = sum(record.status == "failed" for record in records)
    kinds = {str(record.environment): record.environment for record in records}
    lines = [f"{len(records)} jobs from {dates[0]} to {dates[-1]}, {failed} of them failed."]
    for environment in kinds.values():
        packages = ", ".join(
            f"{name} {version}" for name, version in environment.get("packages", {}).items() if version
        )
        machine = environment.get("machine", {})
        lines.append(
            f"Python {environment.get('python')}, {packages}; {machine.get('processor')}, {machine.get('cores')} "
            f"cores, {machine.get('memory_gib')} GiB, {machine.get('system')}."
        )
    return " ".join(lines)


def failure_list(records: Sequence[Record]) -> str:
    """Return a list of the errors behind failed jobs, alike ones counted together."""
    counts: dict[tuple[str, str, str], int] = {}
    for record in records:
        if record.status == "failed":
            name = (record.key.method, record.key.variant, record.error)
            counts[name] = counts.get(name, 0) + 1
    if not counts:
        return ""
    lines = [f"- {method} ({variant}), {count} jobs: {error}" for (method, variant, error), count in counts.items()]
    return "\n### Failed jobs\n\n" + "\n".join(lines) + "\n"
