import pytest
import torch

from neuralsurv.inference.optimise.anderson import Anderson


def linear_map(size, seed=0):
    """Return x -> Ax + b, with A symmetric of norm 0.97, and its fixed point."""
    generator = torch.Generator().manual_seed(seed)
    basis = torch.linalg.qr(torch.randn(size, size, generator=generator, dtype=torch.float64))[0]
    matrix = basis @ torch.diag(torch.linspace(0.97, 0.1, size, dtype=torch.float64)) @ basis.T
    offset = torch.randn(size, generator=generator, dtype=torch.float64)
    limit = torch.linalg.solve(torch.eye(size, dtype=torch.float64) - matrix, offset)
    return lambda x: matrix @ x + offset, limit


@pytest.mark.parametrize("weight", [torch.ones(2), torch.tensor([0.1, 20.0])])
def test_as_many_differences_as_dimensions_lead_to_the_limit(weight):
    advance, limit = linear_map(2)
    memory = Anderson(weight.double(), depth=5)
    x = torch.zeros(2, dtype=torch.float64)
    for _ in range(3):
        end = advance(x)
        memory.add(x, end)
        x = end
    torch.testing.assert_close(memory.guess(), limit, rtol=1e-3, atol=1e-3)


def test_guesses_that_are_followed_converge_much_sooner():
    advance, limit = linear_map(30)
    memory = Anderson(torch.ones(30, dtype=torch.float64))
    plain = x = torch.zeros(30, dtype=torch.float64)
    for _ in range(40):
        plain = advance(plain)
        end = advance(x)
        memory.add(x, end)
        guess = memory.guess()
        x = end if guess is None else guess
    assert float((x - limit).norm()) < 1e-3 * float((plain - limit).norm())


def test_only_the_last_steps_count():
    memory = Anderson(torch.ones(1, dtype=torch.float64), depth=1)

    def double(value):
        return torch.tensor([value], dtype=torch.float64)

    memory.add(double(100.0), double(-7.0))
    for start in (0.0, 1.0):
        memory.add(double(start), double(start / 2 + 1))
    torch.testing.assert_close(memory.guess(), double(2.0))


def test_numbers_without_weight_go_along():
    # The first number leads from 0 over 1 to 2; the second repeats it a hundredfold and is not looked at.
    memory = Anderson(torch.tensor([1.0, 0.0], dtype=torch.float64))
    for start in (0.0, 1.0):
        end = start / 2 + 1
        memory.add(
            torch.tensor([start, -1e9], dtype=torch.float64), torch.tensor([end, 100 * end], dtype=torch.float64)
        )
    torch.testing.assert_close(memory.guess(), torch.tensor([2.0, 200.0], dtype=torch.float64), rtol=1e-6, atol=0)


def test_nothing_to_go_by():
    memory = Anderson(torch.ones(2, dtype=torch.float64))
    zero, one = torch.zeros(2, dtype=torch.float64), torch.ones(2, dtype=torch.float64)
    assert memory.guess() is None
    memory.add(zero, one)
    assert memory.guess() is None
    memory.add(zero, one)  # the same step again: no difference to learn from
    assert memory.guess() is None
    memory.add(one, 1.5 * one)
    assert memory.guess() is not None
    memory.forget()
    assert memory.guess() is None
