"""The page on trust has the figures of the stored studies."""

import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "benchmarks" / "proof"


def test_the_page_has_the_stored_figures():
    done = subprocess.run(
        [sys.executable, str(FOLDER / "trust.py"), "--check"], capture_output=True, text=True, encoding="utf-8"
    )
    assert done.returncode == 0, done.stderr or "run benchmarks/proof/trust.py"
