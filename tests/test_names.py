"""Names fit for a terminal, and counts in words; names that are looked up are tested where they are used."""

import pytest

from neuralsurv.names import counted, printable


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


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ((0, "row"), "0 rows"),
        ((1, "row"), "1 row"),
        ((1.0, "second"), "1 second"),
        ((2, "person", "people"), "2 people"),
    ],
)
def test_counts_of_one_are_in_the_singular(given, shown):
    assert counted(*given, form="g") == shown
