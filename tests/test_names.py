"""Names fit for a terminal; those that are looked up are tested where they are used."""

import pytest

from neuralsurv.names import printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("größe µ 性=男", "größe µ 性=男"),
        ("\x1b]0;title\x07", r"\x1b]0;title\x07"),
        ("\x9b31m", r"\x9b31m"),
        ("a\r\nb\tc\x7f", r"a\r\nb\tc\x7f"),
        ("\u202etxt.exe\u2066", r"\u202etxt.exe\u2066"),
        ("\u2028", r"\u2028"),
    ],
)
def test_control_characters_are_shown_and_do_nothing(text, shown):
    assert printable(text) == shown


def test_what_is_kept():
    assert printable("a\nb\t\x1b", keep="\n\t") == "a\nb\t\\x1b"
