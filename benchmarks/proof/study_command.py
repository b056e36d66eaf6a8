"""The command line that the small studies share: ``run``, ``table`` and, where there is a picture, ``plot``."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

# Before torch is imported, which reads this only once: the jobs themselves run in parallel.
for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_name] = "1"

from job_store import read_store  # noqa: E402

FOLDER = Path(__file__).parent
PAGES = FOLDER.parents[1] / "docs" / "proof"
Records = list[dict[str, Any]]


def main(
    name: str,
    words: str | None,
    arguments: Sequence[str] | None,
    *,
    options: Callable[[argparse.ArgumentParser], None],
    run: Callable[[argparse.Namespace], Any],
    page: Callable[[Records], str],
    picture: Callable[[Records, Path], None] | None = None,
    draws: int = 1000,
) -> int:
    """Run the command and return its exit code.

    Parameters
    ----------
    name, words, arguments
        Name of store, page and picture; the help; the command line.
    options
        Adds the options of ``run``, which has --store, --draws, --jobs and --retry-failed already.
    run, page, picture
        Do what is not stored yet; make the text of the page, and the picture, from the records of the newest model.
    draws
        Posterior draws, unless --draws says otherwise.
    """
    parser = argparse.ArgumentParser(description=words, formatter_class=argparse.RawDescriptionHelpFormatter)
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    common = argparse.ArgumentParser(add_help=False)
    store = FOLDER / f"{name}.jsonl"
    common.add_argument("--store", type=Path, default=store, metavar="FILE", help=f"results (default: {store.name})")
    running = actions.add_parser("run", parents=[common], help="do the jobs that are not stored yet")
    options(running)
    running.add_argument("--draws", type=int, default=draws, metavar="S", help="posterior draws (%(default)s)")
    running.add_argument("--jobs", type=int, default=1, metavar="J", help="jobs at once; -1 for all cores")
    running.add_argument("--retry-failed", action="store_true", help="do jobs again that are stored as failed")
    running.set_defaults(action=lambda given: run(given))

    def table(given: argparse.Namespace) -> None:
        text = page(_of_newest_model(given.store))
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(text, encoding="utf-8")
        print(text)

    def plot(given: argparse.Namespace) -> None:
        assert picture is not None
        given.out.parent.mkdir(parents=True, exist_ok=True)
        picture(_of_newest_model(given.store), given.out)
        print(f"drawn: {given.out.name}")

    makers = [("table", table, ".md")] + ([("plot", plot, ".png")] if picture else [])
    for title, action, ending in makers:
        out = PAGES / f"{name}{ending}"
        making = actions.add_parser(title, parents=[common], help=f"write {out.name} of the documentation")
        making.add_argument("--out", type=Path, default=out, metavar="FILE")
        making.set_defaults(action=action)
    given = parser.parse_args(arguments)
    try:
        given.action(given)
    except KeyboardInterrupt:
        print("stopped; start again to go on where it was.", file=sys.stderr)
        return 130
    return 0


def _of_newest_model(store: Path) -> Records:
    """Return the records of the model that was run last, without those that failed, which are said."""
    records = read_store(store)
    own = [record for record in records if record["model"] == records[-1]["model"]]
    failed = [record for record in own if "error" in record]
    if failed:
        print(f"{len(failed)} of {len(own)} jobs failed, the first with {failed[0]['error']}", file=sys.stderr)
    if len(own) == len(failed):
        raise SystemExit("the store holds no results; do `run` first.")
    return [record for record in own if "error" not in record]


def provenance_line(records: Records) -> str:
    """Return when, and on which commit, the records were made."""
    days = sorted({record["date"] for record in records})
    commits = ", ".join(dict.fromkeys(record["commit"] for record in records))
    return f"Run {' to '.join(dict.fromkeys([days[0], days[-1]]))}, commit {commits}."


def plus_minus(mean: float, error: float, digits: int = 3) -> str:
    """Return a mean with its standard error, without one where that is not defined."""
    return f"{mean:.{digits}f}" + ("" if error != error else f" ± {error:.{digits}f}")
