"""Choices that are read off a string of bytes, one after the other.

A case is a string of bytes that hypothesis makes and shrinks, which costs a tenth of one draw for each choice, so that
making a case is not dearer than running it. Bytes that are missing count as zero, and every list of options has its
plainest one first: so the shortest string of the smallest bytes is the plainest case.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, TypeVar

Option = TypeVar("Option")


class ByteChoices:
    """Choices off a string of bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._place = 0

    def below(self, count: int) -> int:
        """Return a whole number from 0 to count − 1."""
        self._place += 1
        byte = self._data[self._place - 1] if self._place <= len(self._data) else 0
        return byte % count

    def one(self, options: Sequence[Option]) -> Option:
        """Return one of the options."""
        return options[self.below(len(options))]

    def rarely(self, count: int) -> bool:
        """Return whether the case of one in `count` occurs."""
        return self.below(count) == count - 1

    def cells(self, rows: int, pool: Sequence[Any]) -> list[Any]:
        """Return one of the options for every row."""
        return [self.one(pool) for _ in range(rows)]

    def number(self) -> float:
        """Return any finite number, from its eight bytes."""
        (value,) = struct.unpack("<d", bytes(self.below(256) for _ in range(8)))
        return value if value - value == 0 else 0.0

    def text(self, most: int) -> str:
        """Return a short text of any characters, also of halves of pairs that no text should hold."""
        return "".join(chr(self.below(256) * (1 if self.below(2) else 257)) for _ in range(self.below(most + 1)))
