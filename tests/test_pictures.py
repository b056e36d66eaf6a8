"""The pictures of the explanation pages: that they can be drawn, and that what they show is so."""

import matplotlib
import numpy as np
import pytest
import torch
from matplotlib import pyplot
from scipy.integrate import quad
from scipy.stats import norm
from torch.nn.functional import logsigmoid

from neuralsurv import NeuralSurv
from neuralsurv.data.simulate import lognormal_cohort
from neuralsurv.inference.default.settings import DefaultSettings
from pictures.algorithm import (
    bound_curvature,
    draw_bound,
    draw_sweeps,
    exact_curvature,
    quadratic_bound,
    sweep_plainly,
)
from pictures.hazard import draw_hazard, logits, shares
from pictures.posterior import draw_bands, draw_posterior, mean_width
from pictures.prior import default_prior, draw_prior, paper_prior

matplotlib.use("Agg")


@pytest.fixture(scope="module")
def model():
    cohort = lognormal_cohort(40, seed=1)
    return NeuralSurv(random_state=0, verbose=False).fit(cohort.x, cohort.y)


def looks_drawn(path):
    picture = pyplot.imread(path)
    return min(picture.shape[:2]) > 300 and picture.std() > 0.01 and pyplot.get_fignums() == []


def test_all_pictures_can_be_drawn(model, tmp_path):
    drawn = [draw_hazard(tmp_path), draw_prior(model, lognormal_cohort(40, seed=1), tmp_path), draw_bound(tmp_path)]
    drawn += [draw_posterior(tmp_path, (10, 20)), draw_bands(tmp_path, (15, 30), cohorts=1), draw_sweeps(tmp_path, 20)]
    assert len({path.name for path in drawn}) == 6
    assert all(looks_drawn(path) for path in drawn)


def test_the_two_hazards_of_the_first_picture_cross():
    time = torch.linspace(0.01, 1, 100, dtype=torch.float64)
    first, second = shares(time).values()
    assert first[0] > second[0]
    assert first[-1] < second[-1]
    assert all(g.shape == time.shape for g in logits(time).values())


def test_draws_of_the_default_prior_lie_around_the_crude_rate(model):
    draws = default_prior(model, 400, seed=3)
    time = torch.full((1,), 0.3, dtype=torch.float64)
    x = torch.zeros(1, model.posterior_.network.covariates, dtype=torch.float64)
    share = torch.sigmoid(model.posterior_.g_draws(draws, time, x))[:, 0]
    # The median of 400 draws; g there has a spread of about 3, so the median one of about 0.2 in g.
    middle = float(torch.logit(share).median())
    assert abs(middle + np.log(DefaultSettings().headroom - 1)) < 1.2


def test_the_papers_prior_is_a_step_and_its_curves_fall():
    time = torch.linspace(0, 1, 101, dtype=torch.float64)
    share, survival = paper_prior(time, torch.ones(1, 4, dtype=torch.float64), 200, seed=0)
    # Most of them are within a hundredth of 0 or 1, as the page says.
    assert float(((share < 0.01) | (share > 0.99)).double().mean()) > 0.5
    assert (survival.diff(dim=1) <= 0).all()
    assert (survival <= 1).all()


def test_bands_become_narrower_with_rows():
    times = np.linspace(1, 60, 20)
    assert mean_width(200, 1, times) < 0.7 * mean_width(20, 1, times)


def test_the_bound_touches_from_below():
    g = torch.linspace(-8, 8, 1601, dtype=torch.float64)
    for touching in (0.5, 1.0, 4.0):
        gap = logsigmoid(g) - quadratic_bound(g, touching)
        assert gap.min() > -1e-12
        ends = torch.tensor([-touching, touching], dtype=torch.float64)
        torch.testing.assert_close(quadratic_bound(ends, touching), logsigmoid(ends))


def test_curvatures_of_the_time_at_risk():
    mean = torch.tensor([-5.0, -3.0, -1.0], dtype=torch.float64)

    # Independently: E σ(g) by adaptive quadrature, and its second difference in the mean of g.
    def expected(middle):
        return quad(lambda g: norm.pdf(g, middle, 0.5) / (1 + np.exp(-g)), middle - 6, middle + 6, epsabs=1e-13)[0]

    step = 0.01
    second = [(expected(m + step) - 2 * expected(m) + expected(m - step)) / step**2 for m in mean.tolist()]
    np.testing.assert_allclose(exact_curvature(mean, 0.25), second, rtol=1e-3)
    assert (bound_curvature(mean, 0.25) > exact_curvature(mean, 0.25)).all()


def test_the_run_of_the_algorithm_page_collapses_and_never_falls():
    fitted = sweep_plainly(lognormal_cohort(80, seed=0))
    assert fitted.diagnostics_.collapsed, "the page says so"
    assert (np.diff(fitted.elbo_) > -1e-8).all()
