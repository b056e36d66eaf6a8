"""Fits of rows that do not fit into memory, or that many machines share: ``NeuralSurv.fit_stream``."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from sklearn.utils import check_random_state

from neuralsurv.data.features import Encoding
from neuralsurv.data.outcome import Outcome
from neuralsurv.data.stream.batches import CHUNK_ROWS, Chunk, Source, number_apart, open_source
from neuralsurv.data.stream.survey import MomentTaker, Survey, Surveyor, nothing_seen
from neuralsurv.data.stream.tally import Tally
from neuralsurv.data.stream.time_counts import event_quartiles
from neuralsurv.errors import InputError, StorageError
from neuralsurv.estimator.fit_kinds import CHOICES, STREAM_USES, Kind, kind_of, refuse, refuse_unused
from neuralsurv.estimator.fitted import Fitted, thinned
from neuralsurv.estimator.stream_diagnostics import diagnose_stream
from neuralsurv.files.checkpoint import Checkpoint, fingerprint
from neuralsurv.inference.choices import DefaultChoices, resolve
from neuralsurv.inference.stream.fit import StreamFit, StreamFitter, StreamPlan
from neuralsurv.inference.stream.kept_directions import KEEP_ALL
from neuralsurv.inference.stream.packed_rows import BLOCK_ROWS, PackedRows, Packer
from neuralsurv.inference.stream.processes import Team, join_team, together
from neuralsurv.inference.stream.snapshots import Keeper, NoKeeper
from neuralsurv.memory import explained
from neuralsurv.posterior.gaussian import Posterior
from neuralsurv.posterior.mixture import MixedPosterior
from neuralsurv.progress import bar

if TYPE_CHECKING:
    from neuralsurv.estimator.neuralsurv import NeuralSurv

METHODS = ("auto", "exact", "mini-batch")
SHARDS = ("shared", "own")
# Up to this many rows "auto" sweeps over all of them; that takes about three times as many passes as the steps.
_ROWS_FOR_SWEEPS = 200_000
# Rows that feature learning sees in all, where it chooses the passes itself.
_ROWS_TO_LEARN_FROM = 2_000_000
_MOST_TRAINING_PASSES = 50
_PASSES = 2
_BATCH_ROWS = 4096
_TRAINING_ROWS = 256
_RATE = 5e-3
_DIRECTIONS = 200
_SECONDS = 60.0
# What a streamed fit holds grows with the network, and not with the rows.
_MEMORY_ADVICE = "Use a smaller network (hidden=…), fewer directions=…, or a smaller batch_size."

Take = Callable[[int, pd.DataFrame, Outcome], None]


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

    def _go_through(self, title: str, take: Take, before: Tally | None = None, number: str = "") -> Tally:
        """Go through all rows once, with the other processes, and return what all of them have seen.

        Parameters
        ----------
        title : str
            What the progress says.
        take : callable
            What is done with number, covariates and outcome of every chunk of this process.
        before : Tally, optional
            What the first pass has seen; other rows are refused.
        number : str
            Which pass it is.
        """
        first = number_apart(self.team.rank) if self.own else 0
        trouble: list[Exception] = []

        def look() -> Tally:
            seen = Tally()
            with bar(title, None, self.verbose if self.team.rank == 0 else False) as advance:
                for chunk in self.source.chunks(self._mine, self.columns):
                    place = first + chunk.number
                    try:
                        if not trouble:
                            take(place, *self.roles.read(chunk))
                    except Exception as error:
                        if before is None or isinstance(error, StorageError | MemoryError):
                            raise
                        # Rows that have changed can break anything. Whether they have is known once all were seen.
                        trouble.append(error)
                    seen += Tally.of(chunk.frame, place * CHUNK_ROWS)
                    advance(seen.rows, f"{seen.rows:,} rows")
            return seen

        def complain() -> bool:
            if trouble:
                raise trouble[0]
            return True

        total = sum(self.team.gather(together(self.team, look)), Tally())
        if before is not None:
            before.check_same(total, number)
        together(self.team, complain)
        return total

    def survey(self) -> tuple[Survey, Tally]:
        """Go through the rows for the first time."""
        surveyor = Surveyor()
        seen = self._go_through("looking at the rows", lambda _, covariates, outcome: surveyor.add(covariates, outcome))

        def join() -> Survey:
            total = sum(found, nothing_seen())
            total.check_fittable()
            return total

        found = self.team.gather(surveyor.finish())
        return together(self.team, join), seen

    def encoding(self, survey: Survey, seen: Tally, *, standardise: bool) -> Encoding:
        """Go through the rows for the second time."""
        taker = MomentTaker(survey)
        self._go_through(
            "means and spreads", lambda _, covariates, outcome: taker.add(covariates, outcome), seen, "second"
        )
        first, *others = self.team.gather(taker.found)
        return taker.encoding(sum(others, first), standardise=standardise)

    def pack(self, survey: Survey, seen: Tally, encoding: Encoding, seed: int, folder: str | None) -> PackedRows:
        """Go through the rows for the third time, and keep them encoded in a file."""
        packer = Packer(folder, len(encoding.outputs), seed)

        def add(number: int, covariates: pd.DataFrame, outcome: Outcome) -> None:
            present = outcome.weight > 0
            if present.any():
                kept, scale = outcome.select(present), survey.last_time
                x = encoding.transform(covariates[present])
                packer.add(number, kept.time / scale, kept.event, kept.entry / scale, kept.weight, x)

        try:
            self._go_through("encoding the rows", add, seen, "third")
            return packer.finish(self.team)
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
        passes: int | None = None,
        batch_size: int | None = None,
        training_batch_size: int | None = None,
        directions: int | None = None,
        modes: int = 1,
        checkpoint: str | os.PathLike[str] | None = None,
        checkpoint_seconds: float | None = None,
        scratch: str | os.PathLike[str] | None = None,
        shards: str = "shared",
    ) -> NeuralSurv:
        """Fit rows that come in batches; memory does not grow with their number.

        The network's features are learned by mini-batch training, it is linearised there, and the posterior comes
        from sums over the rows. Under torchrun the processes share the rows. See the page on large cohorts.

        This is for the default preset; ``preset="paper"`` needs all rows in memory. Parameters of the estimator that
        only `fit` uses, and arguments that another `method` uses, are refused.

        Parameters
        ----------
        data : path, list of paths, iterable or callable
            Parquet files (a file, a folder, a pattern such as ``"folder/*.parquet"``), or batches of rows that can be
            gone through several times: a list of data frames, an object whose iterator starts anew, or a function
            without arguments that returns an iterator. Three passes must see the same rows, in any order.
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
        passes : int, optional
            (mini-batch) Passes of the natural-gradient steps; 2 by default.
        batch_size : int, optional
            (mini-batch) Rows of a natural-gradient step, of all processes together; a multiple of 256, 4096 by default.
        training_batch_size : int, optional
            The same for a step of feature learning, 256 by default. Small steps learn more in a pass; with many
            processes a step should hold at least 256 rows for each, or they wait for each other.
        directions : int, optional
            Largest number of directions of the network in which the posterior is worked out as a whole; across them
            weights are independent. By default 200, and all of a network of up to 300 weights.
        modes : int
            How many modes the posterior lies around. Features are learned so many times, each time from another random
            draw of the network, and predictions average over all of them: so many times the work, for curves closer to
            the truth and wider bands, which hold it more often. For the default preset.
        checkpoint : path, optional
            A file that the state is saved to; if it is there, the fit goes on from it. Further modes have files of
            their own, with ``.2``, ``.3`` and so on after this name.
        checkpoint_seconds : float, optional
            Seconds between two saves; 60 by default.
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
        parameters = model.get_params(deep=False)
        choices = resolve(**{name: value for name, value in parameters.items() if name in CHOICES})
        if not isinstance(choices, DefaultChoices):
            raise InputError("fit_stream is for the default model; preset='paper' needs all rows in memory: use fit.")
        model._check_draws()
        sizes = {
            "training_passes": training_passes,
            "passes": passes,
            "batch_size": batch_size,
            "training_batch_size": training_batch_size,
            "directions": directions,
            "modes": modes,
        }
        _check(method, shards, sizes, checkpoint_seconds, checkpoint)

        def refuse_idle(kind: Kind) -> None:
            refuse_unused(type(model), parameters, kind)
            asked = {name: size for name, size in sizes.items() if size is not None}
            refuse(asked, STREAM_USES, kind)

        refuse_idle(kind_of(choices, parameters, streamed=method))
        source = open_source(data)
        roles = Roles(time, event, entry, weight)
        columns = None if features is None else [*features, *roles.names.values()]
        seeds = check_random_state(model.random_state).randint(2**31 - 1, size=2)
        with join_team() as team:
            # Without a seed of their own, processes would each draw another.
            seeds = team.gather(seeds)[0]
            stream = Stream(source, roles, columns, team, shards == "own", model.verbose)
            survey, seen = stream.survey()
            plan = _plan(survey.rows, method, sizes)
            refuse_idle(kind_of(choices, parameters, streamed="exact" if plan.exact else "mini-batch"))
            encoding = stream.encoding(survey, seen, standardise=model.standardise)
            mode_seeds = _mode_seeds(int(seeds[0]), modes)
            keepers: list[Keeper] = [NoKeeper() for _ in mode_seeds]
            if checkpoint is not None:
                depends = {"choices": choices, "plan": plan, "columns": roles, "cohort": survey, "encoding": encoding}
                keepers = [
                    Checkpoint(
                        os.fspath(checkpoint) + (f".{number}" if number > 1 else ""),
                        fingerprint(**depends, rows=seen, seed=seed),
                        team,
                        every=_SECONDS if checkpoint_seconds is None else checkpoint_seconds,
                    )
                    for number, seed in enumerate(mode_seeds, 1)
                ]
            folder = None if scratch is None else os.fspath(scratch)
            with (
                explained("the fit", _MEMORY_ADVICE),
                closing(stream.pack(survey, seen, encoding, int(seeds[0]), folder)) as rows,
            ):
                results = []
                for number, (seed, keeper) in enumerate(zip(mode_seeds, keepers, strict=True), 1):
                    told = f" (mode {number} of {modes})" if modes > 1 else ""
                    width = len(encoding.outputs)
                    fitter = StreamFitter(rows, survey, width, plan, seed, team, keeper, model.verbose, told)
                    results.append(fitter.fit(choices))
        model.fitted_ = _fitted(results, survey, encoding, roles, int(seeds[1]))
        model.diagnostics_.warn(stacklevel=2)
        fitted: NeuralSurv = model
        return fitted


def _mode_seeds(seed: int, modes: int) -> list[int]:
    """Return the seed of the fit around each mode; the first does not depend on how many there are."""
    return [seed, *map(int, np.random.default_rng([seed, 1]).integers(2**31 - 1, size=modes - 1))]


def _check(
    method: str, shards: str, sizes: dict[str, int | None], seconds: float | None, checkpoint: object | None
) -> None:
    for name, value, known in (("method", method, METHODS), ("shards", shards, SHARDS)):
        if value not in known:
            raise InputError(f"{name}={value!r} is not known; use one of {', '.join(known)}.")
    for name, number in sizes.items():
        least = 0 if name == "training_passes" else 1
        if number is not None and (not isinstance(number, int | np.integer) or number < least):
            raise InputError(f"{name}={number!r} must be a whole number of at least {least}.")
    for name in ("batch_size", "training_batch_size"):
        number = sizes[name]
        if number is not None and number % BLOCK_ROWS:
            raise InputError(f"{name}={number!r} must be a multiple of {BLOCK_ROWS}.")
    if sizes["training_passes"] == 0 and sizes["training_batch_size"] is not None:
        raise InputError(
            f"training_batch_size={sizes['training_batch_size']!r} does nothing with training_passes=0; leave it out."
        )
    if seconds is not None and not seconds >= 0:
        raise InputError(f"checkpoint_seconds={seconds!r} must be 0 or more.")
    if seconds is not None and checkpoint is None:
        raise InputError(
            f"checkpoint_seconds={seconds!r} does nothing without checkpoint=…; name a file, or leave it out."
        )


def _plan(rows: int, method: str, sizes: dict[str, int | None]) -> StreamPlan:
    given = {name: int(number) for name, number in sizes.items() if number is not None}
    passes = max(1, min(_MOST_TRAINING_PASSES, round(_ROWS_TO_LEARN_FROM / rows)))
    directions = given.get("directions", _DIRECTIONS)
    return StreamPlan(
        exact=method == "exact" or (method == "auto" and rows <= _ROWS_FOR_SWEEPS),
        training_passes=given.get("training_passes", passes),
        passes=given.get("passes", _PASSES),
        training_blocks=given.get("training_batch_size", _TRAINING_ROWS) // BLOCK_ROWS,
        blocks=given.get("batch_size", _BATCH_ROWS) // BLOCK_ROWS,
        rate=_RATE,
        directions=directions,
        # Fewer that were asked for are fewer.
        keep_all=min(KEEP_ALL, given.get("directions", KEEP_ALL)),
    )


def _fitted(results: list[StreamFit], survey: Survey, encoding: Encoding, roles: Roles, draw_seed: int) -> Fitted:
    parts = [Posterior(r.phi, r.theta, r.theta_star, r.network, r.normaliser, 1.0) for r in results]
    # On average over the modes, which is a bound for the mixture as well. Where one was done before the others, it
    # stays where it ended.
    longest = max(len(result.settled.elbo) for result in results)
    traces = [np.pad(r.settled.elbo, (0, longest - len(r.settled.elbo)), mode="edge") for r in results]
    return Fitted(
        posterior=parts[0] if len(parts) == 1 else MixedPosterior.of(tuple(parts)),
        phi_prior=results[0].phi,
        encoding=encoding,
        time_scale=survey.last_time,
        times=thinned(survey.times.time),
        event_quartiles=event_quartiles(survey.event_times),
        trace=np.mean(traces, axis=0),
        diagnostics=diagnose_stream(results, survey.weighted_events),
        training={
            "rows": survey.rows,
            "events": survey.events,
            "truncated": survey.truncated,
            "weighted_events": survey.weighted_events,
        },
        roles=roles.names,
        named=True,
        draw_seed=draw_seed,
    )
