"""Model files made to exhaust memory: opening one takes no more than a few times what the file holds."""

import copy
import os
from pathlib import Path

import numpy as np
import pytest

import neuralsurv
from faults.children import in_child, needs_fork
from neuralsurv.errors import StorageError
from neuralsurv.files.format import read, write
from small_cohort import quick_default, small_cohort

resource = pytest.importorskip("resource", reason="limits of processes are POSIX's")
pytestmark = needs_fork

# What a process may take beyond what it has; the files below stand for gigabytes.
ROOM = 2**28
GIB = 2**30


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    cohort = small_cohort()
    path = tmp_path_factory.mktemp("good") / "model.neuralsurv"
    quick_default(hidden=()).fit(cohort.x, cohort.y).save(path)
    # Opened once here, so that no child has to import anything.
    neuralsurv.load(path)
    return read(path)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.neuralsurv"


def opened_with_little_memory(path):
    """Return what is said about a file by a process that cannot take much."""

    def work():
        used = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + ROOM, resource.getrlimit(resource.RLIMIT_AS)[1]))
        try:
            neuralsurv.load(path)
        except StorageError as error:
            return str(error)
        return "opened"

    if not os.path.exists("/proc/self/statm"):
        pytest.skip("how much a process has taken is not known on this system")
    return in_child(work)


def test_more_directions_than_weights(path, parts):
    header, tensors = copy.deepcopy(parts)
    size = len(tensors["theta_star"])
    write(path, header, {**tensors, "theta_basis": np.zeros((size, 20_000))})
    assert path.stat().st_size < 4_000_000
    said = opened_with_little_memory(path)
    assert f"'theta_basis' has 20000 columns of {size} numbers" in said


def test_zeros(path):
    with open(path, "wb") as file:
        file.truncate(3 * GIB)
    assert "is not a neuralsurv model file, or is damaged: its header cannot be read" in opened_with_little_memory(path)


def test_zeros_after_a_model(path, parts):
    write(path, *parts)
    held = path.stat().st_size
    with open(path, "r+b") as file:
        file.truncate(held + 3 * GIB)
    assert "is damaged: its header announces" in opened_with_little_memory(path)


def test_arrays_of_a_shape_that_the_file_does_not_hold(path, parts):
    header, tensors = copy.deepcopy(parts)
    arrays = {"part": "image", "shape": [10**7], "whole": False, "levels": [], "has_missing": False}
    header["columns"] = [{"name": "image", "kind": "array", **arrays}]
    header |= {"container": "dict", "parts": ["image"]}
    write(path, header, tensors)
    assert "'scale' is missing or has the wrong shape" in opened_with_little_memory(path)


def test_a_mixture_of_millions(path, parts):
    header, tensors = copy.deepcopy(parts)
    header["mixture"] = [0] * 3_000_000
    write(path, header, tensors)
    assert "a mixture of 3000000 parts" in opened_with_little_memory(path)


def test_a_clock_without_end(path, parts):
    header, tensors = copy.deepcopy(parts)
    header["network"]["time"]["shift"] = 1e300
    write(path, header, tensors)
    assert "the shift of 'time' is out of range" in opened_with_little_memory(path)


def test_draws_without_end(path, parts):
    header, tensors = copy.deepcopy(parts)
    header["parameters"]["draws"] = 10**7
    write(path, header, tensors)
    assert "parameter 'draws' is out of range" in opened_with_little_memory(path)


def test_a_good_file_opens_in_that_room(path, parts):
    write(path, *parts)
    assert opened_with_little_memory(path) == "opened"
