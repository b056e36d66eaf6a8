"""The augmentation of the paper: its identities by simulation with a real sampler, its functions at high precision."""

import math
from dataclasses import dataclass

import mpmath
import numpy as np
import pytest
import torch
from polyagamma import random_polyagamma
from torch import Tensor
from torch.nn.functional import softplus

from false_alarm import z_bound
from neuralsurv.model.augmentation import (
    latent_intensity,
    log_sigmoid_bound,
    log_thinning,
    polya_gamma_mean,
)
from neuralsurv.model.hazard import hazard, log_baseline
from neuralsurv.model.quadrature import GaussLegendre

SIZES = [0.0, 1e-12, 1e-8, 1e-5, 9.99e-4, 1e-3, 1.001e-3, 0.01, 0.1, 0.999, 1.0, 1.001, 3.0, 20.0, 37.0, 710.0, 1e4]
BOTH_SIGNS = sorted({sign * size for size in SIZES for sign in (-1.0, 1.0)})


def tensor(values) -> Tensor:
    return torch.as_tensor(values, dtype=torch.float64)


def log_cosh_half(c: Tensor) -> Tensor:
    """The log of cosh(c/2), whose slopes are the means of Pólya–Gamma variables, to working precision."""
    size = c.abs()
    # The terms of the form for large c cancel near 0, where the result is as small as c**2 / 8.
    near_zero = torch.log1p(2 * torch.sinh(size.clamp(max=1) / 4) ** 2)
    return torch.where(size < 1, near_zero, size / 2 + softplus(-size) - math.log(2))


def z_score(sample: np.ndarray, claimed: float) -> float:
    return float((sample.mean() - claimed) / (sample.std(ddof=1) / math.sqrt(len(sample))))


def f(omega, z):
    """The exponent of eq. 6."""
    return z / 2 - z**2 * omega / 2 - math.log(2)


# ---------------------------------------------------------------------------------------------- one variable


@pytest.mark.parametrize("z", [-4.0, -1.0, -0.1, 0.0, 0.7, 2.0, 5.0])
def test_sigmoid_is_the_mean_over_polya_gamma_variables(z):
    omega = random_polyagamma(1, 0, size=300_000, random_state=np.random.default_rng(1))
    terms = np.exp(f(omega, z))
    exact = 1 / (1 + math.exp(-z))
    if z == 0:
        np.testing.assert_allclose(terms, exact, rtol=1e-15)
    else:
        assert abs(z_score(terms, exact)) < z_bound()


@pytest.mark.parametrize("z", [-4.0, -0.1, 0.7, 5.0])
def test_log_cosh_half_is_the_log_of_the_laplace_transform(z):
    omega = random_polyagamma(1, 0, size=300_000, random_state=np.random.default_rng(2))
    claimed = float(torch.exp(-log_cosh_half(tensor(z))))
    assert abs(z_score(np.exp(-(z**2) * omega / 2), claimed)) < z_bound()


@pytest.mark.parametrize("c", [-6.0, -1.0, 0.0, 1e-4, 0.5, 3.0, 30.0])
def test_polya_gamma_mean_is_the_mean_of_the_sampler(c):
    omega = random_polyagamma(1, c, size=200_000, random_state=np.random.default_rng(3))
    assert abs(z_score(omega, float(polya_gamma_mean(tensor(c))))) < z_bound()


# ---------------------------------------------------------------------------------------- the whole of one row


@dataclass(frozen=True)
class Row:
    """One row of a cohort with a g that bends, and an awkward constant Z."""

    rho: float
    event: bool
    entry: float = 0.0
    time: float = 0.8
    phi: float = 1.3
    z: float = 0.45

    @staticmethod
    def g(time: Tensor) -> Tensor:
        return 2.5 * torch.sin(4 * time) - 0.7

    @property
    def baseline_mass(self) -> float:
        """The integral of phi t^(rho-1) / Z over (entry, time]."""
        return self.phi / self.z * (self.time**self.rho - self.entry**self.rho) / self.rho

    def integral(self, values) -> float:
        """Return the integral of t^(rho-1) values(t) over (entry, time]."""
        nodes = GaussLegendre(64).nodes(tensor([self.entry]), tensor([self.time]), self.rho)
        return float((nodes.weight * values(nodes.time)).sum())

    def hazard_at_end(self) -> float:
        time = tensor([self.time])
        return float(hazard(tensor(self.phi), time, self.g(time), tensor(self.z), self.rho))

    def cumulative_hazard(self) -> float:
        return self.integral(lambda t: self.phi / self.z * torch.sigmoid(self.g(t)))

    def log_likelihood(self) -> float:
        return self.event * math.log(self.hazard_at_end()) - self.cumulative_hazard()

    def latent(self, time: Tensor) -> Tensor:
        """Return the intensity of Psi's full conditional, without its marks."""
        g = self.g(time)
        return latent_intensity(torch.exp(log_baseline(time, self.rho)) / self.z, g, g.abs(), math.log(self.phi))

    def latent_integral(self, weight=torch.ones_like) -> float:
        """Return the integral of latent(t) weight(t) over (entry, time]."""

        def values(t: Tensor) -> Tensor:
            g = self.g(t)
            return latent_intensity(tensor(1 / self.z), g, g.abs(), math.log(self.phi)) * weight(g)

        return self.integral(values)

    def draw_baseline_points(self, count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Simulate `count` Poisson processes with intensity phi t^(rho-1) / Z exactly; return owners and times."""
        owner = np.repeat(np.arange(count), rng.poisson(self.baseline_mass, count))
        u = rng.uniform(self.entry**self.rho, self.time**self.rho, len(owner))
        return owner, u ** (1 / self.rho)


ROWS = [
    Row(rho=1.0, event=True),
    Row(rho=1.0, event=False),
    Row(rho=1.0, event=True, entry=0.3),
    Row(rho=0.6, event=True),
    Row(rho=0.6, event=False),
    Row(rho=1.7, event=True),
    Row(rho=1.7, event=False, entry=0.2),
]
row_cases = pytest.mark.parametrize("row", ROWS, ids=str)


def simulate(row: Row, count: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the augmented likelihood of `count` prior draws of (omega, Psi), |Psi|, and the sum of Psi's marks."""
    rng = np.random.default_rng(seed)
    owner, time = row.draw_baseline_points(count, rng)
    mark = random_polyagamma(1, 0, size=len(owner), random_state=rng)
    g = row.g(tensor(time)).numpy()
    log_terms = np.bincount(owner, f(mark, -g), minlength=count)
    if row.event:
        omega = random_polyagamma(1, 0, size=count, random_state=rng)
        log_rate = math.log(row.phi) + (row.rho - 1) * math.log(row.time) - math.log(row.z)
        log_terms = log_terms + log_rate + f(omega, float(row.g(tensor(row.time))))
    marks = np.bincount(owner, mark, minlength=count)
    return np.exp(log_terms), np.bincount(owner, minlength=count), marks


@row_cases
def test_likelihood_is_the_mean_of_the_augmented_likelihood(row):
    """Theorem 1 of the paper."""
    augmented, _, _ = simulate(row, count=500_000, seed=5)
    assert abs(z_score(augmented, math.exp(row.log_likelihood()))) < z_bound()


@row_cases
def test_latent_points_and_marks_have_the_mean_of_their_full_conditional(row):
    """Prior draws, weighted by their augmented likelihood, against latent_intensity and polya_gamma_mean."""
    augmented, points, marks = simulate(row, count=500_000, seed=6)
    claimed_points = row.latent_integral()
    claimed_marks = row.latent_integral(polya_gamma_mean)
    assert abs(z_score(augmented * (points - claimed_points), 0)) < z_bound(2)
    assert abs(z_score(augmented * (marks - claimed_marks), 0)) < z_bound(2)


def draw_full_conditional(row: Row, seed: int) -> tuple[float, Tensor, Tensor]:
    """Return omega ~ PG(1, |g|) at the event, and the times and marks of Psi, thinned from the baseline process."""
    rng = np.random.default_rng(seed)
    _, time = row.draw_baseline_points(1, rng)
    kept = tensor(time[rng.uniform(size=len(time)) < torch.sigmoid(-row.g(tensor(time))).numpy()])
    mark = random_polyagamma(1, row.g(kept).abs().numpy(), random_state=rng) if len(kept) else []
    omega = random_polyagamma(1, float(row.g(tensor(row.time)).abs()), random_state=rng)
    return float(omega), kept, tensor(mark)


def draw_wild(row: Row, seed: int) -> tuple[float, Tensor, Tensor]:
    """Return auxiliaries from no law at all: the identity holds at every value."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(4, 12))
    return float(rng.exponential(2)), tensor(rng.uniform(row.entry, row.time, count)), tensor(rng.exponential(2, count))


@row_cases
def test_augmented_likelihood_over_full_conditional_is_one_constant(row):
    """Bayes' rule: joint density over full conditional is the likelihood, whatever the auxiliaries are.

    Densities of Psi are relative to the Poisson process with intensity dt PG(domega | 1, 0), those of omega relative
    to PG(1, 0). Relative to the same, PG(1, c) has the density cosh(c/2) exp(-c^2 omega / 2).
    """

    def log_tilt(omega: Tensor, c: Tensor) -> Tensor:
        return log_cosh_half(c) - c**2 * omega / 2

    length = row.time - row.entry
    end = tensor([row.time])
    seen = []
    draws = [draw_full_conditional(row, seed) for seed in range(6)] + [draw_wild(row, seed) for seed in range(3)]
    for omega, time, mark in draws:
        g = row.g(time)
        log_rate = math.log(row.phi) + log_baseline(time, row.rho) - math.log(row.z)
        joint = float((log_rate + f(mark, -g)).sum()) - row.baseline_mass + length
        conditional = float((torch.log(row.latent(time)) + log_tilt(mark, g)).sum()) - row.latent_integral() + length
        if row.event:
            log_rate_at_end = math.log(row.phi) + float(log_baseline(end, row.rho)) - math.log(row.z)
            joint += log_rate_at_end + float(f(omega, row.g(end)))
            conditional += float(log_tilt(tensor(omega), row.g(end)))
        seen.append(joint - conditional)
    assert len({len(time) for _, time, _ in draws}) > 3, "the draws must differ in their number of points"
    np.testing.assert_allclose(seen, row.log_likelihood(), rtol=1e-12, atol=1e-12)


# -------------------------------------------------------------------------------------- the functions themselves


def relative_error(value: Tensor, exact: mpmath.mpf) -> float:
    found = mpmath.mpf(float(value))
    return float(abs(found - exact) / abs(exact)) if exact else float(abs(found))


@pytest.mark.parametrize("c", BOTH_SIGNS)
def test_polya_gamma_mean_at_fifty_digits(c):
    with mpmath.workdps(50):
        exact = mpmath.tanh(mpmath.mpf(c) / 2) / (2 * mpmath.mpf(c)) if c else mpmath.mpf("0.25")
        assert relative_error(polya_gamma_mean(tensor(c)), exact) < 1e-14


@pytest.mark.parametrize("c", BOTH_SIGNS)
def test_log_cosh_half_at_fifty_digits(c):
    with mpmath.workdps(50):
        exact = mpmath.log(mpmath.cosh(mpmath.mpf(c) / 2))
        assert relative_error(log_cosh_half(tensor(c)), exact) < 1e-14


def test_functions_do_not_see_the_sign_of_c():
    c = tensor(SIZES)
    for function in (polya_gamma_mean, log_cosh_half):
        assert torch.equal(function(c), function(-c))


@pytest.mark.parametrize("function", [polya_gamma_mean, log_cosh_half])
def test_gradients_are_finite_everywhere_and_zero_at_zero(function):
    c = tensor(BOTH_SIGNS).requires_grad_()
    (gradient,) = torch.autograd.grad(function(c).sum(), c)
    assert bool(torch.isfinite(gradient).all())
    assert float(gradient[BOTH_SIGNS.index(0.0)]) == 0


def test_slopes_of_mean_and_log_cosh_half():
    c = tensor([-8.0, -1.2, -0.3, -5e-4, 5e-4, 0.3, 1.2, 8.0]).requires_grad_()
    (slope,) = torch.autograd.grad(log_cosh_half(c).sum(), c)
    torch.testing.assert_close(slope, torch.tanh(c.detach() / 2) / 2, rtol=1e-12, atol=0)
    (slope,) = torch.autograd.grad(polya_gamma_mean(c).sum(), c)
    with mpmath.workdps(50):
        exact = [float(mpmath.diff(lambda v: mpmath.tanh(v / 2) / (2 * v), mpmath.mpf(float(v)))) for v in c.detach()]
    torch.testing.assert_close(slope, tensor(exact), rtol=1e-6, atol=0)


M = [-50.0, -3.0, -1e-3, 0.0, 1e-3, 2.0, 50.0]


@pytest.mark.parametrize("m", M)
def test_thinning_and_bound_are_exact_without_variance(m):
    with mpmath.workdps(50):
        exact = -mpmath.log(1 + mpmath.exp(mpmath.mpf(m)))
        assert relative_error(log_thinning(tensor(m), tensor(abs(m))), exact) < 1e-13
        assert relative_error(log_sigmoid_bound(tensor(-m), tensor(abs(m))), exact) < 1e-13


@pytest.mark.parametrize("m", [-3.0, 0.0, 1.5])
@pytest.mark.parametrize("variance", [0.01, 1.0, 9.0])
def test_bound_lies_below_the_mean_log_sigmoid_and_is_the_best_of_its_family(m, variance):
    s = math.sqrt(m**2 + variance)
    position, weight = np.polynomial.hermite_e.hermegauss(80)
    g = m + math.sqrt(variance) * position
    exact = float(weight @ -np.logaddexp(0, -g) / weight.sum())
    bound = float(log_sigmoid_bound(tensor(m), tensor(s)))
    assert bound < exact

    def with_tilt(c: float) -> float:
        # E[f(omega, g)] - KL under omega ~ PG(1, c); eq. 6 with g's two moments.
        omega = float(polya_gamma_mean(tensor(c)))
        divergence = float(log_cosh_half(tensor(c))) - c**2 * omega / 2
        return m / 2 - s**2 * omega / 2 - math.log(2) - divergence

    assert bound == pytest.approx(with_tilt(s), abs=1e-13)
    assert bound > with_tilt(0.9 * s)
    assert bound > with_tilt(1.1 * s)


def test_thinning_is_the_bound_of_the_mirrored_g():
    m, s = tensor([-2.0, 0.0, 0.4, 3.0]), tensor([2.5, 0.1, 1.0, 3.0])
    torch.testing.assert_close(log_thinning(m, s), log_sigmoid_bound(-m, s), rtol=1e-14, atol=0)


def test_latent_intensity_by_hand():
    # 3 e^(0.4) sigma(2) e^(-(1 + 2)/2)
    found = latent_intensity(tensor([3.0, 0.0]), tensor([1.0, 1.0]), tensor([2.0, 2.0]), 0.4)
    torch.testing.assert_close(found, tensor([3 * math.exp(0.4 - 1.5) / (1 + math.exp(-2)), 0.0]), rtol=1e-14, atol=0)
