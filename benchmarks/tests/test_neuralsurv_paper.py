"""The paper preset as a method, where something of it is changed: the curve that stands for it, the rows it sees."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from scipy.special import expit

from neuralsurv_bench.methods.interface import Rows, Settings
from neuralsurv_bench.methods.neuralsurv_paper import FittedPaper, mode_phi, paper_method
from small_split import SPLIT

pytestmark = pytest.mark.filterwarnings("ignore::neuralsurv.errors.NeuralSurvWarning")


def fitted(change: str) -> FittedPaper:
    found = paper_method((3,), change=change).fit(SPLIT, Settings(seed=4))
    assert isinstance(found, FittedPaper)
    return found


def network_at_the_mode(one: FittedPaper, time: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Return g at the mode by the definition of a network with one hidden layer; time is scaled, x has all columns."""
    posterior = one.model.posterior_
    (first, first_bias), (second, second_bias) = (
        (weight.numpy(), bias.numpy()) for weight, bias in posterior.network.layers(posterior.theta_star)
    )
    hidden = np.column_stack([time, x[:, one.kept]]) @ first.T + first_bias
    return (np.maximum(hidden, 0) @ second.T + second_bias)[:, 0]


def integrated_share(one: FittedPaper, until: float, x: np.ndarray) -> float:
    """Return the integral of σ(g) / Z from 0 to `until`, for one person and in scaled time, on a fine grid."""
    grid = np.linspace(0, until / one.model.time_scale_, 4001)
    return float(np.trapezoid(2 * expit(network_at_the_mode(one, grid, np.tile(x, (len(grid), 1)))), grid))


def test_the_curve_of_the_mode_is_that_of_the_network_before_any_posterior():
    one = fitted("curve of the mode")
    times = np.array([0.0, 3.0, 20.0, 45.0])
    by_hand = [[np.exp(-one.mode_phi * integrated_share(one, time, x)) for time in times] for x in SPLIT.test.x]
    found = one.survival(SPLIT.test.x, times)
    assert found == pytest.approx(np.array(by_hand), abs=2e-3)
    assert np.ptp(found[:, 2]) > 0.05
    assert np.abs(found - fitted("as the preset").survival(SPLIT.test.x, times)).max() > 0.01


def test_the_phi_of_the_mode_is_the_most_probable_one():
    one, train = fitted("curve of the mode"), SPLIT.train
    exposure = sum(integrated_share(one, time, x) for time, x in zip(train.time, train.x, strict=True))

    def against(phi: float) -> float:
        # Prior Gamma(1, 1): its density is exp(-phi).
        return float(phi * (1 + exposure) - train.event.sum() * np.log(phi))

    assert one.mode_phi == pytest.approx(minimize_scalar(against, bounds=(1e-3, 1e3), method="bounded").x, rel=1e-3)
    twice = mode_phi(
        one.model, Rows(*(np.concatenate([part] * 2) for part in (train.x[:, one.kept], train.time, train.event)))
    )
    assert twice == pytest.approx(2 * train.event.sum() / (1 + 2 * exposure), rel=1e-3)


def test_validation_rows_are_fitted_to_only_where_that_is_what_is_changed():
    assert fitted("as the preset").model.training_["rows"] == 40
    assert fitted("fitted to validation rows too").model.training_["rows"] == 50


def test_other_changes_reach_the_estimator():
    assert fitted("mode by EM").model.get_params()["mode"] == "em"
    assert torch.equal(
        fitted("5,000 draws").model.posterior_.theta_star, fitted("as the preset").model.posterior_.theta_star
    )
