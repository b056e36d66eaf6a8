"""The ridge Cox model, against lifelines."""

import numpy as np
import pandas as pd
import pytest
from lifelines import CoxPHFitter

from neuralsurv.cli import ridge_cox
from neuralsurv.cli.ridge_cox import fit_ridge_cox
from neuralsurv.data.outcome import Outcome
from neuralsurv.errors import InputError, NotConvergedError


def cohort(n=150, seed=0):
    """Many ties, late entries that matter, and weights."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 3))
    x = (x - x.mean(0)) / x.std(0, ddof=1)
    time = np.ceil(8 * rng.exponential(np.exp(-x[:, 0]))) + 1
    entry = np.where(rng.random(n) < 0.4, np.floor(time * rng.random(n)), 0.0)
    return x, time, rng.random(n) < 0.7, entry, rng.integers(1, 4, n).astype(float)


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_against_lifelines(late, weighted):
    x, time, event, entry, weight = cohort()
    ours = fit_ridge_cox(
        x, Outcome.from_arrays(time, event, entry if late else None, weight if weighted else None), 0.1
    )
    table = pd.DataFrame(x).assign(time=time, event=event)
    columns = {}
    if late:
        table["entry"], columns["entry_col"] = entry, "entry"
    if weighted:
        table["weight"], columns["weights_col"] = weight, "weight"
    # lifelines sets the penalty against the number of rows, we against the sum of weights.
    penalty = 0.1 * (weight.mean() if weighted else 1.0)
    theirs = CoxPHFitter(penalizer=penalty).fit(table, "time", "event", fit_options={"precision": 1e-12}, **columns)
    np.testing.assert_allclose(ours.coefficients, theirs.params_, atol=1e-8)
    # Breslow's baseline in plain loops: lifelines' leaves late entry out.
    hazard = np.exp(x @ theirs.params_.to_numpy()) * (weight if weighted else 1.0)
    total, moments = [0.0], [0.0]
    for moment in np.unique(time[event]):
        at_risk = (time >= moment) & ((entry < moment) if late else True)
        falling = (weight if weighted else np.ones(len(x)))[event & (time == moment)].sum()
        total.append(total[-1] + falling / hazard[at_risk].sum())
        moments.append(moment)
    times = np.array([0.0, 1.0, 2.0, 5.5, 30.0, 1e4])
    curves = np.exp(-np.exp(x[:4] @ theirs.params_.to_numpy())[:, None] * np.interp(times, moments, total))
    np.testing.assert_allclose(ours.survival(x[:4], times), curves, atol=1e-7)


def test_late_entry_matters_here():
    x, time, event, entry, _ = cohort()
    late = fit_ridge_cox(x, Outcome.from_arrays(time, event, entry)).coefficients
    assert np.abs(late - fit_ridge_cox(x, Outcome.from_arrays(time, event)).coefficients).max() > 0.01


def test_a_row_of_weight_zero_is_not_there():
    x, time, event, entry, weight = cohort()
    weight[:20] = 0
    whole = fit_ridge_cox(x, Outcome.from_arrays(time, event, entry, weight))
    rest = fit_ridge_cox(x[20:], Outcome.from_arrays(time[20:], event[20:], entry[20:], weight[20:]))
    np.testing.assert_allclose(whole.coefficients, rest.coefficients, rtol=1e-12)


def test_a_separating_covariate_converges():
    x = np.linspace(2, -2, 40)[:, None]
    model = fit_ridge_cox(x, Outcome.from_arrays(np.arange(1, 41), np.ones(40)), 1e-6)
    assert model.coefficients[0] > 5
    assert (np.diff(model.survival(x, np.array([20.0]))[:, 0]) >= 0).all()


def test_penalty_and_steps(monkeypatch):
    x, time, event, *_ = cohort()
    outcome = Outcome.from_arrays(time, event)
    with pytest.raises(InputError, match="the penalty of the ridge Cox model is 0; it must be a positive number"):
        fit_ridge_cox(x, outcome, 0)
    monkeypatch.setattr(ridge_cox, "_MOST_STEPS", 1)
    with pytest.raises(NotConvergedError, match="the ridge Cox model did not converge in 1 Newton steps"):
        fit_ridge_cox(x, outcome)
