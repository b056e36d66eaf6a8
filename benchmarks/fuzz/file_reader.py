"""The reader of model files under atheris: bytes are changed where that reaches new branches of the reader.

``python benchmarks/fuzz/file_reader.py --runs 20000`` starts from whole model files and adds a line to the store. Needs
the extra ``fuzz`` (atheris runs on Linux and macOS only). What breaks the reader is written to ``--keep``, a folder.
"""

from __future__ import annotations

import argparse
import base64
import collections
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
sys.path[:0] = [str(FOLDER), str(FOLDER.parent / "proof")]

# Longer files take the fuzzer too long to change; they are among the cases of the command `fuzz.py`.
_LONGEST = 20_000


def signed(data: bytes) -> bytes:
    """Return a file with a digest that fits, if its parts can be told apart; else as it is.

    Without it every change would end at the digest, and nothing behind it would ever be reached.
    """
    from fuzz_files import joined, split

    try:
        outer, header, body = split(data)
        outer.pop("__metadata__")
        return joined(outer, header, body)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, IndexError, OverflowError):
        return data
    except Exception as error:
        if type(error).__name__ != "error":  # struct.error: shorter than its length field
            raise
        return data


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the fuzzer and return its exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20_000, metavar="N", help="files to try (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, metavar="S")
    parser.add_argument("--store", type=Path, default=FOLDER / "results.jsonl", metavar="FILE")
    parser.add_argument("--keep", type=Path, default=FOLDER.parents[1] / "tests" / "fail", metavar="FOLDER")
    given = parser.parse_args(arguments)
    import atheris

    with atheris.instrument_imports(
        include=[
            "neuralsurv.files.format",
            "neuralsurv.files.stored_posterior",
            "neuralsurv.estimator.model_file",
        ]
    ):
        import neuralsurv.estimator.model_file
        import neuralsurv.files.format
        import neuralsurv.files.stored_posterior
    from fuzz_files import originals, read_bytes

    import neuralsurv
    from fuzz import append, fingerprint

    came: collections.Counter[str] = collections.Counter()
    started = time.perf_counter(), time.process_time()

    def record(broken: list[dict[str, Any]]) -> None:
        append(
            given.store,
            {
                "layer": "atheris",
                "seed": given.seed,
                "asked": given.runs,
                "cases": sum(came.values()),
                "broken": broken,
                "came": {"all": dict(came)},
                "seconds": round(time.perf_counter() - started[0], 1),
                "cpu_seconds": round(time.process_time() - started[1], 1),
                "date": datetime.now(UTC).date().isoformat(),
                "version": neuralsurv.__version__,
                "fingerprint": fingerprint(),
            },
        )

    def one(data: bytes) -> None:
        content = signed(data[1:]) if data[:1] < b"\x80" else data[1:]
        try:
            came.update(read_bytes(content))
        except Exception as error:
            case = {"layer": "file", "kind": "atheris", "content": base64.b64encode(content).decode("ascii")}
            record([{"error": f"{type(error).__name__}: {error}"[:500], "recipe": case}])
            given.keep.mkdir(parents=True, exist_ok=True)
            (given.keep / "file-atheris.json").write_text(json.dumps(case, indent=1) + "\n", encoding="utf-8")
            print(f"broken: {error!r}; kept as {given.keep.name}/file-atheris.json", flush=True)
            os._exit(1)
        if sum(came.values()) == given.runs:
            record([])
            print(f"{given.runs} files: {dict(came)}", flush=True)
            os._exit(0)  # the fuzzer never returns, and would run its exit handlers here

    with tempfile.TemporaryDirectory() as folder:
        for name, whole in originals().items():
            if len(whole) > _LONGEST:
                continue
            for flag in (b"\x00", b"\xff"):
                (Path(folder) / f"{name}{flag.hex()}").write_bytes(flag + whole)
        atheris.Setup(
            [
                sys.argv[0],
                f"-runs={2 * given.runs}",
                f"-seed={given.seed}",
                f"-max_len={_LONGEST}",
                "-verbosity=0",
                folder,
            ],
            one,
        )
        atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main())
