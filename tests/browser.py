"""A real Chromium, driven through its debugging pipe: real keys, real sizes, its own tree for screen readers.

Needs Chromium (Debian: chromium) and nothing else.
"""

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
FLAGS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage",
         "--no-first-run", "--disable-background-networking", "--remote-debugging-pipe"]  # fmt: skip
# Chromium reads commands from descriptor 3 and writes answers to 4; the pipe's own ends may have these numbers.
START = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(end), fcntl.F_DUPFD, 10) for end in sys.argv[1:3]]
os.dup2(ends[0], 3), os.dup2(ends[1], 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
KEYS = {"Tab": 9, "Enter": 13, "Escape": 27, " ": 32, "PageUp": 33, "PageDown": 34, "End": 35, "Home": 36,
        "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}  # fmt: skip


def at_home_in(folder: str) -> dict[str, str]:
    """Return the variables under which Chromium writes into a folder only: not every home can be written."""
    places = ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "TMPDIR")
    return {**os.environ, **dict.fromkeys(places, folder)}


class Browser:
    """One page in one browser."""

    def __init__(self) -> None:
        assert CHROMIUM is not None, "Chromium is not installed, and continuous integration needs it"
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        to_browser, self._out = os.pipe()
        self._in, from_browser = os.pipe()
        ends = [str(to_browser), str(from_browser)]
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", START, *ends, CHROMIUM, *FLAGS, f"--user-data-dir={self._folder.name}"],
            pass_fds=(to_browser, from_browser),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=at_home_in(self._folder.name),
        )
        os.close(to_browser)
        os.close(from_browser)
        self._buffer = b""
        self._number = 0
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for part in ("Page", "Runtime", "Log", "Network", "Accessibility"):
            self.call(f"{part}.enable")

    def __enter__(self) -> "Browser":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(20)
        os.close(self._out)
        os.close(self._in)
        self._folder.cleanup()

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and return its result; what else comes meanwhile is kept in `events`."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + 60
        while True:
            found = self._receive(end)
            if found.get("id") == self._number:
                assert "error" not in found, (method, found["error"])
                return found["result"]
            self.events.append(found)

    def _receive(self, end: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._in], [], [], max(0.0, end - time.monotonic()))
            assert ready, "Chromium does not answer"
            data = os.read(self._in, 2**20)
            assert data, "Chromium has ended"
            self._buffer += data
        text, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(text)

    def size(self, width: int, height: int, *, dark: bool = False, phone: bool = False) -> None:
        """Set the size of the window, and light or dark."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", features=features)

    def open(self, address: str, ready: str) -> None:
        """Open a page and wait until an expression is true."""
        self.call("Page.navigate", url=address)
        self.wait(ready)

    def run(self, expression: str) -> Any:
        """Return the value of an expression in the page."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def wait(self, expression: str, seconds: float = 30.0) -> None:
        """Wait until an expression is true."""
        end = time.monotonic() + seconds
        while True:
            # An expression may fail while a page is being loaded.
            if self.run(f"(() => {{ try {{ return !!({expression}); }} catch (error) {{ return false; }} }})()"):
                return
            assert time.monotonic() < end, f"in vain: {expression}"
            time.sleep(0.03)

    def press(self, key: str, *, shift: bool = False) -> None:
        """Press a key as a person does."""
        code = {"key": key, "windowsVirtualKeyCode": KEYS.get(key, ord(key[0].upper()))}
        text = {"text": "\r" if key == "Enter" else key} if len(key) == 1 or key == "Enter" else {}
        shared = {**code, "modifiers": 8 if shift else 0}
        self.call("Input.dispatchKeyEvent", type="keyDown", **shared, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", **shared)

    def type(self, text: str) -> None:
        """Put text where the focus is, in place of what is there."""
        self.run("document.activeElement.select?.()")
        self.call("Input.insertText", text=text)

    def picture(self, path: Path, *, whole: bool = False) -> None:
        """Write a picture of the window, or of the whole page."""
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        path.write_bytes(base64.b64decode(data))

    def spoken_tree(self) -> list[tuple[str, str]]:
        """Return role and name of everything that a screen reader meets, in order."""
        nodes = self.call("Accessibility.getFullAXTree")["nodes"]
        return [
            (node["role"]["value"], node.get("name", {}).get("value", "")) for node in nodes if not node.get("ignored")
        ]

    def complaints(self) -> list[str]:
        """Return errors of scripts and whatever the browser logged as an error."""
        self.run("0")
        said = []
        for event in self.events:
            method, content = event.get("method"), event.get("params", {})
            if method == "Runtime.exceptionThrown":
                said.append(str(content["exceptionDetails"]))
            if method == "Log.entryAdded" and content["entry"]["level"] == "error":
                said.append(content["entry"]["text"])
        return said

    def requested(self) -> list[str]:
        """Return the addresses that the page has asked for."""
        return [
            event["params"]["request"]["url"]
            for event in self.events
            if event.get("method") == "Network.requestWillBeSent"
        ]
