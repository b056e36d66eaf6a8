import builtins
import gzip

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from neuralsurv.cli.tables import table_input
from neuralsurv.cli.tables.table_input import guess_separator, read_table, shown_separator, table_kind
from neuralsurv.errors import InputError


def file(folder, name, content):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
    return path


def test_csv(tmp_path):
    path = file(tmp_path, "a.csv", '\ufeff age, arm ,"note"\n1.5, a,"x, y"\n,NA,z\n')
    frame = read_table(path)
    assert list(frame.columns) == ["age", "arm", "note"]
    assert frame["age"].isna().tolist() == [False, True]
    assert frame["arm"].isna().tolist() == [False, True]
    assert frame.loc[0].tolist() == [1.5, "a", "x, y"]


def test_none_is_a_category_and_further_missing_values_can_be_named(tmp_path):
    path = file(tmp_path, "a.csv", "drug,dose\nNone,1\nA,?\nB,.\n")
    assert read_table(path)["drug"].tolist() == ["None", "A", "B"]
    assert read_table(path, missing=["?", "."])["dose"].isna().tolist() == [False, True, True]


def test_separator_decimal_encoding_and_text_columns(tmp_path):
    path = file(tmp_path, "a.csv", "größe;plz\n1,5;01067\n2,5;10115\n".encode("latin-1"))
    frame = read_table(path, separator=";", decimal=",", encoding="latin-1", text_columns=["plz", "elsewhere"])
    assert frame["größe"].tolist() == [1.5, 2.5]
    assert frame["plz"].tolist() == ["01067", "10115"]


def test_header_over_two_lines_and_blank_lines(tmp_path):
    path = file(tmp_path, "a.csv", '\n"time\n(days)",event\n\n3,1\n')
    frame = read_table(path)
    assert list(frame.columns) == ["time\n(days)", "event"]
    assert frame.iloc[0].tolist() == [3, 1]


def test_a_column_without_a_name_gets_one(tmp_path):
    assert list(read_table(file(tmp_path, "a.csv", ",b\n1,2\n")).columns) == ["column 1", "b"]


def test_index_of_parquet_becomes_a_column_if_it_has_a_name(tmp_path):
    frame = pd.DataFrame({"age": [1, 2]}, index=pd.Index(["p", "q"], name="who"))
    frame.to_parquet(tmp_path / "a.parquet")
    assert list(read_table(tmp_path / "a.parquet").columns) == ["who", "age"]
    frame.rename_axis(None).to_parquet(tmp_path / "b.parquet")
    assert list(read_table(tmp_path / "b.parquet").columns) == ["age"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.doc", "x", "the kind of 'a.doc' is not known by its name; use .csv"),
        (
            "a.xlsx",
            "x",
            r"a.xlsx is an Excel file, which is not read; save it as CSV, or .* python -c \"import pandas; "
            r"pandas.read_excel\('.*a.xlsx'\).to_csv\('.*a.csv', index=False\)\"\.",
        ),
        ("a.csv", b"PK\x03\x04zip", r"a.csv is an Excel file, .*\.to_csv\('.*a-converted.csv', index=False\)"),
        ("a.dta", "x", r"a.dta is a Stata file, .* pandas: .*pandas.read_stata\("),
        ("a.csv", "", "a.csv is empty."),
        ("a.csv", "a,b\n", "a.csv has a header but no rows."),
        ("a.csv", "a,b,a\n1,2,3\n", "a.csv has more than one column 'a'"),
        ("a.csv", "a,b\n1,2,3\n4,5,6\n", "some rows have more cells than the header; if R wrote it, use"),
        ("a.csv", "a,b\n1,2\n1,2,3\n", "a.csv cannot be read as a table: Expected 2 fields in line 3, saw 3."),
        ("a.csv", b"a,b\n\xe4,1\n", r"a.csv is not UTF-8 text \(byte 4\); say how .* --encoding latin-1."),
        ("a.csv", b"a,b\n\x00,1\n", "a.csv is not a text file: it holds zero bytes."),
        ("a.csv", "a;b\n1;2;3\n", r"seem to be separated by ';', but rows differ .* or add --separator ';'"),
        ("a.csv", "a\tb\n1\n", r"seem to be separated by '\\t', but rows differ in their number of cells"),
        ("a.csv", "a b\n1 2\n", "one column, 'a b'; if its cells are separated by spaces, add --separator ' ', and"),
        ("a.csv", 'a b\n"1" 2 3\n', "if its cells are separated by spaces, add --separator ' '"),
        ("a.csv", "a,b\n1,2\n".encode("utf-16"), r"a.csv is not UTF-8 text \(byte 0\); .* --encoding utf-16."),
        ("a.csv.gz", "a,b\n1,2\n", "a.csv.gz is not a complete gzip file"),
        ("a.csv.gz", gzip.compress(b"a,b\n1,2\n", mtime=0)[:-6], "a.csv.gz is not a complete gzip file"),
        ("a.parquet", "a,b\n1,2\n", "a.parquet cannot be read as parquet: "),
        ("a.feather", "a,b\n1,2\n", "a.feather cannot be read as feather: "),
    ],
)
def test_what_cannot_be_read(tmp_path, name, content, message):
    with pytest.raises(InputError, match=message) as caught:
        read_table(file(tmp_path, name, content))
    assert "\n" not in str(caught.value)


def test_spaces_within_one_column_and_between_columns(tmp_path):
    path = file(tmp_path, "a.csv", "age group\nunder 60\n")
    assert list(read_table(path, separator=",")["age group"]) == ["under 60"]
    assert list(read_table(path, separator=" ").columns) == ["age", "group"]
    assert list(read_table(file(tmp_path, "b.csv", "age group\nyoung\n"))["age group"]) == ["young"]


def test_no_such_file_and_a_folder(tmp_path):
    with pytest.raises(InputError, match=r"there is no file '.*nothing\.csv'\."):
        read_table(tmp_path / "nothing.csv")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(InputError, match="cannot be read: Is a directory"):
        read_table(tmp_path / "folder.csv")


def test_unknown_encoding_and_bad_separator(tmp_path):
    path = file(tmp_path, "a.csv", "a,b\n1,2\n")
    with pytest.raises(InputError, match="--encoding 'klingon' is not known; use for example utf-8"):
        read_table(path, encoding="klingon")
    with pytest.raises(InputError, match=r"a.csv cannot be read as a table: "):
        read_table(path, decimal="::")


def test_repeated_names_of_a_parquet_file(tmp_path):
    pd.DataFrame({"a": [1], "a ": [2]}).to_parquet(tmp_path / "a.parquet")
    with pytest.raises(InputError, match=r"a.parquet has more than one column 'a'"):
        read_table(tmp_path / "a.parquet")


def test_parquet_whose_description_of_columns_is_damaged(tmp_path):
    damaged = pa.table({"a": [1, 2]}).replace_schema_metadata({"pandas": "{}"})
    pq.write_table(damaged, tmp_path / "a.parquet")
    with pytest.raises(InputError, match=r"a\.parquet cannot be read as parquet: '(index_)?columns'"):
        read_table(tmp_path / "a.parquet")


def test_parquet_without_pyarrow(tmp_path, monkeypatch):
    real = builtins.__import__

    def without(name, *rest):
        if name == "pyarrow":
            raise ImportError(name)
        return real(name, *rest)

    path = file(tmp_path, "a.parquet", "x")
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(InputError, match=r"reading a.parquet needs pyarrow: pip install 'neuralsurv\[cli\]'"):
        read_table(path)


def test_kinds(tmp_path):
    assert table_kind(tmp_path / "A.CSV.GZ") == ("csv", True)
    assert table_kind(tmp_path / "a.pq") == ("parquet", False)


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
    monkeypatch.setattr(table_input, "_HEAD", 10)
    assert guess_separator("a;b;c\n1;2;3\n4;5;6\n", ",") == ";"


def test_a_tab_is_typed_as_backslash_t(tmp_path):
    assert list(read_table(file(tmp_path, "a.csv", "a,b\tc\n1,2\t3\n"), separator="\\t").columns) == ["a,b", "c"]
    assert (shown_separator("\t"), shown_separator(";")) == ("'\\t'", "';'")
