"""Model files that were damaged or forged: the reader gives a model that predicts, or one of our errors.

A file is damaged in its bytes, or its header and its arrays are changed and the whole is signed again, as a
forger would do.
"""

from __future__ import annotations

import copy
import json
import resource
import struct
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from fuzz_choices import ByteChoices
from fuzz_cohort import BrokenPromiseError, attempt

import neuralsurv
from neuralsurv.files.format import _digest

# More address space than this, beyond what the process has, is not given to a reader of files of a few kilobytes.
_ROOM = 2**30
_CODE = (
    "exec",
    "compile",
    "os.system",
    "os.exec",
    "os.fork",
    "subprocess.Popen",
    "pickle.find_class",
    "socket.connect",
)
_SETTINGS: dict[str, dict[str, Any]] = {
    "default": {"hidden": (), "average": False, "quadrature_points": 2, "max_sweeps": 3, "draws": 4},
    "mixture": {"hidden": (), "average": True, "quadrature_points": 2, "max_sweeps": 3, "draws": 4},
    "paper": {"hidden": (2,), "starts": 1, "quadrature_points": 5, "max_sweeps": 3, "draws": 4},
    "drawn": {"hidden": (1,), "starts": 1, "quadrature_points": 5, "draws": 4},
}
# The first time that a model is opened, modules are imported; after that nothing may be run.
_watch: dict[str, Any] = {"on": False, "seen": [], "hooked": False}


def training_rows() -> np.ndarray:
    """Return the covariates of the models whose files are damaged."""
    return np.array([[0.0, 1.0], [1.0, 0.0], [2.0, 1.0], [0.5, 3.0], [1.5, 0.0]])


@cache
def originals() -> dict[str, bytes]:
    """Return whole model files, one of each kind of posterior."""
    import pandas as pd

    X = pd.DataFrame(training_rows(), columns=["age", "größe"])
    X["arm"] = ["a", "b", "a", "b", "a"]
    files = {}
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, settings in _SETTINGS.items():
            paper = name in ("paper", "drawn")
            estimator = neuralsurv.PaperNeuralSurv if paper else neuralsurv.NeuralSurv
            model = estimator(**settings, verbose=False, random_state=0)
            y = ([1.0, 2.0, 3.0, 4.0, 5.0], [1, 0, 1, 1, 0])
            if name == "drawn":
                model.fit_exact(X, y, chains=2, warmup=1, thin=1)
            else:
                model.fit(X, y)
            path = Path(folder) / "model"
            model.save(path)
            files[name] = path.read_bytes()
            _ = neuralsurv.load(path).predict_survival(X, [1.0]).mean
    return files


def split(data: bytes) -> tuple[dict[str, Any], dict[str, Any], bytes]:
    """Return the outer header, ours inside of it, and the bytes of the arrays."""
    (length,) = struct.unpack("<Q", data[:8])
    outer = json.loads(data[8 : 8 + length])
    return outer, json.loads(outer["__metadata__"]["neuralsurv"]), data[8 + length :]


def joined(outer: dict[str, Any], header: dict[str, Any], body: bytes) -> bytes:
    """Return a file of its parts, signed if its arrays can be read at all."""
    from safetensors.numpy import load

    header = {name: value for name, value in header.items() if name != "sha256"}
    text = _outer_text(outer, header)
    try:
        signed = {**header, "sha256": _digest(header, load(_packed(text, body)))}
        text = _outer_text(outer, signed)
    except Exception:  # whatever cannot be read cannot be signed either, and is tried unsigned
        pass
    return _packed(text, body)


def _outer_text(outer: dict[str, Any], header: dict[str, Any]) -> bytes:
    text = json.dumps({**outer, "__metadata__": {"neuralsurv": json.dumps(header)}}).encode("utf-8")
    return text + b" " * (-len(text) % 8)


def _packed(text: bytes, body: bytes) -> bytes:
    return struct.pack("<Q", len(text)) + text + body


_WRONG: tuple[Any, ...] = (
    *(
        None,
        0,
        -1,
        1,
        2,
        1e308,
        -0.5,
        10**9,
        2**62,
        10**400,
        True,
        "",
        "NeuralSurv",
        "os.system",
        [],
        {},
        [[]],
        [0] * 50,
    ),
    *({"shape": 1e-300, "rate": 1e300}, {"held": 1e-320}, "a" * 3000, float("nan"), float("inf"), [10**7] * 3, "dict"),
)


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths to every value inside a header."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, part in inner for place in _places(part, (*path, key)))]


def _put(pick: ByteChoices, header: dict[str, Any]) -> str:
    places = _places(header)[1:]
    place = places[(pick.below(256) * 256 + pick.below(256)) % len(places)]
    target: Any = header
    for key in place[:-1]:
        target = target[key]
    if pick.rarely(4):
        del target[place[-1]]
        return "field taken out"
    old = target[place[-1]]
    number = isinstance(old, int | float) and not isinstance(old, bool) and abs(old) < 2**1000
    if number and pick.below(2):
        target[place[-1]] = old * pick.one((2, -1, 1e6, 1e-6, 1e300))
    else:
        # A copy, which a second change may change.
        target[place[-1]] = copy.deepcopy(pick.one(_WRONG))
    return "field changed"


def _spoil_array(pick: ByteChoices, outer: dict[str, Any], body: bytes) -> bytes:
    names = [name for name in outer if name != "__metadata__"]
    entry = outer[names[pick.below(len(names))]]
    start, stop = entry["data_offsets"]
    if pick.below(3) == 0:
        wrong = ([10**12], [2**62, 4], [0], [], [1, *entry["shape"]], entry["shape"][::-1], [-1])
        entry["shape"] = pick.one(wrong)
        return body
    if pick.below(3) == 0:
        entry["dtype"] = pick.one(("F64", "F32", "F16", "BF16", "I64", "U8", "BOOL", "F8_E4M3", "C64", "object"))
        return body
    values = np.frombuffer(body[start:stop], dtype="<f8").copy()
    if len(values):
        place = (pick.below(256) * 256 + pick.below(256)) % len(values)
        values[place] = pick.one((0.0, -1.0, np.nan, np.inf, 1e300, -1e300, 5e-324, 1e-300, 1e154, 2.0))
    return body[:start] + values.tobytes() + body[stop:]


def damaged(data: bytes) -> tuple[str, bytes]:
    """Return how a file was damaged, and the file."""
    pick = ByteChoices(data)
    whole = originals()[pick.one(tuple(_SETTINGS))]
    way = pick.below(8)
    if way in (0, 1, 2, 3, 4):
        outer, header, body = split(whole)
        said = "array changed"
        if way == 4:
            body = _spoil_array(pick, outer, body)
        for _ in range(1 + pick.below(2) if way != 4 else 0):
            said = _put(pick, header)
        return f"signed: {said}", joined(outer, header, body)
    spot = (pick.below(256) * 65536 + pick.below(256) * 256 + pick.below(256)) % len(whole)
    if way == 5:
        return "cut off", whole[:spot]
    if way == 6:
        junk = bytes(pick.below(256) for _ in range(1 + pick.below(8)))
        spot = spot % 64 if pick.below(2) else spot
        return "bytes changed", whole[:spot] + junk + whole[spot + len(junk) :]
    if pick.below(2):
        return "forged length", struct.pack("<Q", pick.one((2**63, 2**40, 0, 1, 2**32, len(whole), 2**24))) + whole[8:]
    return "any bytes", bytes(pick.below(256) for _ in range(pick.below(64)))


def _hook(event: str, _: Any, watch: dict[str, Any] = _watch, code: Any = _CODE) -> None:
    # Names of the module are gone when the interpreter ends, and a hook stays until then.
    if watch["on"] and event in code:
        watch["seen"].append(event)


@contextmanager
def guarded() -> Iterator[None]:
    """Give little memory, and see whether anything is run."""
    if not _watch["hooked"]:
        sys.addaudithook(_hook)
        _watch["hooked"] = True
    limits = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + _ROOM, limits[1]))
    _watch.update(on=True, seen=[])
    try:
        yield
    finally:
        _watch["on"] = False
        resource.setrlimit(resource.RLIMIT_AS, limits)


@cache
def _modules_are_there() -> None:
    """Open the files that are not damaged once: the first of each kind imports modules, which runs code of ours."""
    for data in originals().values():
        with tempfile.NamedTemporaryFile() as file:
            file.write(data)
            file.flush()
            neuralsurv.load(file.name)


def read_bytes(data: bytes) -> dict[str, int]:
    """Open a file with this content, and predict with the model if there is one."""
    _modules_are_there()
    with tempfile.NamedTemporaryFile(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as file:
        file.write(data)
        file.flush()
        try:
            with guarded():
                model, error = attempt(lambda: neuralsurv.load(file.name))
        except MemoryError as bare:
            raise BrokenPromiseError(f"opening a file of {len(data)} bytes asks for too much memory") from bare
    if _watch["seen"]:
        raise BrokenPromiseError(f"opening a file ran something: {_watch['seen']}")
    if error is not None:
        return {"refused": 1}
    X = {column.name: _cell(column) for column in model.encoding_.columns}
    import pandas as pd

    try:
        with guarded():
            curves, error = attempt(lambda: model.predict_survival(pd.DataFrame(X), [0.0, 1.0, 5.0]).mean.to_numpy())
    except MemoryError as bare:
        raise BrokenPromiseError("a model of a few kilobytes asks for too much memory to predict") from bare
    if error is None and (np.isnan(curves).any() or (np.diff(curves, axis=1) > 1e-9).any() or curves.min() < 0):
        raise BrokenPromiseError("a model from a file predicts what is no survival curve")
    return {"opened": 1} if error is None else {"opened, prediction refused": 1}


def _cell(column: Any) -> list[Any]:
    return list(column.levels[:1]) if column.kind == "category" else [1.0]
