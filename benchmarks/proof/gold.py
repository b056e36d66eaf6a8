"""Gold posteriors: how far the variational posterior is from the exact one on six small problems, and why.

    python benchmarks/proof/gold.py run                        everything that is not stored yet
    python benchmarks/proof/gold.py run --problem rho --draws 400 --store /tmp/trial    a quick trial
    python benchmarks/proof/gold.py table                      docs/proof/gold.md from what is stored

Three posteriors of each problem are compared: the variational one (CAVI), the exact one of the same linearised model
(Gibbs), and the exact one of the network itself (NUTS). The first two differ by the form of the approximation (and the
preset's quadrature rule), the last two by the linearisation. Each stage is a file of its own in `gold/`, written whole
or not at all, so that a run that was stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

# Before torch is imported, which reads this only once.
for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

FOLDER = Path(__file__).resolve().parent
STORE = FOLDER / "gold"
PAGE = FOLDER.parents[1] / "docs" / "proof" / "gold.md"

from gold_problems import PROBLEMS  # noqa: E402
from gold_stages import Chains, run_check, run_linear, run_network  # noqa: E402
from gold_tables import page  # noqa: E402

# The scripts of this folder must not stand in for packages of the same name that others import.
sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != FOLDER]

PRESETS = ("paper", "default")
STAGES = {"check": run_check, "linear": run_linear, "network": run_network}
GOLD_DRAWS = 10_000


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="sample what is not stored yet")
    run.add_argument("--problem", nargs="+", choices=sorted(PROBLEMS), default=list(PROBLEMS))
    run.add_argument("--preset", nargs="+", choices=PRESETS, default=list(PRESETS))
    run.add_argument("--stage", nargs="+", choices=STAGES, default=list(STAGES))
    run.add_argument("--draws", type=int, default=GOLD_DRAWS, help="draws kept of all chains together")
    run.add_argument("--store", type=Path, default=STORE)
    table = commands.add_parser("table", help="write the page of the documentation")
    table.add_argument("--store", type=Path, default=STORE)
    table.add_argument("--page", type=Path, default=PAGE)
    given = parser.parse_args(arguments)
    if given.command == "table":
        given.page.parent.mkdir(parents=True, exist_ok=True)
        given.page.write_text(page(given.store, PRESETS), encoding="utf-8")
        print(f"wrote {given.page}")
        return
    if given.draws < GOLD_DRAWS and given.store == STORE:
        parser.error(f"fewer than {GOLD_DRAWS} draws are a trial; give it a --store of its own.")
    given.store.mkdir(parents=True, exist_ok=True)
    for stage in given.stage:
        for problem in given.problem:
            for preset in given.preset:
                file = given.store / f"{problem}-{preset}-{stage}.npz"
                if file.exists():
                    print(f"{file.name}: stored already", flush=True)
                    continue
                chains = Chains(given.draws, preset)
                print(f"{file.name}: " + STAGES[stage](PROBLEMS[problem](), preset, chains, file), flush=True)


if __name__ == "__main__":
    main()
