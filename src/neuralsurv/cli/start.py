"""The entry point of ``neuralsurv``. typer is an extra; without it the command says what to install."""

from __future__ import annotations

import io
import os
import signal
import sys
from types import FrameType
from typing import NoReturn

# Exit codes, the same for every command; 0 is success.
UNEXPECTED = 1
BAD_INPUT = 2
INTERRUPTED = 130


_interrupts = 0


def interrupted() -> bool:
    """Return whether the user has pressed Ctrl-C, also where Python lost the exception (inside a destructor, say)."""
    return _interrupts > 0


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    global _interrupts
    _interrupts += 1
    raise KeyboardInterrupt


def main() -> None:
    """Run the command line and end the process with its exit code."""
    # A shell starts work in the background with interrupts ignored, and means it.
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, _interrupt)
    # A terminal or a pipe may be unable to show some letters; that must not end a command, least of all a long one.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        import typer  # noqa: F401
    except ImportError:
        sys.stderr.write("error: the command line needs typer: pip install 'neuralsurv[cli]'.\n")
        raise SystemExit(BAD_INPUT) from None
    try:
        from neuralsurv.cli.command_line import app

        app(prog_name="neuralsurv")
    except KeyboardInterrupt:
        # The commands say this themselves; here it came before one began, or while the last was put away.
        sys.stderr.write("error: interrupted; nothing was written.\n")
    except SystemExit as end:
        if end.code != INTERRUPTED:
            raise
    else:
        return
    # Python may remember an interrupt that came inside `exec` and end by the signal in place of this code.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(INTERRUPTED)
