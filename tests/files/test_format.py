"""The file itself: what is written comes back bit for bit, and whatever else is in a file is a StorageError."""

import json
import os
import pickle
import re
import stat
import struct
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save as save_tensors

import neuralsurv
from neuralsurv.errors import NeuralSurvError, NotEnoughMemoryError, StorageError
from neuralsurv.files import format as storage
from neuralsurv.files.format import FORMAT, Fields, read, write

HEADER = {"class": "Größe 男", "nested": {"list": [1, 2.5, None, True, "x"]}, "tiny": 5e-324, "odd": "\ud800"}
TENSORS = {
    "numbers": np.array([0.0, -0.0, 1 / 3, 5e-324, 1.7976931348623157e308, -1e-300]),
    "matrix": np.random.default_rng(0).normal(size=(5, 7)),
    "turned": np.random.default_rng(1).normal(size=(3, 4)).T,
    "every second": np.arange(10.0)[::2],
    "empty": np.zeros((0, 3)),
    "one": np.array(2.5),
}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.neuralsurv"


def container(metadata, tensors=TENSORS):
    """The bytes of a safetensors file with any metadata."""
    arrays = {name: np.asarray(array, order="C") for name, array in tensors.items()}
    return save_tensors(arrays, metadata=metadata)


def with_outer_header(outer, data=b""):
    text = outer if isinstance(outer, bytes) else json.dumps(outer).encode()
    return struct.pack("<Q", len(text)) + text + data


class TestRoundTrip:
    def test_bit_equal(self, path):
        write(path, HEADER, TENSORS)
        header, tensors = read(path)
        assert header == {"format": FORMAT, **HEADER}
        assert tensors.keys() == TENSORS.keys()
        for name, array in TENSORS.items():
            assert tensors[name].shape == array.shape, name
            assert tensors[name].dtype == np.float64
            assert tensors[name].tobytes() == array.tobytes(), name

    def test_arrays_are_the_readers_own(self, path):
        write(path, HEADER, TENSORS)
        _, tensors = read(path)
        for array in tensors.values():
            assert array.flags.writeable
            assert array.flags.owndata

    def test_the_same_model_makes_the_same_bytes(self, path):
        write(path, HEADER, TENSORS)
        first = path.read_bytes()
        write(path, HEADER, TENSORS)
        assert path.read_bytes() == first

    def test_path_as_text(self, path):
        write(str(path), HEADER, TENSORS)
        assert read(str(path))[0]["class"] == HEADER["class"]

    def test_file_alone_in_its_folder(self, path):
        write(path, HEADER, TENSORS)
        assert os.listdir(path.parent) == [path.name]

    def test_longest_file_name(self, tmp_path):
        write(tmp_path / ("m" * 255), HEADER, TENSORS)
        assert read(tmp_path / ("m" * 255))[0]["class"] == HEADER["class"]

    @pytest.mark.skipif(sys.platform == "win32", reason="permissions are POSIX's")
    @pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
    def test_permissions_follow_the_umask(self, path, mask):
        before = os.umask(mask)
        try:
            write(path, HEADER, TENSORS)
        finally:
            os.umask(before)
        assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~mask


class TestWriting:
    @pytest.mark.parametrize("step", ["fsync", "replace"])
    @pytest.mark.parametrize("failure", [OSError(28, "No space left on device"), KeyboardInterrupt(), MemoryError()])
    @pytest.mark.parametrize("existing", [True, False])
    def test_crash_leaves_the_old_file_and_nothing_else(self, path, monkeypatch, step, failure, existing):
        if existing:
            write(path, HEADER, TENSORS)
        before = path.read_bytes() if existing else None

        def fail(*args):
            raise failure

        monkeypatch.setattr(storage.os, step, fail)
        wanted = StorageError if isinstance(failure, OSError) else type(failure)
        with pytest.raises(wanted) as caught:
            write(path, {"new": 1}, {"new": np.zeros(4)})
        if wanted is StorageError:
            assert re.search(r"could not be written, and is as it was: .*No space left", str(caught.value))
            assert str(path) in str(caught.value)
        assert os.listdir(path.parent) == ([path.name] if existing else [])
        if existing:
            assert path.read_bytes() == before
            assert read(path)[0]["class"] == HEADER["class"]

    def test_everything_is_on_disk_before_the_old_file_goes(self, path, monkeypatch):
        steps = []
        fsync, replace = os.fsync, os.replace
        monkeypatch.setattr(storage.os, "fsync", lambda handle: (steps.append("fsync"), fsync(handle)))

        def watched(source, target):
            steps.append("replace")
            assert read(source)[0]["class"] == HEADER["class"]
            assert Path(source).parent == path.parent
            replace(source, target)

        monkeypatch.setattr(storage.os, "replace", watched)
        write(path, HEADER, TENSORS)
        # The last is the folder's, without which the new name may not outlive a loss of power.
        assert steps == ["fsync", "replace", "fsync"]

    def test_missing_folder(self, tmp_path):
        with pytest.raises(StorageError, match=r"the folder '.*nowhere' does not exist; make it first"):
            write(tmp_path / "nowhere" / "model", HEADER, TENSORS)
        assert os.listdir(tmp_path) == []

    def test_target_is_a_folder(self, tmp_path):
        (tmp_path / "model").mkdir()
        with pytest.raises(StorageError, match=r"'.*model' is a folder and cannot be replaced by a model; name a file"):
            write(tmp_path / "model", HEADER, TENSORS)
        assert os.listdir(tmp_path) == ["model"]

    @pytest.mark.skipif(sys.platform == "win32", reason="pipes of the file system are POSIX's")
    def test_a_pipe_and_a_device_stay_what_they_are(self, path):
        os.mkfifo(path)
        for place, word in ((path, "pipe"), ("/dev/null", "device")):
            with pytest.raises(StorageError, match=rf"is a {word} and cannot be replaced by a model; name a file"):
                write(place, HEADER, TENSORS)
            with pytest.raises(StorageError, match=rf"is a {word}, not a model file"):
                read(place)
        assert stat.S_ISFIFO(path.stat().st_mode)

    @pytest.mark.skipif(sys.platform == "win32", reason="links and permissions are POSIX's")
    @pytest.mark.parametrize("existing", [True, False])
    def test_a_link_stays_and_what_it_leads_to_is_written(self, path, existing):
        target = path.parent / "folder" / "target"
        target.parent.mkdir()
        path.symlink_to("folder/target")
        if existing:
            target.write_bytes(b"old")
            target.chmod(0o600)
        write(path, HEADER, TENSORS)
        assert os.readlink(path) == "folder/target"
        assert read(target)[0]["class"] == HEADER["class"]
        assert not existing or stat.S_IMODE(target.stat().st_mode) == 0o600
        assert os.listdir(target.parent) == ["target"]

    def test_a_file_that_may_not_be_replaced(self, path):
        write(path, HEADER, TENSORS, replace=False)
        with pytest.raises(StorageError, match=r"was made by another program in the meantime, and was left alone"):
            write(path, {**HEADER, "class": "Other"}, TENSORS, replace=False)
        assert read(path)[0]["class"] == HEADER["class"]

    @pytest.mark.parametrize("value", [float("nan"), float("inf"), object(), {1, 2}])
    def test_header_that_is_not_plain(self, path, value):
        with pytest.raises(StorageError, match=r"the model holds a value that cannot be saved: "):
            write(path, {"value": value}, TENSORS)
        assert os.listdir(path.parent) == []


class TestReading:
    def refused(self, path, data, message):
        path.write_bytes(data)
        with pytest.raises(StorageError, match=message):
            read(path)

    def test_errors_are_os_errors_and_ours(self, path):
        with pytest.raises(OSError, match="there is no file") as caught:
            read(path)
        assert isinstance(caught.value, NeuralSurvError)

    def test_missing_file(self, path):
        with pytest.raises(StorageError, match=r"there is no file '.*model\.neuralsurv'"):
            read(path)

    def test_folder(self, tmp_path):
        with pytest.raises(StorageError, match=r"is a folder, not a model file"):
            read(tmp_path)

    def test_file_that_may_not_be_read(self, path, monkeypatch):
        write(path, HEADER, TENSORS)

        def refuse(self, mode):
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(Path, "open", refuse)
        with pytest.raises(StorageError, match=r"model\.neuralsurv' could not be read: .*Permission denied"):
            read(path)

    @pytest.mark.parametrize("size", [0, 1, 7])
    def test_too_short(self, path, size):
        self.refused(path, b"x" * size, rf"model\.neuralsurv is too short to be a model file \({size} bytes\)")

    @pytest.mark.parametrize("length", [2**64 - 1, 2**63, 2**40, 17 * 2**20, 1000])
    def test_header_length(self, path, length):
        data = struct.pack("<Q", length) + b"{}" * 10
        self.refused(path, data, r"is not a model file, or is cut off: its header does not fit")

    def test_header_longer_than_any_of_ours(self, path):
        data = with_outer_header(b"{}" + b" " * (16 * 2**20))
        self.refused(path, data, r"its header does not fit")

    @pytest.mark.parametrize(
        "outer",
        [
            b"",
            b"\xff\xfe\x00",
            b"{",
            b"null",
            b"[]",
            b'"text"',
            b"{}",
            b'{"__metadata__": {}}',
            b'{"__metadata__": []}',
            b'{"__metadata__": null}',
            b'{"__metadata__": "neuralsurv"}',
            b'{"__metadata__": {"neuralsurv": 3}}',
            b'{"__metadata__": {"neuralsurv": {}}}',
            b'{"__metadata__": {"neuralsurv": "{"}}',
            b'{"__metadata__": {"neuralsurv": "' + b"[" * 100_000 + b'"}}',
            b'{"__metadata__": {"neuralsurv": "' + b"1" * 10_000 + b'"}}',
            b"[" * 100_000,
            b'{"a":' * 100_000,
        ],
        ids=lambda outer: outer[:40].decode("latin-1"),
    )
    def test_header_that_cannot_be_read(self, path, outer):
        self.refused(
            path, with_outer_header(outer), r"is not a neuralsurv model file, or is damaged: its header cannot"
        )

    @pytest.mark.parametrize(
        "text", ["[]", "3", "null", "{}", '{"format": "1"}', '{"format": 1.0}', '{"format": true}']
    )
    def test_no_format(self, path, text):
        self.refused(path, container({"neuralsurv": text}), r"is damaged: its header has no format number")

    def test_newer_format(self, path):
        message = r"has format 7, but this version of neuralsurv reads up to 1; update neuralsurv to open it"
        self.refused(path, container({"neuralsurv": '{"format": 7, "class": "FromTheFuture"}'}), message)

    @pytest.mark.parametrize("number", [0, -1])
    def test_format_that_never_was(self, path, number):
        self.refused(
            path, container({"neuralsurv": f'{{"format": {number}}}'}), rf"is damaged: format {number} does not exist"
        )

    @pytest.mark.parametrize("dtype", [np.float32, np.int64, np.uint8, bool])
    def test_type_of_numbers(self, path, dtype):
        data = container({"neuralsurv": '{"format": 1}'}, {"weights": np.ones(3, dtype=dtype)})
        self.refused(path, data, rf"is damaged: 'weights' is {np.dtype(dtype)}, not float64")

    @pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
    def test_numbers_that_are_not_finite(self, path, value):
        data = container({"neuralsurv": '{"format": 1}'}, {"weights": np.array([1.0, value])})
        self.refused(path, data, r"is damaged: 'weights' holds values that are NaN or infinite")

    @pytest.mark.parametrize(
        "entry",
        [
            {"dtype": "F64", "shape": [2], "data_offsets": [0, 24]},
            {"dtype": "F64", "shape": [-2], "data_offsets": [0, 16]},
            {"dtype": "F64", "shape": [2], "data_offsets": [-16, 0]},
            {"dtype": "F64", "shape": [2], "data_offsets": [16, 0]},
            {"dtype": "F64", "shape": [2**62, 4], "data_offsets": [0, 16]},
            {"dtype": "F64", "shape": [10**12], "data_offsets": [0, 8 * 10**12]},
            {"dtype": "F64", "shape": ["2"], "data_offsets": [0, 16]},
            {"dtype": "F64", "shape": [2.0], "data_offsets": [0, 16]},
            {"dtype": "F64", "shape": 2, "data_offsets": [0, 16]},
            {"dtype": "F64", "shape": [1], "data_offsets": [0, 8]},
            {"dtype": "F16", "shape": [2], "data_offsets": [0, 16]},
            {"dtype": "F8_E5M2", "shape": [16], "data_offsets": [0, 16]},
            {"dtype": "BF16", "shape": [8], "data_offsets": [0, 16]},
            {"dtype": "object", "shape": [2], "data_offsets": [0, 16]},
            {"shape": [2], "data_offsets": [0, 16]},
            {"dtype": "F64"},
            None,
            [],
            "F64",
        ],
        ids=str,
    )
    def test_tensor_that_does_not_fit(self, path, entry):
        outer = {"__metadata__": {"neuralsurv": '{"format": 1}'}, "weights": entry}
        self.refused(path, with_outer_header(outer, b"\0" * 16), r"is damaged: ")

    def test_array_that_is_long_and_holds_nothing(self, path):
        write(path, HEADER, {"weights": np.zeros((0, 10**12))})
        with pytest.raises(StorageError, match=r"'weights' has shape \(0, 1000000000000\) and no numbers"):
            read(path)

    @pytest.mark.parametrize("extra", [b"", b"\0" * 8])
    def test_bytes_that_no_array_speaks_of(self, path, extra):
        outer = {"__metadata__": {"neuralsurv": '{"format": 1}'}}
        outer["weights"] = {"dtype": "F64", "shape": [2], "data_offsets": [0, 16]}
        held = 16 + len(extra) if extra else 8
        message = rf"is damaged: its header announces 16 bytes of numbers, but there are {held}"
        self.refused(path, with_outer_header(outer, b"\0" * 16 + extra if extra else b"\0" * 8), message)

    def test_file_for_which_there_is_no_memory(self, path, monkeypatch):
        write(path, HEADER, {"weights": np.zeros(2**20)})
        monkeypatch.setenv("NEURALSURV_MEMORY_GIB", "0.01")
        with pytest.raises(NotEnoughMemoryError, match=r"opening model\.neuralsurv needs about 16 MiB of memory"):
            read(path)

    def test_content_that_has_changed(self, path):
        message = r"is damaged: its content has changed since it was written"
        write(path, HEADER, TENSORS)
        data = path.read_bytes()
        text = json.loads(data[8 : 8 + struct.unpack("<Q", data[:8])[0]])["__metadata__"]["neuralsurv"]
        header = json.loads(text)

        def forged(tensors=TENSORS, **changes):
            changed = {key: value for key, value in {**header, **changes}.items() if value is not None}
            return container({"neuralsurv": json.dumps(changed)}, tensors)

        assert forged() == data
        for change in ({"sha256": "0" * 64}, {"sha256": None}, {"sha256": 3}, {"tiny": 1e-323}, {"more": 1}):
            self.refused(path, forged(**change), message)
        self.refused(path, forged({**TENSORS, "one": np.array(np.nextafter(2.5, 3))}), message)
        self.refused(path, forged({**TENSORS, "one": np.array([2.5])}), message)
        self.refused(path, forged({**TENSORS, "more": np.ones(1)}), message)
        renamed = {("matrices" if name == "matrix" else name): array for name, array in TENSORS.items()}
        self.refused(path, forged(renamed), message)

    def test_other_kinds_of_file(self, path, tmp_path):
        with zipfile.ZipFile(tmp_path / "archive.zip", "w") as archive:
            archive.writestr("model", "weights")
        np.savez(tmp_path / "arrays.npz", weights=np.ones(3))
        np.save(tmp_path / "array.npy", np.ones(3))
        for data in (
            (tmp_path / "archive.zip").read_bytes(),
            (tmp_path / "arrays.npz").read_bytes(),
            (tmp_path / "array.npy").read_bytes(),
            pickle.dumps({"weights": [1, 2, 3]}),
            b"A text file\nwith two lines.\n",
            b'{"format": 1, "class": "NeuralSurv"}',
            save_tensors({"weights": np.ones(3)}),
            save_tensors({"weights": np.ones(3)}, metadata={"format": "pt"}),
        ):
            self.refused(path, data, r"is not a (neuralsurv )?model file, or is")


class TestFields:
    @pytest.fixture
    def fields(self):
        return Fields(
            {
                **{"number": 2.5, "count": 3, "text": "x", "flag": True, "list": [1, "x"], "table": {"inner": 4}},
                **{"huge": 10**400, "nan": float("nan"), "inf": float("inf"), "negative": -1, "null": None},
                **{"numbers": [1, 2.5], "texts": ["x", "y"], "bad numbers": [1, float("nan")]},
            },
            "header",
        )

    def test_values(self, fields):
        assert fields.number("number") == 2.5
        assert type(fields.number("count")) is float
        assert fields.positive("number") == 2.5
        assert fields.whole("count") == fields.whole("count", 3) == 3
        assert fields.text("text") == "x"
        assert fields.flag("flag") is True
        assert fields.items("list") == [1, "x"]
        assert fields.numbers("numbers") == (1.0, 2.5)
        assert fields.texts("texts") == ("x", "y")
        assert fields.table("table").whole("inner") == 4
        assert fields.table("table").names() == ["inner"]
        assert fields.raw("list") == [1, "x"]
        assert fields.raw("absent") is None

    @pytest.mark.parametrize(
        ("kind", "good", "word"),
        [
            ("number", {"number", "count", "huge", "nan", "inf", "negative"}, "a number"),
            ("positive", {"number", "count", "huge", "nan", "inf", "negative"}, "a number"),
            ("whole", {"count", "huge", "negative"}, "a whole number"),
            ("text", {"text"}, "text"),
            ("flag", {"flag"}, "true or false"),
            ("items", {"list", "numbers", "texts", "bad numbers"}, "a list"),
            ("numbers", {"list", "numbers", "texts", "bad numbers"}, "a list"),
            ("texts", {"list", "numbers", "texts", "bad numbers"}, "a list"),
            ("table", {"table"}, "a table"),
        ],
    )
    def test_wrong_types_and_absent_values(self, fields, kind, good, word):
        for key in {*fields.names(), "absent"} - good:
            with pytest.raises(StorageError, match=rf"the model file is damaged: header '{key}' is not {word}\."):
                getattr(fields, kind)(key)

    @pytest.mark.parametrize(
        ("kind", "key", "message"),
        [
            ("number", "huge", r"header 'huge' is too large"),
            ("number", "nan", r"header 'nan' is not finite"),
            ("number", "inf", r"header 'inf' is not finite"),
            ("positive", "negative", r"header 'negative' is not positive"),
            ("whole", "negative", r"header 'negative' is out of range"),
            ("whole", "huge", r"header 'huge' is out of range"),
            ("numbers", "list", r"header 'list' '1' is not a number"),
            ("numbers", "bad numbers", r"header 'bad numbers' '1' is not finite"),
            ("texts", "list", r"header 'list' '0' is not text"),
        ],
    )
    def test_values_out_of_range(self, fields, kind, key, message):
        with pytest.raises(StorageError, match=rf"the model file is damaged: {message}"):
            getattr(fields, kind)(key)

    def test_limit(self, fields):
        for limits in ({"most": 2}, {"least": 4}):
            with pytest.raises(StorageError, match=r"header 'count' is out of range"):
                fields.whole("count", **limits)

    def test_nested_names(self, fields):
        with pytest.raises(StorageError, match=r"header 'table' 'inner' is not text"):
            fields.table("table").text("inner")

    @pytest.mark.parametrize("values", [None, [], "x", 3])
    def test_not_a_table(self, values):
        with pytest.raises(StorageError, match=r"the model file is damaged: column is not a table"):
            Fields(values, "column")


@pytest.mark.parametrize("name", ["files/format.py", "estimator/model_file.py"])
def test_nothing_that_could_run_a_file(name):
    found = sorted(Path(neuralsurv.__file__).parent.glob(name))
    assert found
    source = "\n".join(path.read_text(encoding="utf-8") for path in found)
    assert not re.findall(r"\b(pickle|eval|exec|compile|marshal|shelve|importlib|__import__|getattr)\b", source)
