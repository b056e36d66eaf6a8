"""Faults at a chosen call: whatever a write asks of the system, call number k of it fails."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from neuralsurv.files import atomic as partial_files


class Fault:
    """Counts the calls and does something at one of them."""

    def __init__(self, number: int, strike: Callable[[], None]) -> None:
        self.number = number
        self.strike = strike
        self.names: list[str] = []

    def __call__(self, name: str) -> None:
        self.names.append(name)
        if len(self.names) == self.number:
            self.strike()

    @property
    def struck(self) -> bool:
        return len(self.names) >= self.number


class FaultyFile:
    """A file whose calls are counted; a write that fails has written half before."""

    def __init__(self, file: Any, fault: Fault) -> None:
        self._file = file
        self._fault = fault

    def write(self, data: bytes) -> int:
        self._file.write(data[: len(data) // 2])
        self._file.flush()
        self._fault("write")
        return len(data[: len(data) // 2]) + int(self._file.write(data[len(data) // 2 :]))

    def flush(self) -> None:
        self._fault("flush")
        self._file.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> "FaultyFile":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


@contextmanager
def faulty_writes(fault: Fault) -> Iterator[None]:
    """Count every call that a write makes to the system, but those that take a partial file away again."""
    with pytest.MonkeyPatch.context() as patch:

        def counted(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
            def wrapped(*arguments: Any, **named: Any) -> Any:
                fault(name)
                return call(*arguments, **named)

            return wrapped

        def opened(path: Any, mode: str) -> Any:
            fault("open")
            return FaultyFile(open(path, mode), fault)

        patch.setattr(partial_files, "open", opened, raising=False)
        for name in ("fsync", "replace", "listdir", "fstat", "open"):
            patch.setattr(partial_files.os, name, counted(f"os.{name}", getattr(os, name)))
        patch.setattr(partial_files.fcntl, "flock", counted("flock", partial_files.fcntl.flock))
        yield
