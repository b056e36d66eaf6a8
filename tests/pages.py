"""Runs the Python blocks of a Markdown page, in order and in one namespace, in the folder of the page."""

import os
import re
import sys
from pathlib import Path


def blocks(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def run(page: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    before = Path.cwd()
    os.chdir(page.parent)
    try:
        namespace: dict[str, object] = {}
        for number, block in enumerate(blocks(page), 1):
            exec(compile(block, f"{page.name}, block {number}", "exec"), namespace)
    finally:
        os.chdir(before)


if __name__ == "__main__":
    run(Path(sys.argv[1]).resolve())
