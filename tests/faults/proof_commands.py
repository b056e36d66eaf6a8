"""The commands of `benchmarks/proof`, which are not a package, as modules."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

FOLDER = Path(__file__).parents[2] / "benchmarks" / "proof"


def command(name: str) -> ModuleType:
    """Return a module of that folder; under another name, for one of them is called as this folder is."""
    spec = importlib.util.spec_from_file_location(f"proof_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(FOLDER))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(FOLDER))
    return module
