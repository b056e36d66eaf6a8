"""Names of files: which can be written, which another process holds, and what a file that is replaced passes on."""

import errno
import os
import signal
import socket
import stat
import sys

import pytest

from faults.children import Child, needs_fork
from neuralsurv.files import atomic as partial_files
from neuralsurv.files.atomic import destination, held_name, obstacle, partial_file, put_in_place

pytest.importorskip("fcntl", reason="locks and permissions are POSIX's")


def put(target, content=b"new", **options):
    with partial_file(target.parent) as (path, file):
        file.write(content)
        put_in_place(path, file, target, **options)


class TestObstacle:
    def test_files_and_nothing_are_none(self, tmp_path):
        (tmp_path / "file").write_bytes(b"")
        (tmp_path / "link").symlink_to("file")
        (tmp_path / "dangling").symlink_to("later")
        assert [obstacle(tmp_path / name) for name in ("file", "link", "dangling", "nothing")] == [None] * 4

    def test_what_no_file_replaces(self, tmp_path, monkeypatch):
        os.mkfifo(tmp_path / "pipe")
        (tmp_path / "circle").symlink_to("circle")
        (tmp_path / "link").symlink_to("pipe")
        monkeypatch.chdir(tmp_path)  # the name of a socket must be short
        with socket.socket(socket.AF_UNIX) as place:
            place.bind("socket")
            found = {name: obstacle(name) for name in ("pipe", "link", "socket", "circle", tmp_path, "/dev/null")}
        assert list(found.values()) == [
            "a pipe", "a pipe", "a socket", "a symbolic link that leads nowhere", "a folder", "a device",
        ]  # fmt: skip


def test_destination_is_where_links_lead(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder/file")
    assert destination(tmp_path / "link") == destination(tmp_path) / "folder" / "file"


class TestHeldName:
    def test_one_at_a_time(self, tmp_path):
        with held_name(tmp_path / "model") as first:
            with held_name(tmp_path / "model") as second, held_name(tmp_path / "other") as other:
                assert (first, second, other) == (True, False, True)
            with held_name(tmp_path / "model") as third:
                assert third is False
        with held_name(tmp_path / "model") as later:
            assert later is True
        assert os.listdir(tmp_path) == []

    @needs_fork
    def test_a_killed_process_gives_it_back(self, tmp_path):
        def work():
            with held_name(tmp_path / "model"):
                os.kill(os.getpid(), signal.SIGKILL)

        assert Child(work).wait()[0] == -signal.SIGKILL
        assert len(os.listdir(tmp_path)) == 1
        with held_name(tmp_path / "model") as ours:
            assert ours is True
        assert os.listdir(tmp_path) == []

    @needs_fork
    def test_what_a_killed_process_left_goes_with_the_next_write(self, tmp_path):
        def work():
            with held_name(tmp_path / "model"):
                os.kill(os.getpid(), signal.SIGKILL)

        Child(work).wait()
        put(tmp_path / "other")
        assert os.listdir(tmp_path) == ["other"]

    def test_a_name_that_is_held_stays_held_when_others_write(self, tmp_path):
        with held_name(tmp_path / "model"):
            put(tmp_path / "other")
            with held_name(tmp_path / "model") as second:
                assert second is False

    def test_without_locks_everybody_may(self, tmp_path, monkeypatch):
        def refuse(file, how):
            raise OSError(errno.ENOLCK, "No locks available")

        monkeypatch.setattr(partial_files.fcntl, "flock", refuse)
        with held_name(tmp_path / "model") as first, held_name(tmp_path / "model") as second:
            assert first is True
            assert second is True
        assert os.listdir(tmp_path) == []

    def test_where_no_file_can_be_made_everybody_may(self, tmp_path):
        with held_name(tmp_path / "nowhere" / "model") as ours:
            assert ours is True

    def test_a_lock_that_was_taken_away_is_made_anew(self, tmp_path, monkeypatch):
        flock, taken = partial_files.fcntl.flock, []

        def late(file, how):
            if not taken:
                (name,) = os.listdir(tmp_path)
                os.unlink(tmp_path / name)
                taken.append(name)
            flock(file, how)

        monkeypatch.setattr(partial_files.fcntl, "flock", late)
        with held_name(tmp_path / "model") as ours:
            assert ours is True
            assert os.listdir(tmp_path) == taken

    def test_a_link_that_somebody_laid_is_not_followed(self, tmp_path):
        with held_name(tmp_path / "model"):
            (name,) = os.listdir(tmp_path)
        (tmp_path / name).symlink_to(tmp_path / "made by a link")
        with held_name(tmp_path / "model") as ours:
            assert ours is True
        assert not (tmp_path / "made by a link").exists()


class TestPutInPlace:
    @pytest.mark.parametrize("mode", [0o600, 0o640, 0o666, 0o400])
    def test_mode_of_the_old_file(self, tmp_path, mode):
        target = tmp_path / "model"
        target.write_bytes(b"old")
        target.chmod(mode)
        put(target)
        assert target.read_bytes() == b"new"
        assert stat.S_IMODE(target.stat().st_mode) == mode

    @pytest.mark.skipif(os.geteuid() != 0, reason="only the superuser can give a file away")
    def test_owner_of_the_old_file(self, tmp_path):
        target = tmp_path / "model"
        target.write_bytes(b"old")
        os.chown(target, 12345, 12345)
        put(target)
        assert (target.stat().st_uid, target.stat().st_gid) == (12345, 12345)

    def test_private_while_it_is_written(self, tmp_path):
        with partial_file(tmp_path, private=True) as (path, _):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600

    @pytest.mark.parametrize("links", [True, False])
    def test_a_name_that_is_taken(self, tmp_path, monkeypatch, links):
        def refuse(path, target):
            raise PermissionError(errno.EPERM, "Operation not permitted")

        if not links:
            monkeypatch.setattr(os, "link", refuse)
        put(tmp_path / "model", b"first", replace=False)
        with pytest.raises(FileExistsError):
            put(tmp_path / "model", b"second", replace=False)
        assert (tmp_path / "model").read_bytes() == b"first"
        assert os.listdir(tmp_path) == ["model"]


@pytest.mark.skipif(sys.platform != "linux", reason="files of processes are Linux's")
def test_standard_output_is_an_obstacle_where_it_is_a_pipe():
    read, write = os.pipe()
    try:
        assert obstacle(f"/dev/fd/{write}") == "a pipe"
    finally:
        os.close(read)
        os.close(write)
