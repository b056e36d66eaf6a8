import pytest

from neuralsurv.cli.tables import separators
from neuralsurv.cli.tables.separators import guess_separator, shown_separator, typed_separator


@pytest.mark.parametrize(
    ("text", "separator"),
    [
        ("a,b\n1,2\n", ","),
        ("a;b\n1,5;2\n", ";"),
        ("a;b\r\n1,5;2,5\r\n", ";"),
        ("a\tb\n1\t2\n", "\t"),
        ("a|b\n1|2\n", "|"),
        ("a\n1\n", ","),
        ("", ","),
        # A comma in a name or in a quoted cell does not count, nor does a decimal comma.
        ('"a, b";c\n1;2\n', ";"),
        ('a,b\n"x;y;z",2\n', ","),
        ("a,b;c\n1;2\n", ";"),
        # Rows of different lengths are no sign of a separator.
        ("a;b;c\n1;2\n", ","),
        ('a;b\n"two\nlines";2\n', ";"),
    ],
)
def test_guess(text, separator):
    assert guess_separator(text, ",") == separator


def test_the_usual_one_of_the_kind_wins_where_both_would_do():
    assert guess_separator("a,b\tc\n1,2\t3\n", "\t") == "\t"
    assert guess_separator("a,b\tc\n1,2\t3\n", ",") == ","
    assert guess_separator("a,b\n1,2\n", "\t") == ","


def test_a_row_that_the_view_has_cut_does_not_count(monkeypatch):
    monkeypatch.setattr(separators, "_HEAD", 10)
    assert guess_separator("a;b;c\n1;2;3\n4;5;6\n", ",") == ";"


def test_a_tab_is_typed_as_backslash_t():
    assert (typed_separator("\\t"), shown_separator("\t"), shown_separator(";")) == ("\t", "'\\t'", "';'")
