import numpy as np
import pytest

from neuralsurv.metrics.curve_pairs import dominance_sums


@pytest.mark.parametrize("ranks", [1, 2, 5, 64, 1000])
@pytest.mark.parametrize("seed", range(3))
def test_against_counting_one_by_one(seed, ranks):
    rng = np.random.default_rng(seed)
    rank, weight = rng.integers(0, ranks, 90), rng.integers(0, 9, 90).astype(float)
    prefix, limit = rng.integers(0, 91, 70), rng.integers(0, ranks + 1, 70)
    expected = [weight[:p][rank[:p] < r].sum() for p, r in zip(prefix, limit, strict=True)]
    # Sums of whole numbers are exact.
    assert dominance_sums(rank, weight, prefix, limit).tolist() == expected


def test_nothing_to_count():
    none = np.array([], dtype=int)
    assert dominance_sums(none, np.array([]), none, none).tolist() == []
    assert dominance_sums(none, np.array([]), np.array([0]), np.array([3])).tolist() == [0.0]
