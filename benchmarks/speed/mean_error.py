"""How far means without bands lie from the posterior mean, beside means of draws.

    python benchmarks/speed/mean_error.py      prints a table (some minutes)

Mean survival of 40 people at 60 times, by `predict_mean_survival` and by plain draws, against 100,000 draws.
"""

from __future__ import annotations

import warnings
from datetime import UTC, datetime

import numpy as np
import torch

from neuralsurv import NeuralSurv
from neuralsurv.posterior.gaussian import Posterior
from neuralsurv_bench.cohorts import load

# Cohorts, and training rows.
FITS = (("COLON", 80), ("METABRIC", 150), ("SUPPORT", 300), ("METABRIC", 1200))
PEOPLE, TIMES, REFERENCE, BLOCK = 40, 60, 100_000, 1000


def mean_of_draws(posterior: Posterior, times: torch.Tensor, x: torch.Tensor, count: int, seed: int) -> torch.Tensor:
    """Return mean survival over draws, in blocks of them."""
    total = torch.zeros(len(x), len(times), dtype=torch.float64)
    for block in range(count // BLOCK):
        draws = posterior.draw(BLOCK, seed + block)
        total += torch.exp(-posterior.cumulative_hazard_draws(draws, times, x)).mean(0)
    return total / (count // BLOCK)


def main() -> None:
    """Print the table."""
    warnings.simplefilter("ignore")
    print(f"{datetime.now(UTC).date()}: root mean square, mean and largest error against {REFERENCE:,} draws\n")
    print("| fit | without bands | 1,000 draws | 10,000 draws |\n|---|---|---|---|")
    for name, rows in FITS:
        cohort = load(name)
        order = np.random.default_rng(0).permutation(np.flatnonzero(cohort.time > 0))
        train, people = order[:rows], order[rows : rows + PEOPLE]
        model = NeuralSurv(random_state=0).fit(cohort.frame.iloc[train], (cohort.time[train], cohort.event[train]))
        times = torch.linspace(0, 1, TIMES + 1, dtype=torch.float64)[1:]
        x = torch.from_numpy(model.encoding_.transform(cohort.frame.iloc[people]))
        expected = mean_of_draws(model.posterior_, times, x, REFERENCE, 10_000)
        found = [
            torch.from_numpy(
                model.predict_mean_survival(cohort.frame.iloc[people], times.numpy() * model.time_scale_).to_numpy()
            ),
            mean_of_draws(model.posterior_, times, x, 1000, 1),
            mean_of_draws(model.posterior_, times, x, 10_000, 1),
        ]
        errors = [(each - expected).abs() for each in found]
        cells = [f"{e.square().mean().sqrt():.5f}, {e.mean():.5f}, {e.max():.5f}" for e in errors]
        print(f"| {name}, {rows} rows | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
