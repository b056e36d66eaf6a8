"""Fits of cohorts that do not fit into memory or are spread over many machines: ``NeuralSurv.fit_stream``."""

from __future__ import annotations

import os
from abc import abstractmethod
from contextlib import closing
from typing import Any, Self

import numpy as np
from sklearn.utils import check_random_state

from neuralsurv.arguments import one_of, whole_number
from neuralsurv.data.missing_codes import warn_of_codes
from neuralsurv.data.stream.batches import open_source
from neuralsurv.errors import InputError
from neuralsurv.estimator.base import SurvivalEstimator
from neuralsurv.files.checkpoint import Checkpoint, fingerprint
from neuralsurv.inference.default.settings import DefaultSettings
from neuralsurv.inference.stream.fit import StreamedModes, StreamFitter
from neuralsurv.inference.stream.passes import OutcomeColumns, RowStream
from neuralsurv.inference.stream.plan import StreamSettings
from neuralsurv.inference.stream.processes import join_processes
from neuralsurv.inference.stream.snapshots import SnapshotStore
from neuralsurv.memory import explained
from neuralsurv.posterior.fitted import Fitted

SHARDS = ("shared", "own")
_SECONDS = 60.0
# The memory of a streamed fit grows with the network, and not with the number of rows.
_MEMORY_ADVICE = "Use a smaller network (hidden=…), fewer directions=…, or a smaller batch_size."
_IN_MEMORY = dict.fromkeys(
    ("network", "average", "neighbourhoods"),
    "is for fit, which holds all rows in memory, and does nothing in fit_stream",
)
_SWEEPS = dict.fromkeys(
    ("tolerance", "max_sweeps"),
    "is for sweeps over all rows (method='exact'), and this fit takes steps on samples of them",
)


class StreamedEstimator(SurvivalEstimator):
    """An estimator of the default model that can also be fitted to a stream of rows."""

    @abstractmethod
    def _settings(self) -> DefaultSettings:
        """Return the settings of the model, checked."""

    def fit_stream(
        self,
        data: Any,
        *,
        time: str,
        event: str,
        entry: str | None = None,
        sample_weight: str | None = None,
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
    ) -> Self:
        """Fit the model to rows that are read in batches, in memory that does not grow with their number.

        The features of the network are learned by mini-batch training, the network is linearised there, and the
        posterior follows from sums over the rows. Under torchrun the processes share the rows. See the page on large
        cohorts.

        Parameters of the estimator that only `fit` uses, and arguments that another `method` uses, are refused.

        Parameters
        ----------
        data : path, list of paths, iterable or callable
            Parquet files (a file, a folder, a pattern such as ``"folder/*.parquet"``), or batches of rows that can be
            read several times: a list of data frames, an object that can be iterated over again, or a function without
            arguments that returns an iterator. Three passes must see the same rows, in any order.
        time, event : str
            Columns of the outcome.
        entry, sample_weight : str, optional
            Columns of late entry and row weights.
        features : list of str, optional
            The covariates; all other columns if not given.
        method : {"auto", "exact", "mini-batch"}
            How the posterior is computed: by sweeps over all rows until the ELBO converges, or by natural-gradient
            steps on mini-batches. ``"auto"`` sweeps up to 200,000 rows.
        training_passes : int, optional
            Passes of feature learning; by default as many as it takes to process 2 million rows, at least 1 and at most
            50. 0 leaves the network at its random draw, as `fit` does where `hidden` is given.
        passes : int, optional
            (mini-batch) Passes of the natural-gradient steps; 2 by default.
        batch_size : int, optional
            (mini-batch) Rows per natural-gradient step, over all processes; a multiple of 256, 4096 by default.
        training_batch_size : int, optional
            Rows per step of feature learning, 256 by default. Small batches learn more in a pass; with many processes a
            batch should have at least 256 rows for each, so that none of them is idle.
        directions : int, optional
            Largest number of directions of the weights in which the full posterior covariance is computed; across them
            the weights are independent. By default 200, or all for a network of up to 300 weights.
        modes : int
            Number of modes of the posterior. Features are learned once for each, from another random draw of the
            network, and predictions average over all of them. The work grows in proportion; curves are closer to the
            truth, and bands are wider and cover it more often.
        checkpoint : path, optional
            File that the state is saved to; if it exists, the fit resumes from it. Further modes have files of their
            own, with ``.2``, ``.3`` and so on appended to this name.
        checkpoint_seconds : float, optional
            Seconds between two saves; 60 by default.
        scratch : path, optional
            Folder for the encoded rows, 8·(4 + columns) bytes per row; by default the system's folder for temporary
            files.
        shards : {"shared", "own"}
            With several processes: whether all are given the same data, which they share, or each is given rows of its
            own.

        Returns
        -------
        estimator
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
        self._refuse_unused(_IN_MEMORY)
        settings = self._settings()
        whole_number("draws", self.draws)
        options = StreamSettings(method, training_passes, passes, batch_size, training_batch_size, directions, modes)
        options.check()
        one_of("shards", shards, SHARDS)
        _check_checkpoint(checkpoint_seconds, checkpoint, self.random_state)
        self._refuse_ineffective(options, method)
        source = open_source(data)
        roles = OutcomeColumns(time, event, entry, sample_weight)
        columns = None if features is None else [*features, *roles.names.values()]
        seeds = check_random_state(self.random_state).randint(2**31 - 1, size=2)
        with join_processes() as processes:
            # Without a random_state, every process would draw seeds of its own.
            seeds = processes.gather(seeds)[0]
            stream = RowStream(source, roles, columns, processes, shards == "own", self.verbose)
            survey, seen = stream.survey()
            plan = options.plan(survey.rows)
            self._refuse_ineffective(options, "exact" if plan.exact else "mini-batch")
            encoding = stream.encoding(survey, seen, standardise=self.standardise)
            if processes.rank == 0:
                warn_of_codes(survey.missing_codes(), stacklevel=2)
            mode_seeds = _mode_seeds(int(seeds[0]), modes)
            stores = [SnapshotStore() for _ in mode_seeds]
            if checkpoint is not None:
                # In the order in which a message names the first difference: the plan follows from the number of rows.
                depends = {"settings": settings, "columns": roles, "cohort": survey, "encoding": encoding, "plan": plan}
                stores = [
                    Checkpoint(
                        os.fspath(checkpoint) + (f".{number}" if number > 1 else ""),
                        fingerprint(**depends, rows=seen, seed=seed),
                        processes,
                        every=_SECONDS if checkpoint_seconds is None else checkpoint_seconds,
                    )
                    for number, seed in enumerate(mode_seeds, 1)
                ]
            folder = None if scratch is None else os.fspath(scratch)
            with (
                explained("the fit", _MEMORY_ADVICE),
                closing(stream.pack(survey, seen, encoding, int(seeds[0]), folder)) as rows,
            ):
                fits = []
                for number, (seed, store) in enumerate(zip(mode_seeds, stores, strict=True), 1):
                    label = f" (mode {number} of {modes})" if modes > 1 else ""
                    width = len(encoding.outputs)
                    fitter = StreamFitter(rows, survey, width, plan, seed, processes, store, self.verbose, label)
                    fits.append(fitter.fit(settings))
        result = StreamedModes(tuple(fits), survey.weighted_events)
        # φ is fixed, so the posterior is the prior.
        found = (result.posterior, fits[0].posterior.phi, result.trace, result.diagnose())
        self.fitted_ = Fitted.of(survey, encoding, *found, roles=roles.names, named=True, draw_seed=int(seeds[1]))
        self.fitted_.diagnostics.warn(stacklevel=2)
        return self

    def _refuse_ineffective(self, options: StreamSettings, method: str) -> None:
        """Refuse parameters and options that a streamed fit by this method does not use."""
        options.check_method(method)
        if method == "mini-batch":
            self._refuse_unused(_SWEEPS)


def _check_checkpoint(seconds: float | None, checkpoint: object | None, random_state: Any) -> None:
    if checkpoint is not None and random_state is None:
        raise InputError("a fit can only be resumed from its checkpoint with the same seed: set random_state=0.")
    if seconds is not None and not seconds >= 0:
        raise InputError(f"checkpoint_seconds={seconds!r} must be 0 or more.")
    if seconds is not None and checkpoint is None:
        raise InputError(
            f"checkpoint_seconds={seconds!r} does nothing without checkpoint=…; name a file, or leave it out."
        )


def _mode_seeds(seed: int, modes: int) -> list[int]:
    """Return the seed of the fit around each mode; the first does not depend on how many there are."""
    return [seed, *map(int, np.random.default_rng([seed, 1]).integers(2**31 - 1, size=modes - 1))]
