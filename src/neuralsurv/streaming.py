"""Fits of rows that do not fit into memory, or that many machines share: ``NeuralSurv.fit_stream``."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from sklearn.utils import check_random_state

from neuralsurv.checkpoint import Checkpoint
from neuralsurv.data.features import Encoding
from neuralsurv.data.outcome import Outcome
from neuralsurv.data.stream import Chunk, Source, number_apart, open_source
from neuralsurv.data.survey import MomentTaker, Survey, Surveyor, nothing_seen
from neuralsurv.diagnostics import Diagnostics
from neuralsurv.errors import ConvergenceWarning, InputError
from neuralsurv.inference.distributed import Team, join_team, together
from neuralsurv.inference.keeping import Keeper, NoKeeper
from neuralsurv.inference.packed import BLOCK_ROWS, PackedRows, Packer
from neuralsurv.inference.stream_fit import StreamFit, StreamFitter, StreamPlan
from neuralsurv.memory import explained
from neuralsurv.mixed_posterior import MixedPosterior
from neuralsurv.posterior import Posterior
from neuralsurv.presets import Choices, DefaultChoices, resolve
from neuralsurv.progress import bar

if TYPE_CHECKING:
    from neuralsurv.estimator import NeuralSurv

METHODS = ("auto", "exact", "mini-batch")
SHARDS = ("shared", "own")
# Up to this many rows "auto" sweeps over all of them; that takes about three times as many passes as the steps.
_ROWS_FOR_SWEEPS = 200_000
# Rows that feature learning sees in all, where it chooses the passes itself.
_ROWS_TO_LEARN_FROM = 2_000_000
_MOST_TRAINING_PASSES = 50
_PASSES = 2
_TRAINING_ROWS = 256
_RATE = 5e-3
_DIRECTIONS = 200
_MOST_TIMES = 1000
_CROWDED_SHARE = 0.01
_COLLAPSE_SHARE = 0.05
# What a streamed fit holds grows with the network, and not with the rows.
_MEMORY_ADVICE = "Use a smaller network (hidden=…), fewer directions=…, or a smaller batch_size."


@dataclass(frozen=True)
class Roles:
    """Which columns are the outcome.

    Attributes
    ----------
    time, event : str
        Columns of the outcome.
    entry, weight : str or None
        Further ones, where there are any.
    """

    time: str
    event: str
    entry: str | None
    weight: str | None

    @property
    def names(self) -> dict[str, str]:
        """Columns by role."""
        return {role: name for role, name in asdict(self).items() if name is not None}

    def read(self, chunk: Chunk) -> tuple[pd.DataFrame, Outcome]:
        """Return covariates and checked outcome of a chunk; a message says which chunk it is about."""
        try:
            outcome = Outcome.from_frame(chunk.frame, self.time, self.event, self.entry, self.weight)
        except InputError as error:
            raise InputError(f"{chunk.place}, chunk {chunk.number}: {error}") from error
        return chunk.frame.drop(columns=list(self.names.values())), outcome


@dataclass(frozen=True)
class Stream:
    """The chunks of a source that belong to this process.

    Attributes
    ----------
    source : Source
        Where rows come from.
    roles : Roles
        The outcome.
    columns : list of str or None
        Columns to read; all if None.
    team : Team
        The processes.
    own : bool
        Whether each process brings rows of its own, in place of a share of the same ones.
    verbose : bool or "auto"
        Whether to show progress.
    """

    source: Source
    roles: Roles
    columns: list[str] | None
    team: Team
    own: bool
    verbose: bool | str | int

    def _mine(self, number: int) -> bool:
        return self.own or number % self.team.size == self.team.rank

    def chunks(self, title: str) -> Iterator[tuple[int, pd.DataFrame, Outcome]]:
        """Yield number, covariates and outcome of every chunk of this process."""
        first = number_apart(self.team.rank) if self.own else 0
        rows = 0
        with bar(title, None, self.verbose if self.team.rank == 0 else False) as advance:
            for chunk in self.source.chunks(self._mine, self.columns):
                covariates, outcome = self.roles.read(chunk)
                yield first + chunk.number, covariates, outcome
                rows += len(outcome)
                advance(rows, f"{rows:,} rows")

    def survey(self) -> Survey:
        """Go through the rows for the first time."""

        def look() -> Survey:
            surveyor = Surveyor()
            for _, covariates, outcome in self.chunks("looking at the rows"):
                surveyor.add(covariates, outcome)
            return surveyor.finish()

        def join() -> Survey:
            total = sum(self.team.gather(found), nothing_seen())
            total.check_fittable()
            return total

        found = together(self.team, look)
        return together(self.team, join)

    def encoding(self, survey: Survey, *, standardise: bool) -> Encoding:
        """Go through the rows for the second time."""
        taker = MomentTaker(survey)

        def look() -> MomentTaker:
            for _, covariates, outcome in self.chunks("means and spreads"):
                taker.add(covariates, outcome)
            return taker

        together(self.team, look)
        first, *others = self.team.gather(taker.found)
        return taker.encoding(sum(others, first), standardise=standardise)

    def pack(self, survey: Survey, encoding: Encoding, seed: int, folder: str | None) -> PackedRows:
        """Go through the rows for the third time, and keep them encoded in a file."""
        packer = Packer(folder, len(encoding.outputs), seed)

        def look() -> Packer:
            for number, covariates, outcome in self.chunks("encoding the rows"):
                present = outcome.weight > 0
                if present.any():
                    kept, scale = outcome.select(present), survey.last_time
                    x = encoding.transform(covariates[present])
                    packer.add(number, kept.time / scale, kept.event, kept.entry / scale, kept.weight, x)
            return packer

        try:
            return together(self.team, look).finish(self.team)
        except BaseException:
            packer.close()
            raise


class StreamMethods:
    """The streamed fit of the estimator."""

    def fit_stream(
        self,
        data: Any,
        *,
        time: str,
        event: str,
        entry: str | None = None,
        weight: str | None = None,
        features: list[str] | None = None,
        method: str = "auto",
        training_passes: int | None = None,
        passes: int = _PASSES,
        batch_size: int = 4096,
        training_batch_size: int = _TRAINING_ROWS,
        directions: int = _DIRECTIONS,
        modes: int = 1,
        checkpoint: str | os.PathLike[str] | None = None,
        checkpoint_seconds: float = 60.0,
        scratch: str | os.PathLike[str] | None = None,
        shards: str = "shared",
    ) -> NeuralSurv:
        """Fit rows that come in batches; memory does not grow with their number.

        The network's features are learned by mini-batch training, it is linearised there, and the posterior comes
        from sums over the rows. Under torchrun the processes share the rows. See the page on large cohorts.

        Parameters
        ----------
        data : path, list of paths, iterable or callable
            Parquet files (a file, a folder, a pattern such as ``"folder/*.parquet"``), or batches of rows that can be
            gone through several times: a list of data frames, an object whose iterator starts anew, or a function
            without arguments that returns an iterator.
        time, event : str
            Columns of the outcome.
        entry, weight : str, optional
            Columns with late entry and row weights.
        features : list of str, optional
            The covariates; all other columns if not given.
        method : {"auto", "exact", "mini-batch"}
            How the posterior is found: by sweeps over all rows until the ELBO stands still, or by natural-gradient
            steps on samples of them. ``"auto"`` sweeps up to 200,000 rows.
        training_passes : int, optional
            Passes of feature learning; by default so many that 2 million rows are seen, at least 1 and at most 50. 0
            leaves the network at its random draw, as `fit` of fewer than 2,000 rows does.
        passes : int
            Passes of the natural-gradient steps.
        batch_size : int
            Rows of a natural-gradient step, of all processes together; a multiple of 256.
        training_batch_size : int
            The same for a step of feature learning. Small steps learn more in a pass; with many processes a step should
            hold at least 256 rows for each, or they wait for each other.
        directions : int
            Largest number of directions of the network in which the posterior is worked out as a whole; across them
            weights are independent.
        modes : int
            How many modes the posterior lies around. Features are learned so many times, each time from another random
            draw of the network, and predictions average over all of them: so many times the work, for curves closer to
            the truth and wider bands, which hold it more often. For the default preset.
        checkpoint : path, optional
            A file that the state is saved to; if it is there, the fit goes on from it. Further modes have files of
            their own, with ``.2``, ``.3`` and so on after this name.
        checkpoint_seconds : float
            Seconds between two saves.
        scratch : path, optional
            Folder for the encoded rows, 8·(4 + columns) bytes a row; the system's for temporary files by default.
        shards : {"shared", "own"}
            With several processes: whether all are given the same data and share it out, or each is given rows of its
            own.

        Returns
        -------
        NeuralSurv
            The fitted estimator itself.

        Examples
        --------
        >>> from neuralsurv import NeuralSurv
        >>> from neuralsurv.data.simulate import lognormal_cohort
        >>> cohort = lognormal_cohort(300, seed=1)
        >>> table = cohort.x.assign(time=cohort.time, event=cohort.event)
        >>> batches = [table[:100], table[100:250], table[250:]]
        >>> model = NeuralSurv(hidden=(4,), random_state=0).fit_stream(batches, time="time", event="event")
        >>> model.training_["rows"]
        300
        """
        model: Any = self
        choices = resolve(**{name: value for name, value in model.get_params().items() if name in _choices()})
        model._check_draws()
        if model.inference != "variational":
            raise InputError(f"inference={model.inference!r} needs all rows in memory; fit_stream is variational.")
        sizes = {
            "training_passes": training_passes,
            "passes": passes,
            "batch_size": batch_size,
            "training_batch_size": training_batch_size,
            "directions": directions,
            "modes": modes,
        }
        _check(method, shards, sizes, checkpoint_seconds)
        if modes > 1 and not isinstance(choices, DefaultChoices):
            raise InputError(f"modes={modes} is for the default preset; the paper's posterior lies around one mode.")
        source = open_source(data)
        roles = Roles(time, event, entry, weight)
        columns = None if features is None else [*features, *roles.names.values()]
        seeds = check_random_state(model.random_state).randint(2**31 - 1, size=2)
        with join_team() as team:
            # Without a seed of their own, processes would each draw another.
            seeds = team.gather(seeds)[0]
            stream = Stream(source, roles, columns, team, shards == "own", model.verbose)
            survey = stream.survey()
            encoding = stream.encoding(survey, standardise=model.standardise)
            plan = _plan(survey.rows, method, sizes)
            mode_seeds = _mode_seeds(int(seeds[0]), modes)
            keepers: list[Keeper] = [NoKeeper() for _ in mode_seeds]
            if checkpoint is not None:
                keepers = [
                    Checkpoint(
                        os.fspath(checkpoint) + (f".{number}" if number > 1 else ""),
                        _fingerprint(survey, encoding, choices, plan, seed),
                        team,
                        every=checkpoint_seconds,
                    )
                    for number, seed in enumerate(mode_seeds, 1)
                ]
            folder = None if scratch is None else os.fspath(scratch)
            with (
                explained("the fit", _MEMORY_ADVICE),
                closing(stream.pack(survey, encoding, int(seeds[0]), folder)) as rows,
            ):
                results = []
                for number, (seed, keeper) in enumerate(zip(mode_seeds, keepers, strict=True), 1):
                    told = f" (mode {number} of {modes})" if modes > 1 else ""
                    width = len(encoding.outputs)
                    fitter = StreamFitter(rows, survey, width, plan, seed, team, keeper, model.verbose, told)
                    results.append(fitter.fit(choices))
        _keep(model, results, survey, encoding, roles, int(seeds[1]))
        for message in model.diagnostics_.messages:
            warnings.warn(message, ConvergenceWarning, stacklevel=2)
        fitted: NeuralSurv = model
        return fitted


def _choices() -> set[str]:
    from dataclasses import fields

    return {"preset", *(f.name for f in fields(Choices)), *(f.name for f in fields(DefaultChoices))}


def _mode_seeds(seed: int, modes: int) -> list[int]:
    """Return the seed of the fit around each mode; the first does not depend on how many there are."""
    return [seed, *map(int, np.random.default_rng([seed, 1]).integers(2**31 - 1, size=modes - 1))]


def _check(method: str, shards: str, sizes: dict[str, int | None], seconds: float) -> None:
    for name, value, known in (("method", method, METHODS), ("shards", shards, SHARDS)):
        if value not in known:
            raise InputError(f"{name}={value!r} is not known; use one of {', '.join(known)}.")
    for name, number in sizes.items():
        least = 0 if name == "training_passes" else 1
        if number is not None and (not isinstance(number, int | np.integer) or number < least):
            raise InputError(f"{name}={number!r} must be a whole number of at least {least}.")
    if not seconds >= 0:
        raise InputError(f"checkpoint_seconds={seconds!r} must be 0 or more.")


def _plan(rows: int, method: str, sizes: dict[str, int | None]) -> StreamPlan:
    given = {name: int(number) for name, number in sizes.items() if number is not None}
    passes = max(1, min(_MOST_TRAINING_PASSES, round(_ROWS_TO_LEARN_FROM / rows)))
    return StreamPlan(
        exact=method == "exact" or (method == "auto" and rows <= _ROWS_FOR_SWEEPS),
        training_passes=given.get("training_passes", passes),
        passes=given["passes"],
        training_blocks=max(1, round(given["training_batch_size"] / BLOCK_ROWS)),
        blocks=max(1, round(given["batch_size"] / BLOCK_ROWS)),
        rate=_RATE,
        directions=given["directions"],
    )


def _fingerprint(
    survey: Survey, encoding: Encoding, choices: Choices | DefaultChoices, plan: StreamPlan, seed: int
) -> dict[str, Any]:
    """Return what tells one fit from another, in plain values."""

    def plain(values: dict[str, Any]) -> dict[str, Any]:
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}

    return {
        "rows": survey.rows,
        "events": survey.events,
        "exposure": survey.exposure,
        "last time": survey.last_time,
        "columns": list(encoding.outputs),
        "means of the columns": encoding.center.tolist(),
        "seed": seed,
        **plain(asdict(choices)),
        **plain(asdict(plan)),
    }


def _keep(
    model: Any, results: list[StreamFit], survey: Survey, encoding: Encoding, roles: Roles, draw_seed: int
) -> None:
    parts = [Posterior(r.phi, r.theta, r.theta_star, r.network, r.normaliser, r.rho) for r in results]
    model.posterior_ = parts[0] if len(parts) == 1 else MixedPosterior.of(tuple(parts))
    # On average over the modes, which is a bound for the mixture as well. Where one was done before the others, it
    # stays where it ended.
    longest = max(len(result.settled.elbo) for result in results)
    traces = [np.pad(r.settled.elbo, (0, longest - len(r.settled.elbo)), mode="edge") for r in results]
    model.elbo_ = np.mean(traces, axis=0)
    model.diagnostics_ = _joined([_diagnose(result) for result in results])
    model.phi_prior_ = results[0].phi_prior
    model.time_scale_ = survey.last_time
    model.encoding_ = encoding
    times = survey.times.time
    model.unique_times_ = np.quantile(times, np.linspace(0, 1, _MOST_TIMES)) if len(times) > _MOST_TIMES else times
    model.training_ = {
        "rows": survey.rows,
        "events": survey.events,
        "truncated": survey.truncated,
        "weighted_events": survey.weighted_events,
    }
    model.columns_ = roles.names
    model.n_features_in_ = len(encoding.columns)
    model.feature_names_in_ = np.array([column.name for column in encoding.columns], dtype=object)
    model._draw_seed = draw_seed


def _joined(found: list[Diagnostics]) -> Diagnostics:
    """Return the diagnostics of all modes as one: averages, and everything that is wrong with any of them."""
    first = found[0]
    if len(found) == 1:
        return first
    messages = [f"mode {k + 1}: {text}" for k, each in enumerate(found) for text in each.messages]
    return replace(
        first,
        converged=all(each.converged for each in found),
        sweeps=sum(each.sweeps for each in found),
        latent_points=float(np.mean([each.latent_points for each in found])),
        latent_share=float(np.mean([each.latent_share for each in found])),
        lost_information=max(each.lost_information for each in found),
        scales={name: float(np.exp(np.mean([np.log(each.scales[name]) for each in found]))) for name in first.scales},
        messages=tuple(messages),
        modes=len(found),
    )


def _diagnose(result: StreamFit) -> Diagnostics:
    settled, held = result.settled, bool(result.scales)
    messages = []
    if not settled.converged and settled.moved:
        messages.append(
            f"the natural-gradient steps still moved the mean by {settled.moved:.1f} posterior standard deviations in "
            "the last half pass; raise passes."
        )
    elif not settled.converged:
        messages.append(
            f"the sweeps stopped after {len(settled.elbo)} before reaching their tolerance. Raise max_sweeps, or "
            "tolerance if that is close enough."
        )
    if result.crowded_share > _CROWDED_SHARE:
        messages.append(
            f"the hazard comes close to its ceiling in {result.crowded_share:.1%} of the time at risk and can hardly "
            "rise there; raise headroom."
        )
    collapsed = not held and result.latent_share < _COLLAPSE_SHARE
    if collapsed:
        messages.append(
            f"the posterior has collapsed: only {result.latent_share:.1%} of all points are latent, so sigma(g) is "
            "close to 1 for everybody and covariates have next to no effect. Try another random_state."
        )
    return Diagnostics(
        converged=settled.converged,
        interrupted=False,
        sweeps=len(settled.elbo),
        mode_converged=True,
        mode_objectives=(),
        latent_points=result.latent_points,
        latent_share=result.latent_share,
        collapsed=collapsed,
        missing_exposure=0.0,
        coarse_sweeps=0,
        solver=result.solver.name,
        solver_reason=result.solver.reason,
        rank=result.solver.rank,
        lost_information=result.solver.lost_information,
        scales=result.scales,
        settings=1,
        sampling={},
        importance={},
        trust="",
        jitter=0.0,
        messages=tuple(messages),
    )
