"""A real terminal for a command: keys go in, and what appears on the screen comes out."""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time

# Takes the terminal as its own before the command starts, so that Ctrl-C is a key and not a signal of ours.
# Tests that run in the background of a shell inherit that interrupts are ignored, which no terminal does.
_TAKE = (
    "import fcntl, os, signal, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    "signal.signal(signal.SIGINT, signal.SIG_DFL); os.execvp(sys.argv[1], sys.argv[1:])"
)
_ESCAPE = re.compile(r"\x1b(\[[0-9;?]*[a-zA-Z]|\][^\x07]*\x07|[=>()][A-Z0-9]?)")
_PATIENCE = 300.0
INTERRUPT = "\x03"
TAB = "\t"
SHOW_CURSOR, HIDE_CURSOR = "\x1b[?25h", "\x1b[?25l"


class Terminal:
    """A pseudo-terminal with a command in it.

    Parameters
    ----------
    command : sequence of str
        The program and its arguments.
    columns, rows : int
        Size of the screen; the program asks the terminal for it, as it would a real one.
    environment : dict of str to str
        Variables besides those of this process.
    """

    def __init__(self, command, *, columns=100, rows=40, environment=None, folder=None):
        self.screen, inside = pty.openpty()
        fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        hidden = ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "CI", "GITHUB_ACTIONS", "TERM")
        variables = {name: value for name, value in os.environ.items() if name not in hidden}
        # Lines and bars are looked for as UTF-8 draws them, whatever the locale of the tests.
        variables.update({"TERM": "xterm-256color", "PYTHONUTF8": "1", **(environment or {})})
        self.process = subprocess.Popen(
            [sys.executable, "-c", _TAKE, *map(str, command)],
            stdin=inside, stdout=inside, stderr=inside, start_new_session=True, env=variables, cwd=folder,
        )  # fmt: skip
        os.close(inside)
        self.seen = ""
        self._bytes = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        os.close(self.screen)

    def type(self, keys):
        os.write(self.screen, keys.encode())

    def _read(self, seconds):
        """Take what has appeared; return False at the end of the program."""
        if not select.select([self.screen], [], [], seconds)[0]:
            return True
        try:
            data = os.read(self.screen, 65536)
        except OSError:  # Linux says so where the other side is closed
            return False
        self._bytes += data
        self.seen = self._bytes.decode("utf-8", errors="replace")
        return bool(data)

    def wait_for(self, text, after=0):
        """Read until the text has appeared (behind the first `after` characters)."""
        end = time.monotonic() + _PATIENCE
        while text not in self.seen[after:]:
            going = self._read(0.1)
            assert going or text in self.seen[after:], f"ended without {text!r}:\n{self.seen}"
            assert time.monotonic() < end, f"{text!r} did not appear:\n{self.seen}"

    def finish(self):
        """Read to the end and return the exit code."""
        end = time.monotonic() + _PATIENCE
        while self._read(0.1):
            assert time.monotonic() < end, f"did not end:\n{self.seen}"
        return self.process.wait(timeout=_PATIENCE)

    @property
    def text(self):
        """What was shown, without colours and movements of the cursor."""
        return _ESCAPE.sub("", self.seen).replace("\r\n", "\n")

    @property
    def lines(self):
        return self.text.split("\n")


def in_terminal(command, **options):
    """Run a command to its end; return its exit code and the terminal."""
    with Terminal(command, **options) as terminal:
        return terminal.finish(), terminal
