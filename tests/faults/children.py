"""Work in a child process: forked, so that it starts at once, and free to be limited, killed or to kill itself.

Only where there is ``fork``. The child never returns into the test: what it has to say comes back through a pipe.
"""

import os
import pickle
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Any

import pytest

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork a process")


class Child:
    """A running child process."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._read, write = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._read)
            code = 1
            try:
                found = work()
                with os.fdopen(write, "wb") as out:
                    pickle.dump(found, out)
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(code)
        os.close(write)

    def kill(self) -> None:
        """End it at once; it cannot do anything about that."""
        os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> tuple[int, Any]:
        """Return its exit status (minus the signal, if one ended it) and what it returned, None if it did not."""
        with os.fdopen(self._read, "rb") as source:
            data = source.read()
        status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return status, pickle.loads(data) if data and status == 0 else None


def in_child(work: Callable[[], Any]) -> Any:
    """Return what `work` returns in a child process, which must end well."""
    status, found = Child(work).wait()
    assert status == 0
    return found
