"""Tables with more columns than there are points: reduced without loss, and at a cost that does not grow by squares."""

import numpy as np
import pytest

from neuralsurv import NeuralSurv
from neuralsurv.inference.default import fit as additive_fit
from neuralsurv.prediction.predictor import Predictor
from neuralsurv.solvers.rows import DenseRows

pytestmark = pytest.mark.filterwarnings("ignore::neuralsurv.errors.NeuralSurvWarning")


def fitted(columns):
    rng = np.random.default_rng(0)
    x, time = rng.normal(size=(8, columns)), rng.exponential(size=8)
    model = NeuralSurv(hidden=(2,), quadrature_points=2, average=False, draws=200, random_state=0)
    return model.fit(x, (time, np.ones(8, dtype=bool))), x


def test_the_reduction_of_a_linear_path_loses_nothing(monkeypatch):
    reduced, x = fitted(80)
    plain = additive_fit.grouped_solver

    def keep_all(parts, *arguments, **options):
        return plain([(rows, whole or isinstance(rows, DenseRows)) for rows, whole in parts], *arguments, **options)

    monkeypatch.setattr(additive_fit, "grouped_solver", keep_all)
    whole, _ = fitted(80)
    assert reduced.diagnostics_.rank < 80 < whole.diagnostics_.rank
    assert reduced.elbo_[-1] == pytest.approx(whole.elbo_[-1], abs=1e-4)
    times = [0.1, 0.5, 1.0]
    one, other = (Predictor.from_fitted(model.fitted_, model.draws).g(x, times) for model in (reduced, whole))
    np.testing.assert_allclose(one.mean.to_numpy(), other.mean.to_numpy(), atol=0.3 * other.draws.std())
    cumulative = [model.posterior_.theta.mean for model in (reduced, whole)]
    np.testing.assert_allclose(cumulative[0], cumulative[1], atol=1e-3)


def test_ten_thousand_columns():
    model, x = fitted(10_000)
    assert model.diagnostics_.rank < 100
    curves = model.predict_survival(x[:2], [0.1, 1.0]).draws
    assert np.isfinite(curves).all()
    assert (np.diff(curves, axis=2) <= 0).all()
