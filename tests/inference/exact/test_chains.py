"""What is said of chains: R-hat and effective sample sizes, the worst of all quantities, and when to warn."""

import numpy as np
import pytest
import torch
from scipy.stats import norm

from neuralsurv.inference.exact.chains import diagnose_chains


def chains(count, draws, kept, apart):
    """Autoregressive chains around means that lie `apart`; no random numbers, so that they are the same everywhere."""
    noise = norm.ppf(np.arange(1, count * draws + 1) * (np.sqrt(5) - 1) / 2 % 1).reshape(draws, count).T
    values = noise.copy()
    for t in range(1, draws):
        values[:, t] = kept * values[:, t - 1] + np.sqrt(1 - kept**2) * noise[:, t]
    return torch.from_numpy(values + apart * np.arange(count)[:, None])


def diagnose(**quantities):
    return diagnose_chains(quantities, latent_points=1.0, slide_acceptance=0.5, interrupted=False)


# The figures are those of arviz.rhat and arviz.ess, version 0.23.
@pytest.mark.parametrize(
    ("shape", "r_hat", "ess_bulk", "ess_tail"),
    [
        ((4, 250, 0.7, 0.0), 1.0003057824686667, 257.252643204379, 559.1481199116097),
        ((2, 101, 0.2, 0.1), 0.9942496817343861, 184.00414377506843, 232.73811896315783),
        ((3, 60, 0.9, 0.5), 1.4760289358636187, 7.005828289285821, 34.49914012611599),
        ((8, 5, 0.1, 0.0), 3.997230947997068, 48.16479930623699, 48.16479930623699),
    ],
    ids=["mixing slowly", "mixing well", "apart", "more chains than draws"],
)
def test_figures_of_known_chains(shape, r_hat, ess_bulk, ess_tail):
    found = diagnose(phi=chains(*shape)[:, :, None])
    assert found.r_hat == pytest.approx(r_hat, rel=1e-9)
    assert found.ess_bulk == pytest.approx(ess_bulk, rel=1e-9)
    assert found.ess_tail == pytest.approx(ess_tail, rel=1e-9)


def test_the_worst_of_all_quantities_is_named_and_constants_are_left_out():
    good, bad = chains(3, 60, 0.0, 0.0), chains(3, 60, 0.9, 0.5)
    found = diagnose(theta=torch.stack([good, bad, good], dim=2), phi=torch.ones(3, 60, 1))
    assert found.worst == "theta 1"
    assert (found.r_hat, found.ess_bulk) == (
        diagnose(phi=bad[:, :, None]).r_hat,
        diagnose(phi=bad[:, :, None]).ess_bulk,
    )
    assert "R-hat of theta 1 is 1.476, above 1.01" in found.messages[0]
    assert "the draws hold only 7 effective ones where 300 are wanted" in found.messages[1]
