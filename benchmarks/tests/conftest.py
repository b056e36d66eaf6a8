"""What all tests of the benchmark share."""

import os

import pytest

from neuralsurv_bench.cohorts.sac3 import CACHE_VARIABLE


@pytest.fixture(scope="session", autouse=True)
def cache_of_this_run(tmp_path_factory):
    """SAC3 is not read from the user's cache: what is there may be old, and not every home can be written."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        # One folder for all workers: the first that needs the cohort simulates it, the others wait.
        folder = folder.parent
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(CACHE_VARIABLE, str(folder / "neuralsurv-bench"))
        yield
