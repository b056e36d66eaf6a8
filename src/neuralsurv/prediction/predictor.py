"""From a posterior and rows of covariates to predictions, in the user's unit of time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from neuralsurv.arguments import flat_times
from neuralsurv.data.features import Encoding
from neuralsurv.data.frames import as_frame
from neuralsurv.data.table import check_episodes
from neuralsurv.errors import InputError, NotFiniteError
from neuralsurv.inference.threads import threads_for
from neuralsurv.memory import require
from neuralsurv.model.functionals import invert, level_at, restricted_mean
from neuralsurv.names import counted
from neuralsurv.posterior.fitted import Fitted
from neuralsurv.posterior.gaussian import Draws, Posterior, people_blocks
from neuralsurv.posterior.on_times import OnTimes
from neuralsurv.prediction.missing_values import over_imputations, union, union_by_person
from neuralsurv.prediction.prediction import Prediction
from neuralsurv.progress import bar

# Quantiles, restricted means and event times are read off a curve of this many steps.
_STEPS = 200
_STEPS_A_DOUBLING = 50
# Nothing is predicted later than this multiple of the last training time: computations would overflow.
_FARTHEST = 1e9

# From draws, encoded rows of a block of people and its slice to values; the second one also takes scaled times.
Compute = Callable[[Draws, Tensor, slice], Tensor]
AlongTimes = Callable[[Draws, Tensor, Tensor, slice], Tensor]


@dataclass(frozen=True)
class Predictor:
    """Predicts from a fitted model: what the estimator's methods call, and a few quantities for research.

    Attributes
    ----------
    posterior : Posterior
        The posterior, in scaled time.
    encoding : Encoding
        How covariates become numbers.
    time_scale : float
        The largest training time, in the user's unit.
    count, seed : int
        Number and seed of the joint draws.
    verbose : bool or "auto"
        Whether to show progress.
    cached_draws : Draws, optional
        The joint draws, where they are kept between predictions.

    Examples
    --------
    The output of the network, which no method of the estimator gives:

    >>> from neuralsurv import NeuralSurv
    >>> from neuralsurv.data.simulate import lognormal_cohort
    >>> from neuralsurv.prediction.predictor import Predictor
    >>> cohort = lognormal_cohort(40, seed=1)
    >>> model = NeuralSurv(random_state=0).fit(cohort.x, cohort.y)
    >>> Predictor.from_fitted(model.fitted_).g(cohort.x.head(2), times=[10, 20]).mean.shape
    (2, 2)
    """

    posterior: Posterior
    encoding: Encoding
    time_scale: float
    count: int
    seed: int
    verbose: bool | str | int
    cached_draws: Draws | None = None

    @classmethod
    def from_fitted(cls, fitted: Fitted, draws: int = 1000, verbose: bool | str | int = False) -> Self:
        """Return the predictor of a fitted model, ``model.fitted_``, with this many joint draws."""
        return cls(fitted.posterior, fitted.encoding, fitted.time_scale, draws, fitted.draw_seed, verbose)

    def encode(self, X: Any) -> Tensor:
        """Return the encoded covariates, shape (n, p), with NaN where a value is missing."""
        return torch.from_numpy(np.ascontiguousarray(self.encoding.with_gaps(X)))

    def labels(self, X: Any) -> pd.Index:
        """Return what people are called, by the index of their table."""
        return as_frame(X).index

    def scaled(self, times: np.ndarray) -> Tensor:
        """Return times in scaled units."""
        with np.errstate(over="ignore"):
            scaled = np.asarray(times, dtype=np.float64) / self.time_scale
        if scaled.size and scaled.max() > _FARTHEST:
            raise InputError(
                f"a prediction is asked for time {np.max(times):g}, more than {_FARTHEST:g} times the last training "
                f"time, {self.time_scale:g}; nothing is known of it. Ask for earlier times."
            )
        return torch.from_numpy(scaled)

    def draws(self) -> Draws:
        """Return the joint draws, the same ones every time."""
        if self.cached_draws is not None:
            return self.cached_draws
        # Twice: drawing takes as many random numbers.
        size = self.posterior.network.size
        advice = "Use fewer draws=…, or a model with a smaller network."
        require(2 * 8.0 * self.count * size, f"a prediction from {self.count} draws of {size} weights", advice)
        with threads_for(self.count * size):
            return self.posterior.draw(self.count, self.seed)

    def predict(
        self,
        name: str,
        X: Any,
        compute: Compute,
        *,
        points: int,
        columns: pd.Index | None = None,
        extrapolated: np.ndarray | bool = False,
        other: Tensor | None = None,
    ) -> Prediction:
        """Wrap a computation on blocks of people into a Prediction.

        `compute` goes from the draws, the encoded rows of a block and its slice to values of shape (S, block, k);
        `points` is how many a person needs, for the size of the blocks; `other`, shape (n, p), are encoded rows that
        these people are compared with.
        """
        x = self.encode(X)
        people = self.labels(X)
        width = 1 if columns is None else len(columns)

        def blocks() -> Iterator[np.ndarray]:
            draws = self.draws()
            rows = points * self.posterior.network.numbers_per_point
            numbers = rows + 3 * points * self.count
            with bar(f"predicting {name}", len(people), self.verbose if len(people) > 1000 else False) as advance:
                for part in people_blocks(len(people), numbers):
                    # A product with the rows of the Jacobian gains by several threads, numbers that fit into the cache
                    # do not. Not around the yield: the caller's own work between two blocks keeps all threads.
                    with threads_for((part.stop - part.start) * rows):
                        values = compute(draws, x[part], part)
                        refuse_nan(values, name)
                    yield values.numpy().reshape(self.count, part.stop - part.start, width)
                    advance(part.stop, f"{part.stop} of {len(people)} people")

        beyond = np.broadcast_to(np.asarray(extrapolated, dtype=bool), (width,)).copy()
        filled = self.encoding.filled(x.numpy())
        if other is not None:
            filled = union_by_person(filled, self.encoding.filled(other.expand(len(x), -1).numpy()))
        return Prediction(name, people, columns, beyond, self.count, blocks, filled)

    def steps(self, limit: float) -> Tensor:
        """Return scaled times from 0 to `limit` between which a curve is interpolated.

        They lie closer together near 0 where the baseline hazard is infinite there (rho < 1), and further apart the
        further they are beyond the last training time, so that a far limit does not thin out those that matter.
        """
        self.scaled(np.array([limit]))  # refuses what is too far
        within = min(limit, self.time_scale)
        times = within * np.linspace(0, 1, _STEPS + 1) ** max(1.0, 1 / self.posterior.rho)
        if limit > within:
            count = int(np.ceil(_STEPS_A_DOUBLING * np.log2(limit / within)))
            times = np.concatenate([times, np.geomspace(within, limit, count + 1)[1:]])
        return self.scaled(times)

    def along(
        self, name: str, X: Any, times: Any, curve: AlongTimes, *, reach: float = 0.0, other: Tensor | None = None
    ) -> Prediction:
        """Predict a quantity along times, which may come in any order.

        `curve` goes from the draws, the scaled times in order, the encoded rows of a block and its slice to values of
        shape (S, block, T); `reach` is another time that the quantity needs; `other`, shape (n, p), are encoded rows
        that these people are compared with.
        """
        values = check_times(times)
        order = np.argsort(values, kind="stable")
        back = torch.from_numpy(np.argsort(order, kind="stable"))
        scaled = self.scaled(values[order])
        points = self.posterior.points_per_person(torch.cat([scaled, self.scaled(np.array([reach]))]))
        return self.predict(
            name,
            X,
            lambda draws, x, part: _reorder(curve(draws, scaled, x, part), back),
            points=points if other is None else 2 * points,
            columns=pd.Index(values, name="time"),
            extrapolated=values > self.time_scale,
            other=other,
        )

    def survival(self, X: Any, times: Any) -> Prediction:
        """Survival probability at times."""
        return self.along("survival", X, times, lambda d, t, x, _: self.cumulative(d, t, x).neg_().exp_())

    def cumulative_hazard(self, X: Any, times: Any) -> Prediction:
        """Cumulative hazard at times."""
        return self.along("cumulative hazard", X, times, lambda d, t, x, _: self.cumulative(d, t, x))

    def hazard(self, X: Any, times: Any) -> Prediction:
        """Hazard at times, in events per unit of the user's time."""
        values = check_times(times)
        if self.posterior.rho != 1 and (values == 0).any():
            raise InputError("the hazard at time 0 is 0 or infinite unless rho is 1; ask for times above 0.")
        return self._at_points("hazard", X, times, lambda *at: self.posterior.hazard_draws(*at) / self.time_scale)

    def g(self, X: Any, times: Any) -> Prediction:
        """Output g of the network at times: the logit of the hazard's share of its ceiling."""
        return self._at_points("g", X, times, self.posterior.g_draws)

    def _at_points(
        self, name: str, X: Any, times: Any, compute: Callable[[Draws, Tensor, Tensor], Tensor]
    ) -> Prediction:
        """Predict what `compute` gives at single points: from draws, times (P,) and rows (P, p) to values (S, P)."""

        def curve(draws: Draws, scaled: Tensor, x: Tensor, part: slice) -> Tensor:
            def each(draws: Draws, x: Tensor, _: Tensor) -> Tensor:
                time, rows = scaled.repeat(len(x)), x.repeat_interleave(len(scaled), 0)
                return compute(draws, time, rows).reshape(len(draws), len(x), -1)

            return over_imputations(self.encoding, draws, x, each)

        return self.along(name, X, times, curve)

    def conditional_survival(self, X: Any, times: Any, given: float) -> Prediction:
        """Survival at times, given no event before `given`; 1 before that."""
        alive = check_given(given)
        edge = self.scaled(np.array([alive]))

        def conditional(draws: Draws, scaled: Tensor, x: Tensor, part: slice) -> Tensor:
            later = torch.maximum(scaled, edge)
            both = self.cumulative(draws, torch.cat([edge, later]), x)
            return torch.exp(both[:, :, :1] - both[:, :, 1:])

        return self.along("survival", X, times, conditional, reach=alive)

    def quantile(self, X: Any, q: Any) -> Prediction:
        """Time by which a share q of people like this have had the event; infinite beyond the training range."""
        try:
            shares = np.atleast_1d(np.asarray(q, dtype=np.float64))
        except (TypeError, ValueError, OverflowError):
            shares = np.empty(0)  # refused in the same words
        if shares.ndim != 1 or len(shares) == 0 or not ((shares > 0) & (shares < 1)).all():
            raise InputError(f"q={q!r} must lie strictly between 0 and 1; use 0.5 for the median.")
        levels = torch.from_numpy(-np.log1p(-shares))
        edges = self.steps(self.time_scale)

        def quantile(draws: Draws, x: Tensor, part: slice) -> Tensor:
            curves = self.cumulative(draws, edges, x)
            return self.reached(edges, curves, levels.expand(*curves.shape[:2], -1))

        name = "median event time" if np.isscalar(q) and q == 0.5 else "event time quantile"
        columns = None if np.isscalar(q) else pd.Index(shares, name="q")
        return self.predict(name, X, quantile, points=self.posterior.points_per_person(edges), columns=columns)

    def event_time(self, X: Any) -> Prediction:
        """Return draws of the person's own event time from its posterior predictive distribution."""
        return self.event_time_after(X, np.zeros(len(self.labels(X))))

    def event_time_after(self, X: Any, entry: np.ndarray) -> Prediction:
        """Return draws of the event time of each person, given no event before their `entry`, shape (n,)."""
        edges = self.steps(self.time_scale)
        start = self.scaled(entry)

        def event_time(draws: Draws, x: Tensor, part: slice) -> Tensor:
            # One stream for each person, so that the draws do not depend on how people are cut into blocks.
            people = range(part.start, part.stop)
            chance = [np.random.default_rng((self.seed, k)).exponential(size=len(draws)) for k in people]
            curves = self.cumulative(draws, edges, x)
            lived = level_at(edges**self.posterior.rho, curves, start[part] ** self.posterior.rho)
            level = torch.from_numpy(np.stack(chance, axis=1)) + lived
            return self.reached(edges, curves, level[:, :, None])

        return self.predict("event time", X, event_time, points=self.posterior.points_per_person(edges))

    def rmst(self, X: Any, horizon: float) -> Prediction:
        """Restricted mean survival time up to `horizon`."""
        limit = check_horizon(horizon)
        edges = self.steps(limit)
        return self.predict(
            f"restricted mean survival time to {limit:g}",
            X,
            lambda draws, x, part: restricted_mean(edges, self.cumulative(draws, edges, x)) * self.time_scale,
            points=self.posterior.points_per_person(edges),
            extrapolated=limit > self.time_scale,
        )

    def difference(self, X_a: Any, X_b: Any, times: Any = None, horizon: float | None = None) -> Prediction:
        """Difference a − b of survival at times, or of the restricted mean up to a horizon, from the same draws."""
        if (times is None) == (horizon is None):
            raise InputError("give either times (difference of survival) or horizon (difference of restricted means).")
        check_pairs(X_a, X_b)
        x_b = self.encode(X_b)

        def other(part: slice) -> Tensor:
            return x_b if len(x_b) == 1 else x_b[part]

        if horizon is not None:
            limit = check_horizon(horizon)
            edges = self.steps(limit)

            def gap(draws: Draws, x: Tensor, part: slice) -> Tensor:
                sums = [restricted_mean(edges, self.cumulative(draws, edges, rows)) for rows in (x, other(part))]
                return (sums[0] - sums[1]) * self.time_scale

            name = f"difference of restricted means to {limit:g}"
            points = 2 * self.posterior.points_per_person(edges)
            return self.predict(name, X_a, gap, points=points, extrapolated=limit > self.time_scale, other=x_b)

        def difference(draws: Draws, scaled: Tensor, x: Tensor, part: slice) -> Tensor:
            curves = [torch.exp(-self.cumulative(draws, scaled, rows)) for rows in (x, other(part))]
            return curves[0] - curves[1]

        return self.along("difference of survival", X_a, times, difference, other=x_b)

    def path_survival(self, X: Any, times: Any, subject: Any, entry: np.ndarray, time: np.ndarray) -> Prediction:
        """Predict survival along the episodes of subjects, given that they are event-free at the start of the first.

        The episodes of a subject must follow each other without a gap, up to the last of the times or further.
        """
        values = check_times(times)
        codes, people = pd.factorize(check_episodes(subject, entry, time, None), sort=False)
        episodes = np.split(np.lexsort((entry, codes)), np.cumsum(np.bincount(codes))[:-1])
        for name, rows in zip(people.tolist(), episodes, strict=True):
            _check_path(name, entry[rows], time[rows], values)
        x = self.encode(X)
        width = len(values)

        def blocks() -> Iterator[np.ndarray]:
            draws = self.draws()
            for rows in episodes:
                total = torch.zeros(self.count, width, dtype=torch.float64)
                for row in rows:
                    ends = np.clip(values, entry[row], time[row])
                    order = np.argsort(ends, kind="stable")
                    edges = self.scaled(np.concatenate([entry[row : row + 1], ends[order]]))
                    curve = self.cumulative(draws, edges, x[row : row + 1])[:, 0]
                    total += (curve[:, 1:] - curve[:, :1])[:, np.argsort(order, kind="stable")]
                yield torch.exp(-total).numpy()[:, None, :]

        index = pd.Index(people, name="id")
        columns = pd.Index(values, name="time")
        by_episode = self.encoding.filled(x.numpy())
        filled = tuple(union(*(by_episode[row] for row in rows)) for rows in episodes) if by_episode else ()
        return Prediction("survival", index, columns, values > self.time_scale, self.count, blocks, filled)

    def cumulative(self, draws: Draws, scaled: Tensor, x: Tensor) -> Tensor:
        """Cumulative hazard of a block, shape (S, n, T)."""
        shared = self.on_times(draws, scaled)
        if shared is None:
            return over_imputations(
                self.encoding, draws, x, lambda own, rows, _: self.posterior.cumulative_hazard_draws(own, scaled, rows)
            )
        parts = over_imputations(self.encoding, draws, x, lambda own, rows, _: shared.of_people(own.theta, rows))
        return shared.cumulative_hazard(parts)

    def on_times(self, draws: Draws, scaled: Tensor) -> OnTimes | None:
        """Return what the cumulative hazards of all people at these times share, where they share something."""
        return self.posterior.on_times(draws, scaled)

    def reached(self, edges: Tensor, curves: Tensor, level: Tensor) -> Tensor:
        """Return when curves (S, n, E) reach levels (S, n, k), in the user's unit.

        Between two edges a curve is linear in t^rho, as that of the baseline is.
        """
        rho = self.posterior.rho
        return invert(edges**rho, curves, level) ** (1 / rho) * self.time_scale


def _reorder(values: Tensor, order: Tensor) -> Tensor:
    """Return values (S, n, T) with their times reordered, without a copy if the order is unchanged."""
    return values if torch.equal(order, torch.arange(len(order))) else values[:, :, order]


def refuse_nan(values: Tensor, name: str) -> None:
    """Raise NotFiniteError if any value is NaN."""
    # The sum is NaN if any value is, and costs a fraction of the work of computing the values.
    if bool(torch.isnan(values.sum())) and bool(torch.isnan(values).any()):
        raise NotFiniteError(
            f"{name} became NaN: numbers of the model or of these people are too extreme to be computed with. Look for "
            "covariates far from the training rows, or for a damaged model."
        )


def check_times(times: Any) -> np.ndarray:
    """Return times as a flat float array; raise InputError if they are not valid."""
    try:
        values = np.atleast_1d(np.asarray(times, dtype=np.float64))
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"times cannot be read as numbers: {error}; give one or more times in a flat list.") from error
    return flat_times(values)


def check_given(given: Any) -> float:
    """Return the time that people are known to have reached; raise InputError if it is not valid."""
    alive = _number(given)
    if not 0 <= alive < np.inf:
        raise InputError(f"given={given!r} must be one finite time of at least 0, the same for everybody.")
    return alive


def check_pairs(X_a: Any, X_b: Any) -> None:
    """Refuse two tables that cannot be compared row by row."""
    a, b = len(as_frame(X_a)), len(as_frame(X_b))
    if b not in (1, a):
        raise InputError(f"X_a has {counted(a, 'row')} and X_b {b}; give as many, or a single row in X_b.")


def check_horizon(horizon: Any) -> float:
    """Return the horizon as a number; raise InputError if it is not valid."""
    limit = _number(horizon)
    if not 0 < limit < np.inf:
        raise InputError(f"horizon={horizon!r} must be a positive, finite time.")
    return limit


def _number(value: Any) -> float:
    """Return a value as a number, or NaN if it is not one."""
    try:
        return float(value) if np.ndim(value) == 0 else np.nan
    except (TypeError, ValueError, OverflowError):
        return np.nan


def _check_path(name: Any, entry: np.ndarray, time: np.ndarray, values: np.ndarray) -> None:
    """Refuse a subject whose episodes, in order, leave a gap or end before the last requested time."""
    gaps = entry[1:] != time[:-1]
    if gaps.any():
        raise InputError(
            f"the path of subject {name!r} has a gap after time {time[:-1][gaps][0]:g}; its episodes must "
            "follow each other."
        )
    if values.max() > time[-1]:
        raise InputError(
            f"times go up to {values.max():g}, but the path of subject {name!r} ends at {time[-1]:g}; "
            "extend its last episode or ask for earlier times."
        )
