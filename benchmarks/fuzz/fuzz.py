"""Anything that can be handed over, handed over: curves or one of our errors must come back.

``run`` makes cases in chunks (hypothesis), runs them, and adds a line for each chunk to the store, so that a run that
was stopped goes on where it was; a case that breaks the library is shrunk and kept in the line. ``keep`` writes such
cases into tests/fail/, where the tests replay them; ``replay`` does that by hand; ``table`` writes the page of the
documentation. ``python benchmarks/fuzz/fuzz.py run --cases 200`` is quick.
"""

from __future__ import annotations

import argparse
import base64
import collections
import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

# Before torch is imported, which reads this only once.
for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[_name] = "1"

FOLDER = Path(__file__).parent
sys.path[:0] = [str(FOLDER), str(FOLDER.parent / "proof")]

from job_store import append, read_store  # noqa: E402

STORE = FOLDER / "results.jsonl"
ROOT = FOLDER.parents[1]
PAGE = ROOT / "docs" / "proof" / "fuzzing.md"
FAIL = ROOT / "tests" / "fail"
CHUNK = 500
LAYERS = ("fit", "read", "file", "table")
# Shares of the layers in a run: a fit costs ten times what the others cost.
SHARES = {"fit": 0.15, "read": 0.35, "file": 0.25, "table": 0.25}
_BYTES = {"fit": 160, "read": 160, "file": 96, "table": 128}


def recipe_of(layer: str, data: bytes) -> dict[str, Any]:
    """Return the case that a string of bytes stands for, as plain data."""
    if layer in ("fit", "read"):
        from fuzz_recipes import cohort

        return {"layer": layer, **cohort(data)}
    if layer == "file":
        from fuzz_files import damaged

        said, content = damaged(data)
        return {"layer": layer, "kind": said, "content": base64.b64encode(content).decode("ascii")}
    from fuzz_tables import table

    said, ending, content, reading = table(data)
    return {
        "layer": layer,
        "kind": said,
        "ending": ending,
        "reading": reading,
        "content": base64.b64encode(content).decode("ascii"),
    }


def run_case(recipe: dict[str, Any]) -> dict[str, int]:
    """Run a case and return what came of it; raises where the library breaks a promise."""
    layer = recipe["layer"]
    if layer in ("fit", "read"):
        from fuzz_cohort import fit_and_ask, read_only

        return (fit_and_ask if layer == "fit" else read_only)(recipe)
    content = base64.b64decode(recipe["content"])
    if layer == "file":
        from fuzz_files import read_bytes

        return read_bytes(content)
    from fuzz_tables import read_file

    return read_file(recipe["ending"], content, recipe["reading"])


@cache
def fingerprint() -> str:
    """Return a digest of the library and of the harness: cases of other sources are run again."""
    digest = hashlib.sha256()
    for path in sorted([*(ROOT / "src").rglob("*.py"), *FOLDER.glob("*.py")]):
        if path.name not in ("fuzz_report.py", "file_reader.py"):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def run_chunk(layer: str, seed: int, cases: int) -> dict[str, Any]:
    """Run one chunk and return its record."""
    from fuzz_kinds import kinds
    from hypothesis import HealthCheck, Phase, given, settings
    from hypothesis import seed as with_seed
    from hypothesis import strategies as st

    import neuralsurv

    size = _BYTES[layer]
    tally: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    last: dict[str, Any] = {"recipe": {"layer": layer}}  # if not even a case can be made
    state = {"done": 0, "broken": False}

    def case(data: bytes) -> None:
        recipe = recipe_of(layer, data)
        try:
            came = run_case(recipe)
        except Exception:
            state["broken"] = True
            last["recipe"] = recipe
            raise
        if not state["broken"]:  # what is run while a broken case is shrunk is not counted
            state["done"] += 1
            tally["all"].update(came)
            for kind in kinds(recipe):
                tally[kind].update(came)

    started = time.perf_counter(), time.process_time()
    test = given(st.binary(min_size=size, max_size=size))(case)
    test = settings(
        max_examples=cases,
        database=None,
        deadline=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
        print_blob=False,
        report_multiple_bugs=False,
    )(test)
    broken = []
    try:
        with_seed(seed)(test)()
    except Exception as error:
        broken = [{"error": f"{type(error).__name__}: {error}"[:500], "recipe": last["recipe"]}]
    return {
        "layer": layer,
        "seed": seed,
        "asked": cases,
        "cases": state["done"],
        "broken": broken,
        "came": {kind: dict(counts) for kind, counts in sorted(tally.items())},
        "seconds": round(time.perf_counter() - started[0], 1),
        "cpu_seconds": round(time.process_time() - started[1], 1),
        "date": datetime.now(UTC).date().isoformat(),
        "version": neuralsurv.__version__,
        "fingerprint": fingerprint(),
    }


def chunks(cases: int, seed: int, layers: Sequence[str]) -> list[tuple[str, int, int]]:
    """Return the chunks of a run, layer after layer in turn, so that all of them grow together."""
    total = sum(SHARES[layer] for layer in layers)
    left = {layer: round(cases * SHARES[layer] / total) for layer in layers}
    plan = []
    number = 0
    while any(left.values()):
        for layer in layers:
            if left[layer]:
                size = min(CHUNK, left[layer])
                plan.append((layer, 1000 * seed + number, size))
                left[layer] -= size
                number += 1
    return plan


def run(given: argparse.Namespace) -> int:
    """Run the chunks that are not stored yet."""
    from joblib import Parallel, delayed

    done = {
        (record["layer"], record["seed"], record["asked"])
        for record in read_store(given.store)
        if record["layer"] in LAYERS and (given.any_source or record["fingerprint"] == fingerprint())
    }
    wanted = chunks(given.cases, given.seed, given.layer)
    left = [chunk for chunk in wanted if chunk not in done]
    cases = sum(size for *_, size in left)
    print(f"{given.cases} cases in {len(wanted)} chunks; {len(left)} chunks, {cases} cases, to do", flush=True)
    found = count = 0
    started = time.perf_counter()
    for record in Parallel(n_jobs=given.jobs, return_as="generator_unordered")(
        delayed(run_chunk)(*chunk) for chunk in left
    ):
        append(given.store, record)
        count += record["cases"]
        found += len(record["broken"])
        rate = count / (time.perf_counter() - started)
        print(f"{count} of {cases} cases, {rate:.0f} a second, {found} broken ({record['layer']})", flush=True)
        for broken in record["broken"]:
            print(f"  {broken['error']}", flush=True)
    return 1 if found else 0


def keep(given: argparse.Namespace) -> int:
    """Write the broken cases of the store into the folder that the tests replay."""
    given.folder.mkdir(parents=True, exist_ok=True)
    for record in read_store(given.store):
        for broken in record.get("broken", []):
            text = json.dumps(broken["recipe"], indent=1, ensure_ascii=True) + "\n"
            name = f"{record['layer']}-{hashlib.sha256(text.encode()).hexdigest()[:10]}.json"
            (given.folder / name).write_text(text, encoding="utf-8")
            print(name, broken["error"][:100])
    return 0


def replay(given: argparse.Namespace) -> int:
    """Run stored cases again."""
    worst = 0
    for path in given.files:
        try:
            print(path.name, run_case(json.loads(path.read_text(encoding="utf-8"))))
        except Exception as error:
            worst = 1
            print(path.name, f"BROKEN: {type(error).__name__}: {error}")
    return worst


def table(given: argparse.Namespace) -> int:
    """Write the page."""
    from fuzz_report import page

    text = page(read_store(given.store), len(list(FAIL.glob("*.json"))))
    given.out.write_text(text, encoding="utf-8")
    print(text)
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    actions = parser.add_subparsers(required=True, metavar="ACTION")

    def action(name: str, do: Callable[[argparse.Namespace], int], words: str) -> argparse.ArgumentParser:
        made = actions.add_parser(name, help=words)
        made.add_argument("--store", type=Path, default=STORE, metavar="FILE", help="results (default: results.jsonl)")
        made.set_defaults(action=do)
        return made

    running = action("run", run, "run the chunks that are not stored yet")
    running.add_argument("--cases", type=int, default=100_000, metavar="N", help="cases in all (%(default)s)")
    running.add_argument(
        "--seed", type=int, default=1, metavar="S", help="another seed makes other cases (%(default)s)"
    )
    running.add_argument("--jobs", type=int, default=1, metavar="J", help="chunks at once")
    running.add_argument("--layer", nargs="+", choices=LAYERS, default=list(LAYERS))
    running.add_argument("--any-source", action="store_true", help="chunks of other sources count as done")
    action("keep", keep, "write broken cases into tests/fail").add_argument("--folder", type=Path, default=FAIL)
    action("replay", replay, "run stored cases again").add_argument("files", nargs="+", type=Path)
    action("table", table, "write the page").add_argument("--out", type=Path, default=PAGE, metavar="FILE")
    given = parser.parse_args(arguments)
    try:
        return int(given.action(given))
    except KeyboardInterrupt:
        print("stopped; start again to go on where it was.", file=sys.stderr)
        return 130


if __name__ == "__main__":
    # By its name, for what the workers of --jobs are sent is found by name.
    import fuzz

    sys.exit(fuzz.main())
