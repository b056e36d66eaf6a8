import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier, Thread

import pytest
import torch
from joblib import Parallel, delayed

from neuralsurv.inference.threads import threads_for

FORKING = Path(__file__).parent / "forking.py"


def in_a_new_thread(work):
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()


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


def test_blocks_that_overlap_in_several_threads_give_each_its_own_setting_back(two_threads):
    # The caller's block begins first and ends first; a thread that is born inside it outlives it.
    meet = Barrier(2, timeout=60)
    seen = []

    def other():
        with threads_for(100):
            meet.wait()
            meet.wait()
            seen.append(torch.get_num_threads())
        seen.append(torch.get_num_threads())

    with threads_for(100):
        thread = Thread(target=other)
        thread.start()
        meet.wait()
    ours = torch.get_num_threads()
    meet.wait()
    thread.join()
    assert (ours, torch.get_num_threads(), seen) == (2, 2, [1, 2])
    assert in_a_new_thread(torch.get_num_threads) == 2


def test_a_thread_that_starts_inside_a_block_is_not_limited(two_threads):
    with threads_for(100):
        assert in_a_new_thread(torch.get_num_threads) == 2
        assert torch.get_num_threads() == 1


def test_a_thread_that_knew_torch_before_is_limited_in_its_own_block(two_threads):
    def inside():
        with threads_for(100):
            return torch.get_num_threads()

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(torch.get_num_threads).result() == 2
        with threads_for(100):
            assert pool.submit(inside).result() == 1
        assert pool.submit(torch.get_num_threads).result() == 2


def test_many_blocks_in_a_pool_leave_no_thread_limited(two_threads):
    def work(number):
        with threads_for(100), threads_for(100):
            assert torch.get_num_threads() == 1
        return torch.get_num_threads()

    with ThreadPoolExecutor(4) as pool, threads_for(100):
        assert set(pool.map(work, range(40))) == {2}
    assert torch.get_num_threads() == 2
    assert in_a_new_thread(torch.get_num_threads) == 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.parametrize("way", ["multiprocessing", "joblib", "inside a block"])
def test_a_forked_child_of_a_process_with_two_threads_predicts_and_fits(way):
    # A child that hangs is killed with its parent, by the group that they form.
    process = subprocess.Popen(
        [sys.executable, str(FORKING), way],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        env={**os.environ, "OMP_NUM_THREADS": "2", "MKL_NUM_THREADS": "2"},
    )
    try:
        said, _ = process.communicate(timeout=120)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        process.communicate()
        pytest.fail("the child did not end")
    assert process.returncode == 0, said
    assert said.splitlines()[-1] == "same curves, 1 thread in the child, 2 in the parent"
