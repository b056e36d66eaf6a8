"""Posterior means without bands, for risk scores, metrics and importances."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from neuralsurv.inference.threads import threads_for
from neuralsurv.model.functionals import restricted_mean
from neuralsurv.posterior.gaussian import people_blocks
from neuralsurv.posterior.mean_curves import MeanCurves, centred
from neuralsurv.prediction.predictor import Predictor, check_horizon, check_times, refuse_nan
from neuralsurv.progress import bar

# People at a time, and how many take about a second.
_PEOPLE, _FEWEST_WITH_A_BAR = 1024, 5000

# From the means of a posterior and encoded rows (n, p) to values (n, k).
Mean = Callable[[MeanCurves, Tensor], Tensor]


@dataclass(frozen=True)
class MeanPredictor:
    """Predicts posterior means: from `curves` where a model has them, else from centred draws of `predictor`."""

    predictor: Predictor
    curves: MeanCurves | None

    def survival(self, X: Any, times: Any) -> np.ndarray:
        """Return mean survival at times, shape (n, T)."""
        if self.curves is None:
            return np.asarray(self._from_draws().survival(X, times).mean.to_numpy())
        scaled = self.predictor.scaled(check_times(times))
        return self._predict(self.curves, "survival", X, lambda curves, x: curves.survival(scaled, x))

    def cumulative_hazard(self, X: Any, times: Any) -> np.ndarray:
        """Return the mean cumulative hazard at times, shape (n, T)."""
        if self.curves is None:
            return np.asarray(self._from_draws().cumulative_hazard(X, times).mean.to_numpy())
        scaled = self.predictor.scaled(check_times(times))
        return self._predict(self.curves, "cumulative hazard", X, lambda curves, x: curves.cumulative_hazard(scaled, x))

    def rmst(self, X: Any, horizon: float) -> np.ndarray:
        """Return the mean of the restricted mean survival time up to `horizon`, shape (n,)."""
        if self.curves is None:
            return np.asarray(self._from_draws().rmst(X, horizon).mean.to_numpy())
        edges = self.predictor.steps(check_horizon(horizon))

        def area(curves: MeanCurves, x: Tensor) -> Tensor:
            # The mean of the areas under the drawn curves is the area under their mean.
            return restricted_mean(edges, -torch.log(curves.survival(edges, x)))[:, None]

        found = self._predict(self.curves, "restricted mean survival time", X, area)
        return np.asarray(found[:, 0] * self.predictor.time_scale)

    def _from_draws(self) -> Predictor:
        return replace(self.predictor, cached_draws=centred(self.predictor.posterior, self.predictor.draws()))

    def _predict(self, curves: MeanCurves, name: str, X: Any, mean: Mean) -> np.ndarray:
        """Return what `mean` gives for all people, block by block, shape (n, k)."""
        x = self.predictor.encode(X)
        shown = self.predictor.verbose if len(x) >= _FEWEST_WITH_A_BAR else False
        completions = torch.from_numpy(self.predictor.encoding.imputations())
        found = []
        # One thread: what is worked on at a time stays in a cache.
        with threads_for(0), bar(f"predicting mean {name}", len(x), shown) as advance:
            for part in people_blocks(len(x), 1, _PEOPLE):
                found.append(_averaged(curves, x[part], completions, mean))
                advance(part.stop, f"{part.stop} of {len(x)} people")
        values = torch.cat(found)
        refuse_nan(values, name)
        return np.asarray(values.numpy())


def _averaged(curves: MeanCurves, x: Tensor, completions: Tensor, mean: Mean) -> Tensor:
    """Return the means of a block of rows (n, p); a row with gaps gets the average over its completions."""
    gaps = torch.isnan(x)
    lacking = gaps.any(1)
    if not lacking.any():
        return mean(curves, x)
    shares = curves.shares
    each = [
        mean(shares[k % len(shares)], torch.where(gaps[lacking], values, x[lacking]))
        for k, values in enumerate(completions)
    ]
    average = torch.stack(each).mean(0)
    found = average.new_empty(len(x), average.shape[1])
    found[lacking] = average
    if not lacking.all():
        found[~lacking] = mean(curves, x[~lacking])
    return found
