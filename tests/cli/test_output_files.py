import io
import os
from contextlib import contextmanager
from pathlib import Path

import pandas as pd
import pytest

from neuralsurv.cli import output_files
from neuralsurv.cli.output_files import (
    check_new,
    csv_text,
    file_size,
    replacing,
    reserved,
    write_table,
    write_text,
)
from neuralsurv.cli.tables.table_input import read_table
from neuralsurv.errors import InputError


def test_a_crash_leaves_the_old_file(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old", encoding="utf-8")

    def crash():
        with replacing(path, force=True) as temporary:
            temporary.write_text("half", encoding="utf-8")
            raise KeyError("crash")

    with pytest.raises(KeyError, match="crash"):
        crash()
    assert path.read_text(encoding="utf-8") == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_is_one_sentence(tmp_path):
    path = tmp_path / "a.txt"

    def full():
        with replacing(path, force=True):
            raise OSError(28, "No space left on device")

    with pytest.raises(InputError, match=r"could not be written, and is as it was: .*No space left"):
        full()


def test_write_text(tmp_path):
    write_text(tmp_path / "a.txt", "ä", force=False)
    assert (tmp_path / "a.txt").read_bytes() == "ä".encode()


def test_places_that_are_refused(tmp_path):
    there = tmp_path / "a.csv"
    there.write_text("x", encoding="utf-8")
    link = tmp_path / "link.csv"
    link.symlink_to(there)
    with pytest.raises(InputError, match="is a folder; name a file in it"):
        check_new(tmp_path, force=True)
    with pytest.raises(InputError, match=r"the folder .* does not exist; make it first"):
        check_new(tmp_path / "no" / "a.csv", force=True)
    with pytest.raises(InputError, match="exists already; choose another name, or add --force"):
        check_new(there, force=False)
    with pytest.raises(InputError, match="is also read by this command; write to another file"):
        check_new(link, force=True, inputs=(there, None))
    assert check_new(there, force=True, inputs=(tmp_path / "other.csv",)) == there


def test_a_pipe_and_a_device_are_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")
    for path, word in ((tmp_path / "pipe.csv", "pipe"), (Path("/dev/null"), "device")):
        with pytest.raises(InputError, match=rf"is a {word}, which is never replaced by a file; name a file"):
            check_new(path, force=True)


def test_a_link_to_a_folder_that_is_not_there(tmp_path):
    (tmp_path / "a.csv").symlink_to(tmp_path / "nowhere" / "a.csv")
    with pytest.raises(InputError, match=r"the folder '.*nowhere' does not exist; make it first"):
        check_new(tmp_path / "a.csv", force=True)


def test_one_command_at_a_time(tmp_path):
    path = tmp_path / "a.csv"
    (tmp_path / "link.csv").symlink_to(path)
    with reserved(path, force=False), reserved(None, force=False):
        for name in ("a.csv", "link.csv"):
            for force in (False, True):
                with (
                    pytest.raises(InputError, match=r"is being written by another command, or named twice; choose"),
                    reserved(tmp_path / name, force=force),
                ):
                    pass
    with reserved(path, force=False):
        assert not path.exists()


def test_a_file_that_was_made_before_the_name_was_held(tmp_path, monkeypatch):
    path = tmp_path / "a.csv"

    @contextmanager
    def slow(target):
        path.write_text("theirs", encoding="utf-8")
        yield True

    monkeypatch.setattr(output_files, "held_name", slow)
    with (
        pytest.raises(InputError, match="exists already; choose another name, or add --force"),
        reserved(path, force=False),
    ):
        pass


def test_a_file_that_was_made_in_the_meantime_is_left_alone(tmp_path):
    path = tmp_path / "a.txt"

    def work():
        with replacing(path, force=False) as temporary:
            temporary.write_text("ours", encoding="utf-8")
            path.write_text("theirs", encoding="utf-8")

    with pytest.raises(InputError, match=r"was made by another program in the meantime, and was left alone"):
        work()
    assert path.read_text(encoding="utf-8") == "theirs"
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_stays_and_the_mode_too(tmp_path):
    target = tmp_path / "target.txt"
    target.write_text("old", encoding="utf-8")
    target.chmod(0o600)
    (tmp_path / "a.txt").symlink_to("target.txt")
    write_text(tmp_path / "a.txt", "new", force=True)
    assert (tmp_path / "a.txt").is_symlink()
    assert target.read_text(encoding="utf-8") == "new"
    assert target.stat().st_mode & 0o777 == 0o600


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser can write everywhere")
def test_a_folder_that_cannot_be_written(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(InputError, match="cannot be written to; choose another one"):
        check_new(tmp_path / "a.csv", force=False)


def test_a_folder_that_cannot_be_written_as_the_system_says(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(InputError, match="cannot be written to; choose another one"):
        check_new(tmp_path / "a.csv", force=False)


@pytest.mark.parametrize(("size", "words"), [(12, "12 bytes"), (12_345, "12 kB"), (1_234_567, "1.2 MB")])
def test_size(tmp_path, size, words):
    (tmp_path / "a").write_bytes(b"x" * size)
    assert file_size(tmp_path / "a") == words


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.parquet", "a.feather", "a.csv.gz", "a.parquet.gz"])
def test_a_table_is_read_back(tmp_path, name):
    frame = pd.DataFrame({"row": [0, 1], "mean": [0.1 + 0.2, 1e-300], "who": ["a", "b"]}, index=[5, 6])
    write_table(frame, tmp_path / name, force=False)
    pd.testing.assert_frame_equal(read_table(tmp_path / name), frame.reset_index(drop=True))
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠"])
def test_texts_that_begin_like_a_formula(start):
    text = f"{start}cmd|' /c calc'!A1"
    cells = pd.Series([text, "plain", None])
    frame = pd.DataFrame({text: cells, "category": cells.astype("category"), "string": cells.astype("string")})
    found = pd.read_csv(io.StringIO(csv_text(frame)))
    assert found.columns[0] == f"'{text}"
    assert found.iloc[0].tolist() == [f"'{text}"] * 3
    assert found.iloc[1].tolist() == ["plain"] * 3
    assert found.iloc[2].isna().all()


def test_a_carriage_return_inside_a_text_begins_no_cell():
    frame = pd.DataFrame({"id": ["a\r=1+1", "b"], "mean": [-0.25, 1 / 3]})
    assert csv_text(frame) == '"id","mean"\n"a\r=1+1",-0.25\n"b",0.3333333333333333\n'


def test_numbers_stay_as_they_are():
    frame = pd.DataFrame({"mean": [-0.25, 1 / 3], "id": ["-5", "+1.5e3"], "mixed": [-1, "-x"], "late": [True, False]})
    assert csv_text(frame, digits="%.3g") == "mean,id,mixed,late\n-0.25,-5,-1,True\n0.333,+1.5e3,'-x,False\n"
    assert csv_text(frame[["mean"]], separator="\t") == "mean\n-0.25\n0.3333333333333333\n"
