"""Posterior means without bands, for risk scores, metrics and importances."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from neuralsurv.inference.threads import threads_for
from neuralsurv.model.functionals import restricted_mean
from neuralsurv.posterior.gaussian import people_blocks
from neuralsurv.posterior.mean_curves import MeanCurves
from neuralsurv.prediction.predictor import Predictor, check_horizon, check_times, refuse_nan
from neuralsurv.progress import bar

# People at a time, and how many take two seconds or so.
_PEOPLE, _FEWEST_WITH_A_BAR = 1024, 5000

Mean = Callable[[MeanCurves, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class MeanPredictor:
    """Predicts posterior means: from `curves` where a model has them, else from the draws of `predictor`."""

    predictor: Predictor
    curves: MeanCurves | None

    def survival(self, X: Any, times: Any) -> np.ndarray:
        """Return mean survival at times, shape (n, T)."""
        if self.curves is None:
            return np.asarray(self.predictor.survival(X, times).mean.to_numpy())
        return self._curve(X, self.predictor.scaled(check_times(times)), MeanCurves.survival, "survival").numpy()

    def cumulative_hazard(self, X: Any, times: Any) -> np.ndarray:
        """Return the mean cumulative hazard at times, shape (n, T)."""
        if self.curves is None:
            return np.asarray(self.predictor.cumulative_hazard(X, times).mean.to_numpy())
        scaled = self.predictor.scaled(check_times(times))
        return self._curve(X, scaled, MeanCurves.cumulative_hazard, "cumulative hazard").numpy()

    def rmst(self, X: Any, horizon: float) -> np.ndarray:
        """Return the mean of the restricted mean survival time up to `horizon`, shape (n,)."""
        if self.curves is None:
            return np.asarray(self.predictor.rmst(X, horizon).mean.to_numpy())
        edges = self.predictor.steps(check_horizon(horizon))
        survival = self._curve(X, edges, MeanCurves.survival, "survival")
        # The mean over the draws of their areas is the area under the mean curve.
        return restricted_mean(edges, -torch.log(survival)).numpy() * self.predictor.time_scale

    def _curve(self, X: Any, scaled: Tensor, mean: Callable[[MeanCurves, Tensor, Tensor], Tensor], name: str) -> Tensor:
        """Return a curve of n people; for those who lack a value, averaged over values in its place."""
        assert self.curves is not None
        x = self.predictor.encode(X)
        gaps = torch.isnan(x)
        rows = gaps.any(1).nonzero().squeeze(1)
        found = torch.zeros(len(x), len(scaled), dtype=torch.float64)
        # One thread: the blocks are small enough for a cache.
        with threads_for(0):
            for part in people_blocks(len(x), 1, _PEOPLE):
                found[part] = self._block(x[part], scaled, mean)
                advance(part.stop, f"{part.stop} of {len(x)} people")
        refuse_nan(found, name)
        return found

    def _block(self, x: Tensor, scaled: Tensor, mean: Mean) -> Tensor:
        assert self.curves is not None
        gaps = torch.isnan(x)
        lacking = gaps.any(1)
        if not lacking.any():
            return mean(self.curves, scaled, x)
        found = torch.zeros(len(x), len(scaled), dtype=torch.float64)
        if not lacking.all():
            found[~lacking] = mean(self.curves, scaled, x[~lacking])
        completions = torch.from_numpy(self.predictor.encoding.imputations())
        for k, values in enumerate(completions):
            share = self.curves.shares[k % len(self.curves.shares)]
            complete = torch.where(gaps[lacking], values, x[lacking])
            found[lacking] += mean(share, scaled, complete) / len(completions)
        return found
