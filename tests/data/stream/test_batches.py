"""Chunks of Parquet files and of batches: every row once, the same numbers for everybody, plain refusals."""

import sys

import numpy as np
import pandas as pd
import pytest

from neuralsurv.data.stream import batches as stream
from neuralsurv.data.stream.batches import RowDigest, open_source
from neuralsurv.errors import InputError

TABLE = pd.DataFrame({"x": np.arange(50.0), "word": [f"w{k % 3}" for k in range(50)], "more": 1})


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(stream, "CHUNK_ROWS", 8)


@pytest.fixture
def folder(tmp_path):
    TABLE[:30].to_parquet(tmp_path / "a.parquet", row_group_size=12)
    (tmp_path / "inner").mkdir()
    TABLE[30:].to_parquet(tmp_path / "inner" / "b.parquet")
    return tmp_path


def everything(source, columns=None, mine=lambda number: True):
    return list(source.chunks(mine, columns))


def test_a_folder_of_parquet_gives_every_row_once_in_order(folder):
    chunks = everything(open_source(folder))
    assert [chunk.number for chunk in chunks] == list(range(8))
    assert [len(chunk.frame) for chunk in chunks] == [8, 4, 8, 4, 6, 8, 8, 4]
    joined = pd.concat([chunk.frame for chunk in chunks], ignore_index=True)
    pd.testing.assert_frame_equal(joined, TABLE)


def test_patterns_lists_and_single_files_name_the_same_rows(folder):
    whole = everything(open_source(folder))
    names = [str(folder / "a.parquet"), folder / "inner" / "b.parquet"]
    for given in (names, str(folder / "**" / "*.parquet")):
        assert [len(chunk.frame) for chunk in everything(open_source(given))] == [len(c.frame) for c in whole]
    assert sum(len(chunk.frame) for chunk in everything(open_source(names[0]))) == 30


def test_the_chunks_of_several_processes_are_those_of_one(folder):
    for data in (folder, [TABLE[:30], TABLE[30:]]):
        source = open_source(data)
        shared = [everything(source, mine=lambda number, who=who: number % 3 == who) for who in range(3)]
        numbers = sorted((c.number, c.frame["x"].tolist()) for part in shared for c in part)
        assert numbers == [(c.number, c.frame["x"].tolist()) for c in everything(source)]


def test_row_groups_of_others_are_not_read(folder, monkeypatch):
    from pyarrow.parquet import ParquetFile

    read = []
    plain = ParquetFile.iter_batches
    monkeypatch.setattr(
        ParquetFile, "iter_batches", lambda self, *a, **k: read.append(k["row_groups"]) or plain(self, *a, **k)
    )
    everything(open_source(folder / "a.parquet"), mine=lambda number: number == 2)
    assert read == [[1]]


def test_batches_may_be_frames_matrices_dictionaries_arrow_tables_or_a_function():
    import pyarrow

    plain = TABLE[["x"]]
    batches = [plain[:20], {"x": np.arange(20.0, 30)}, pyarrow.Table.from_pandas(plain[30:], preserve_index=False)]
    for data in (batches, lambda: iter(batches)):
        source = open_source(data)
        for _ in range(2):
            joined = pd.concat([chunk.frame for chunk in everything(source, ["x"])], ignore_index=True)
            pd.testing.assert_frame_equal(joined, plain)
    assert len(everything(open_source(TABLE))) == 7
    assert everything(open_source([np.ones((3, 2))]))[0].frame.columns.tolist() == ["x0", "x1"]


def test_only_the_columns_that_are_asked_for_are_read(folder):
    for data in (folder, [TABLE]):
        assert everything(open_source(data), ["word", "x"])[0].frame.columns.tolist() == ["word", "x"]
        with pytest.raises(InputError, match=r"there is no column 'age'; the columns are x, word, more"):
            everything(open_source(data), ["age"])
    assert open_source(folder).column_names() == ["x", "word", "more"]


def test_what_is_no_source_is_refused(tmp_path):
    with pytest.raises(InputError, match="there is no Parquet file"):
        open_source(tmp_path / "nothing.parquet")
    with pytest.raises(InputError, match="is a generator, which can be read only once"):
        open_source(frame for frame in [TABLE])
    with pytest.raises(InputError, match="data of type int is not understood"):
        open_source(3)
    broken = tmp_path / "broken.parquet"
    broken.write_bytes(b"no table")
    for reading in (everything, lambda source: source.column_names()):
        with pytest.raises(InputError, match=r"broken.parquet' cannot be read as Parquet"):
            reading(open_source(broken))


def test_a_damaged_file_is_read_or_refused_by_name(tmp_path):
    path = tmp_path / "cohort.parquet"
    TABLE.astype({"word": "category"}).to_parquet(path)
    whole = path.read_bytes()
    random = np.random.default_rng(0)
    refusals = []
    for _ in range(300):
        data = bytearray(whole)
        for place in random.integers(len(data), size=random.integers(1, 4)):
            data[place] = random.integers(256)
        path.write_bytes(data)
        try:
            open_source(path).column_names()
            everything(open_source(path))
        except InputError as error:
            refusals.append(str(error))
    assert 100 < len(refusals) < 300
    assert all(str(path) in words or "column" in words for words in refusals)


def test_without_pyarrow_the_extra_is_named(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(InputError, match=r"pip install 'neuralsurv\[stream\]'"):
        everything(open_source(folder))


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("rows.csv", r"pandas\.read_csv\('.*rows\.csv'\)\.to_parquet\('.*rows\.parquet'\)"),
        ("rows.CSV.gz", r"pandas\.read_csv\('.*rows\.CSV\.gz'\)\.to_parquet\('.*rows\.parquet'\)"),
        ("rows.tsv", r"pandas\.read_csv\('.*rows\.tsv', sep='\\t'\)\.to_parquet"),
        ("rows.txt", r"pandas\.read_csv\('.*rows\.txt', sep=None, engine='python'\)\.to_parquet"),
        ("rows.xlsx", r"pandas\.read_excel\('.*rows\.xlsx'\)\.to_parquet"),
    ],
)
def test_other_tables_are_refused_with_the_line_that_converts_them(tmp_path, name, line):
    (tmp_path / name).write_text("x,time\n1,2\n", encoding="utf-8")
    message = (
        rf"rows\..*' is not Parquet, which fit_stream reads; convert it once with {line}.*, or read it and use fit\."
    )
    for given in (tmp_path / name, [str(tmp_path / name)], str(tmp_path / "rows*")):
        with pytest.raises(InputError, match=message):
            open_source(given)


def test_parquet_under_another_name_is_read(tmp_path):
    TABLE.to_parquet(tmp_path / "rows.csv")
    assert sum(len(chunk.frame) for chunk in everything(open_source(tmp_path / "rows.csv"))) == len(TABLE)


DIGESTED = pd.DataFrame({"a": [1.0, 2.0, np.nan, 2.0], "b": ["x", "y", None, "y"], "c": pd.Categorical(list("pqpq"))})


def test_parts_add_up_to_the_whole_in_any_order():
    whole = RowDigest.of(DIGESTED, 0)
    parts = [
        RowDigest.of(DIGESTED[:1], 0),
        RowDigest.of(DIGESTED[1:3], 1),
        RowDigest.of(DIGESTED[3:], 3),
        RowDigest.of(DIGESTED[:0], 4),
    ]
    assert sum(parts, RowDigest()) == sum(parts[::-1], RowDigest()) == whole
    assert whole.rows == 4


def test_other_places_are_another_order_of_the_same_rows():
    one, other = RowDigest.of(DIGESTED, 0), RowDigest.of(DIGESTED.iloc[[1, 0, 2, 3]], 0)
    assert (one.rows, one.content) == (other.rows, other.content)
    assert one.order != other.order
    one.check_same(other, "second")


@pytest.mark.parametrize("row", range(4))
@pytest.mark.parametrize("column", DIGESTED.columns)
def test_any_value_that_changes_is_seen(row, column):
    changed = DIGESTED.astype(object)
    changed.loc[row, column] = {"a": 2.5, "b": "z", "c": "r"}[column]
    changed = changed.astype({"a": float, "c": "category"})
    assert RowDigest.of(changed, 0).content != RowDigest.of(DIGESTED, 0).content


def test_a_row_that_takes_the_place_of_another_is_seen():
    with pytest.raises(InputError, match="4 in the first pass, other values in the third"):
        RowDigest.of(DIGESTED, 0).check_same(RowDigest.of(DIGESTED.iloc[[0, 0, 2, 3]], 0), "third")
    with pytest.raises(InputError, match=r"4 in the first pass, 3 in the second\. Give files that do not change"):
        RowDigest.of(DIGESTED, 0).check_same(RowDigest.of(DIGESTED[:3], 0), "second")


def test_cells_that_cannot_be_hashed_are_counted():
    lists = pd.DataFrame({"a": [[1], [2]]})
    assert RowDigest.of(lists, 0).rows == 2
    assert RowDigest.of(lists, 0) != RowDigest.of(lists[::-1], 0)
