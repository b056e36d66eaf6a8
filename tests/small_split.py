"""A small simulated split, for tests of our own methods."""

import numpy as np

from neuralsurv_bench.methods.interface import Rows, Split


def simulated(n: int, seed: int) -> Rows:
    """Return rows whose second of three covariates shortens the time; the first is the same for everybody."""
    rng = np.random.default_rng(seed)
    x = np.column_stack([np.ones(n), rng.standard_normal((n, 2))])
    time = 30 * rng.weibull(1.3, n) * np.exp(-0.8 * x[:, 1])
    censoring = rng.uniform(5, 60, n)
    return Rows(x, np.minimum(time, censoring), time <= censoring)


SPLIT = Split(simulated(40, 1), simulated(10, 2), simulated(8, 3), ("a", "b", "c"))
