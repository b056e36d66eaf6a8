"""The service as a user starts it: a process of its own, perhaps with something changed in it before it starts."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path

START = "from neuralsurv.cli.start import main; main()"


@contextmanager
def running(*arguments, first="", files=None, **environment):
    """Start a command, and give the process and what it says about itself; its log is in `process.log`.

    `first` is Python that runs before it, and `files` the number of files that it may have open.
    """
    if files is not None:
        # In the new process itself: a preexec_fn would fork this one, which may hold threads of other libraries.
        first = f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({files}, {files}))\n{first}"
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        with log.open("w", encoding="utf-8") as stderr:
            process = subprocess.Popen(
                [sys.executable, "-c", f"{first}\n{START}", *map(str, arguments), "--json"],
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                env={**os.environ, **environment},
            )
        process.log = log
        try:
            line = process.stdout.readline()
            assert line, log.read_text(encoding="utf-8")
            yield process, json.loads(line)
        finally:
            process.kill()
            process.communicate(timeout=60)


def stop(process, number=signal.SIGTERM):
    """Tell a process to stop, wait for it, and return what it had left to say."""
    process.send_signal(number)
    out, _ = process.communicate(timeout=60)
    return out, process.log.read_text()


def call(address, body=None, **headers):
    """Return the answer to a request, as JSON; a body of bytes is sent as it is."""
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(address, data, {"Content-Type": "application/json", **headers})
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.loads(answer.read())


def outcome(address, body=None, **headers):
    """Return status, content type and content of an answer, whatever its status."""
    try:
        return 200, "application/json", call(address, body, **headers)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers["content-type"], json.loads(error.read())
