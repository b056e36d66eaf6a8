"""The command `neuralsurv-bench`: run the experiments, say how far they are, write tables and figures."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import TYPE_CHECKING

from neuralsurv_bench.threads import ask_for_one_thread

if TYPE_CHECKING:
    from neuralsurv_bench.runner import Summary
    from neuralsurv_bench.store import Store

DEFAULT_STORE = Path("benchmarks/results/results.sqlite")
# A file of its own: it is about other data, and small.
NEUTRAL_STORE = Path("benchmarks/results/neutral.sqlite")
_ALL = "all"
# Not among the experiments that `all` runs: it needs a copy of another repository.
_NEUTRAL = "neutral"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    # Before anything below imports torch or numba, which read this only once.
    ask_for_one_thread()
    from neuralsurv.errors import InputError

    options = _parser().parse_args(arguments)
    try:
        return int(options.action(options))
    except InputError as error:
        print(f"neuralsurv-bench: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("neuralsurv-bench: stopped; start again to go on where it was.", file=sys.stderr)
        return 130
    except BrokenProcessPool:
        print(
            "neuralsurv-bench: a worker was killed, perhaps for want of memory; what was finished is stored. Start "
            "again with fewer --jobs.",
            file=sys.stderr,
        )
        return 1


def _parser() -> argparse.ArgumentParser:
    from neuralsurv_bench.experiments import EXPERIMENTS

    parser = argparse.ArgumentParser(prog="neuralsurv-bench", description=__doc__)
    actions = parser.add_subparsers(required=True, metavar="ACTION")

    store = argparse.ArgumentParser(add_help=False)
    store.add_argument("--store", type=Path, default=DEFAULT_STORE, metavar="FILE", help="results (%(default)s)")

    run = actions.add_parser("run", help="run an experiment, or go on with it")
    run.add_argument(
        "experiment", choices=[*EXPERIMENTS, _NEUTRAL, _ALL], metavar="EXPERIMENT", help=_experiments_help()
    )
    run.add_argument(
        "--store", type=Path, metavar="FILE", help=f"results ({DEFAULT_STORE}; of {_NEUTRAL}: {NEUTRAL_STORE})"
    )
    run.add_argument(
        "--folder", type=Path, metavar="DIR", help=f"{_NEUTRAL}: copy of slds-lmu/paper_2023_survival_benchmark"
    )
    run.add_argument("--folds", type=int, metavar="N", help=f"{_NEUTRAL}: only the first N stored folds of each task")
    run.add_argument(
        "--cohort", action="append", default=[], metavar="NAME", help="only this cohort or task; may be repeated"
    )
    run.add_argument("--method", action="append", default=[], metavar="NAME", help="only this one; may be repeated")
    run.add_argument("--jobs", type=int, default=1, metavar="N", help="jobs at once (%(default)s); -1 for all cores")
    run.add_argument("--backend", default="loky", help="backend of joblib (%(default)s)")
    run.add_argument("--limit-minutes", type=float, metavar="M", help="start no job after this time")
    run.add_argument("--retry-failed", action="store_true", help="do jobs again that are stored as failed")
    run.set_defaults(action=_run)

    status = actions.add_parser("status", parents=[store], help="say how much of each experiment is in the store")
    status.set_defaults(action=_status)

    for name, action, words in (
        ("tables", _tables, "write every table as Markdown and LaTeX"),
        ("figures", _figures, "draw every figure"),
    ):
        one = actions.add_parser(name, parents=[store], help=words)
        one.add_argument("--out", type=Path, required=True, metavar="DIR", help="where to write")
        one.add_argument("--reference", metavar="METHOD", help="what others are compared with; the first of ours")
        one.set_defaults(action=action)

    table = actions.add_parser("table", help=f"write the page of {_NEUTRAL} with its picture")
    table.add_argument("experiment", choices=[_NEUTRAL], metavar="EXPERIMENT", help=_NEUTRAL)
    table.add_argument(
        "--store", type=Path, default=NEUTRAL_STORE, metavar="FILE", help="results of ours (%(default)s)"
    )
    table.add_argument(
        "--folder", type=Path, required=True, metavar="DIR", help="copy of slds-lmu/paper_2023_survival_benchmark"
    )
    table.add_argument(
        "--out", type=Path, default=Path("docs/benchmarks"), metavar="DIR", help="where to write (%(default)s)"
    )
    table.set_defaults(action=_neutral_page)
    return parser


def _experiments_help() -> str:
    from neuralsurv_bench.experiments import EXPERIMENTS

    known = "; ".join(f"{one.name}: {one.title}" for one in EXPERIMENTS.values())
    return (
        f"{known}; {_NEUTRAL}: the default model on the folds of a neutral comparison study; {_ALL}: one after the "
        f"other, without {_NEUTRAL}"
    )


def _run(options: argparse.Namespace) -> int:
    import joblib

    from neuralsurv.errors import InputError
    from neuralsurv_bench.store import Store

    neutral = options.experiment == _NEUTRAL
    if neutral and options.method:
        raise InputError(f"--method is not an option of {_NEUTRAL}, which runs the default model alone; leave it out.")
    if neutral and options.folder is None:
        raise InputError(f"{_NEUTRAL} needs --folder, a copy of slds-lmu/paper_2023_survival_benchmark.")
    if not neutral and (options.folder is not None or options.folds is not None):
        raise InputError(f"--folder and --folds are options of {_NEUTRAL} only; leave them out.")
    path = options.store or (NEUTRAL_STORE if neutral else DEFAULT_STORE)
    with Store(path) as store, joblib.parallel_config(options.backend, n_jobs=options.jobs):
        return _run_neutral(options, store) if neutral else _run_experiments(options, store)


def _run_experiments(options: argparse.Namespace, store: Store) -> int:
    from neuralsurv_bench.experiments import EXPERIMENTS, jobs_of
    from neuralsurv_bench.jobs import execute
    from neuralsurv_bench.methods.registry import METHODS
    from neuralsurv_bench.runner import run

    chosen = list(EXPERIMENTS.values()) if options.experiment == _ALL else [EXPERIMENTS[options.experiment]]
    began = time.monotonic()
    for experiment in chosen:
        jobs = jobs_of(experiment, METHODS, only_cohorts=options.cohort, only_methods=options.method)
        limit = options.limit_minutes
        summary = run(
            jobs,
            execute,
            store,
            title=experiment.name,
            alone=experiment.alone,
            retry_failed=options.retry_failed,
            limit_seconds=None if limit is None else 60 * limit - (time.monotonic() - began),
        )
        print(_in_words(experiment.name, summary))
    return 0


def _run_neutral(options: argparse.Namespace, store: Store) -> int:
    from neuralsurv_bench.neutral.fold_jobs import execute_fold, fold_jobs
    from neuralsurv_bench.neutral.folder import StudyFolder
    from neuralsurv_bench.neutral.reproduction import check_reproduction
    from neuralsurv_bench.runner import run

    folder = StudyFolder(options.folder)
    jobs = fold_jobs(folder, only_tasks=options.cohort, folds=options.folds)
    # Before anything is run: a score that cannot be compared is not worth the time.
    print(check_reproduction(folder).sentence())
    summary = run(
        jobs,
        execute_fold,
        store,
        title=_NEUTRAL,
        retry_failed=options.retry_failed,
        limit_seconds=None if options.limit_minutes is None else 60 * options.limit_minutes,
    )
    print(_in_words(_NEUTRAL, summary))
    return 0


def _in_words(experiment: str, summary: Summary) -> str:
    return (
        f"{experiment}: {summary.finished} finished, {summary.failed} failed, {summary.before} were there before, "
        f"{summary.left} left"
    )


def _status(options: argparse.Namespace) -> int:
    from rich.console import Console
    from rich.table import Table

    from neuralsurv_bench.experiments import EXPERIMENTS, jobs_of
    from neuralsurv_bench.methods.registry import METHODS
    from neuralsurv_bench.store import Store

    with Store(options.store) as store:
        finished = Counter(key.experiment for key in store.stored("finished"))
        failed = Counter(key.experiment for key in store.stored("failed"))
        present = store.stored()
    table = Table("experiment", "finished", "failed", "left")
    for name, experiment in EXPERIMENTS.items():
        left = sum(job.key not in present for job in jobs_of(experiment, METHODS))
        table.add_row(name, str(finished[name]), str(failed[name]), str(left))
    Console().print(table)
    return 0


def _tables(options: argparse.Namespace) -> int:
    from neuralsurv_bench.methods.registry import METHODS
    from neuralsurv_bench.store import Store
    from neuralsurv_bench.tables import write_tables

    with Store(options.store) as store:
        for path in write_tables(store, METHODS, options.out, options.reference):
            print(path)
    return 0


def _figures(options: argparse.Namespace) -> int:
    from neuralsurv_bench.figures import write_figures
    from neuralsurv_bench.methods.registry import METHODS
    from neuralsurv_bench.store import Store

    with Store(options.store) as store:
        for path in write_figures(store, METHODS, options.out, options.reference):
            print(path)
    return 0


def _neutral_page(options: argparse.Namespace) -> int:
    from neuralsurv_bench.neutral.folder import StudyFolder
    from neuralsurv_bench.neutral.page import write_page
    from neuralsurv_bench.store import Store

    with Store(options.store) as store:
        for path in write_page(store, StudyFolder(options.folder), options.out):
            print(path)
    return 0
