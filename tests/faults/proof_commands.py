"""The commands of `benchmarks/proof`, which are not a package, as modules."""

import importlib
import sys
from pathlib import Path
from types import ModuleType

FOLDER = Path(__file__).parents[2] / "benchmarks" / "proof"


def command(name: str) -> ModuleType:
    """Return a module of that folder."""
    sys.path.insert(0, str(FOLDER))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(FOLDER))
