import pytest
import torch

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
