"""Files that a command writes: never over another by accident, and never half."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from neuralsurv.errors import InputError
from neuralsurv.partial_files import partial_file, put_in_place


def check_new(path: Path, *, force: bool, inputs: tuple[Path | None, ...] = ()) -> Path:
    """Refuse, before any work is done, a place where a file cannot or must not be written.

    Parameters
    ----------
    path : Path
        Where to write.
    force : bool
        Whether a file that is there may be replaced.
    inputs : tuple of Path
        Files that are read and must never be replaced.
    """
    if path.is_dir():
        raise InputError(f"{str(path)!r} is a folder; name a file in it.")
    if not path.parent.is_dir():
        raise InputError(f"the folder {str(path.parent)!r} does not exist; make it first.")
    for source in inputs:
        if source is not None and path.exists() and source.exists() and path.samefile(source):
            raise InputError(f"{str(path)!r} is also read by this command; write to another file.")
    if path.exists() and not force:
        raise InputError(f"{str(path)!r} exists already; choose another name, or add --force to replace it.")
    if not os.access(path.parent, os.W_OK):
        raise InputError(f"the folder {str(path.parent)!r} cannot be written to; choose another one.")
    return path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a temporary file beside `path` to write to, and move it there at the end if nothing went wrong."""
    try:
        with partial_file(path.parent) as (temporary, file):
            yield temporary
            put_in_place(temporary, file, path)
    except OSError as error:
        raise InputError(f"{str(path)!r} could not be written, and is as it was: {error}.") from error


def write_text(path: Path, text: str) -> None:
    """Write a text file in UTF-8, whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def file_size(path: Path) -> str:
    """Return the size of a file in words."""
    size = path.stat().st_size
    return f"{size} bytes" if size < 1000 else f"{size / 1e3:.0f} kB" if size < 1e6 else f"{size / 1e6:.1f} MB"
