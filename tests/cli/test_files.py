import os

import pytest

from neuralsurv.cli.files import check_new, file_size, replacing, write_text
from neuralsurv.errors import InputError


def test_a_crash_leaves_the_old_file(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old", encoding="utf-8")

    def crash():
        with replacing(path) as temporary:
            temporary.write_text("half", encoding="utf-8")
            raise KeyError("crash")

    with pytest.raises(KeyError, match="crash"):
        crash()
    assert path.read_text(encoding="utf-8") == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_is_one_sentence(tmp_path):
    path = tmp_path / "a.txt"

    def full():
        with replacing(path):
            raise OSError(28, "No space left on device")

    with pytest.raises(InputError, match=r"could not be written, and is as it was: .*No space left"):
        full()


def test_write_text(tmp_path):
    write_text(tmp_path / "a.txt", "ä")
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
