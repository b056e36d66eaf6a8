import os

import pytest
import torch
from joblib import Parallel, delayed

from neuralsurv.inference.threads import threads_for


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(("numbers", "wanted"), [(100, 1), (10**8, 2)])
def test_small_work_gets_one_thread_and_the_setting_comes_back(two_threads, numbers, wanted):
    with threads_for(numbers):
        assert torch.get_num_threads() == wanted
    assert torch.get_num_threads() == 2


def test_the_setting_comes_back_after_an_error(two_threads):
    with pytest.raises(KeyboardInterrupt), threads_for(100):
        raise KeyboardInterrupt
    assert torch.get_num_threads() == 2


def test_overlapping_blocks_restore_the_setting_once_the_last_has_ended(two_threads):
    # As two fits in threads of one process do: the second begins inside the first and outlives it.
    first, second = threads_for(100), threads_for(100)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert torch.get_num_threads() == 1
    second.__exit__(None, None, None)
    assert torch.get_num_threads() == 2


def test_the_number_of_threads_is_never_raised():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with threads_for(10**9):
        assert torch.get_num_threads() == 1
    torch.set_num_threads(before)


def test_workers_of_joblib_share_the_cores(monkeypatch):
    # joblib gives every worker its share of the cores, and `threads_for` never takes more than it is given.
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    workers = 2
    found = Parallel(n_jobs=workers)(delayed(torch.get_num_threads)() for _ in range(4))
    assert max(found) <= max(1, (os.cpu_count() or 1) // workers)
