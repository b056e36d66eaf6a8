"""Runs the code blocks of a Markdown page, in order and in the folder of the page.

Python blocks share one namespace. Of shell blocks the lines that call ``neuralsurv`` are run, in this process, with the
folder ``docs/data`` or the root of the repository as their own; other lines (pip, make) are for the reader.
"""

import os
import re
import shlex
import sys
from contextlib import contextmanager
from pathlib import Path


def fenced(page: Path, language: str) -> list[str]:
    """Return the blocks of one language."""
    pattern = rf"^```{language}\n(.*?)^```"
    return re.findall(pattern, page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def blocks(page: Path) -> list[str]:
    """Return the Python blocks."""
    return fenced(page, "python")


def shell_lines(page: Path) -> list[list[str]]:
    """Return the words of every command of the shell blocks, without comments; a quoted text may go over lines."""
    commands, begun = [], ""
    for line in "".join(fenced(page, "sh")).replace("\\\n", " ").splitlines():
        begun += line + "\n"
        try:
            words = shlex.split(begun, comments=True)
        except ValueError:  # a quotation that is not closed yet
            continue
        if words:
            commands.append(words)
        begun = ""
    assert not begun, f"{page.name}: a quotation is never closed"
    return commands


@contextmanager
def inside(folder: Path):
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def run(page: Path) -> None:
    """Run the Python blocks."""
    import matplotlib

    matplotlib.use("Agg")
    with inside(page.parent):
        namespace: dict[str, object] = {}
        for number, block in enumerate(blocks(page), 1):
            exec(compile(block, f"{page.name}, block {number}", "exec"), namespace)


if __name__ == "__main__":
    run(Path(sys.argv[1]).resolve())
