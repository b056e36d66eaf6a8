"""The passes of a streamed fit over its source: a survey of the rows, their encoding, and the file that keeps them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass

import pandas as pd

from neuralsurv.data.cohort import Cohort
from neuralsurv.data.features import Encoding
from neuralsurv.data.outcome import Outcome
from neuralsurv.data.stream.batches import CHUNK_ROWS, Chunk, RowDigest, Source, first_chunk_number
from neuralsurv.data.stream.survey import MomentAccumulator, Survey, SurveyAccumulator, nothing_seen
from neuralsurv.errors import InputError, StorageError
from neuralsurv.inference.stream.packed_rows import PackedRows, Packer
from neuralsurv.inference.stream.processes import ProcessGroup, run_in_all
from neuralsurv.progress import bar

Take = Callable[[int, pd.DataFrame, Outcome], None]


@dataclass(frozen=True)
class OutcomeColumns:
    """Which columns are the outcome."""

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
class RowStream:
    """The chunks of a source that belong to this process."""

    source: Source
    roles: OutcomeColumns
    columns: list[str] | None  # columns to read; all if None
    processes: ProcessGroup
    own: bool  # whether each process has rows of its own, in place of a share of the same ones
    verbose: bool | str | int

    def _mine(self, number: int) -> bool:
        return self.own or number % self.processes.size == self.processes.rank

    def _pass(self, title: str, take: Take, before: RowDigest | None = None, number: str = "") -> RowDigest:
        """Go through all rows once, with the other processes, and return the digest of all of them.

        `take` gets the number, the covariates and the outcome of every chunk of this process. Rows other than those
        that the first pass has seen `before` are refused.
        """
        first = first_chunk_number(self.processes.rank) if self.own else 0
        trouble: list[Exception] = []

        def read() -> RowDigest:
            seen = RowDigest()
            with bar(title, None, self.verbose if self.processes.rank == 0 else False) as advance:
                for chunk in self.source.chunks(self._mine, self.columns):
                    place = first + chunk.number
                    try:
                        if not trouble:
                            take(place, *self.roles.read(chunk))
                    except (StorageError, MemoryError):
                        raise
                    except Exception as error:
                        if before is None:
                            raise
                        # Rows that have changed can break anything. Whether they have is known once all were seen.
                        trouble.append(error)
                    seen += RowDigest.of(chunk.frame, place * CHUNK_ROWS)
                    advance(seen.rows, f"{seen.rows:,} rows")
            return seen

        def raise_trouble() -> None:
            if trouble:
                raise trouble[0]

        total = sum(self.processes.gather(run_in_all(self.processes, read)), RowDigest())
        if before is not None:
            before.check_same(total, number)
        run_in_all(self.processes, raise_trouble)
        return total

    def survey(self) -> tuple[Survey, RowDigest]:
        """First pass: totals of the outcome, kinds, ranges and levels of the covariates."""
        accumulator = SurveyAccumulator()
        seen = self._pass("surveying the rows", lambda _, covariates, outcome: accumulator.add(covariates, outcome))

        def join() -> Survey:
            total = sum(found, nothing_seen())
            total.check_fittable()
            return total

        found = self.processes.gather(accumulator.finish())
        return run_in_all(self.processes, join), seen

    def encoding(self, survey: Survey, seen: RowDigest, *, standardise: bool) -> Encoding:
        """Second pass: means and spreads of the covariates."""
        moments = MomentAccumulator(survey)
        self._pass("means and spreads", lambda _, covariates, outcome: moments.add(covariates, outcome), seen, "second")
        first, *others = self.processes.gather(moments.found)
        return moments.encoding(sum(others, first), standardise=standardise)

    def pack(self, survey: Survey, seen: RowDigest, encoding: Encoding, seed: int, folder: str | None) -> PackedRows:
        """Third pass: encode the rows into a file."""
        packer = Packer(folder, len(encoding.outputs), seed)

        def add(number: int, covariates: pd.DataFrame, outcome: Outcome) -> None:
            present = outcome.weight > 0
            if present.any():
                kept, scale = outcome.select(present), survey.last_time
                x = encoding.transform(covariates[present])
                packer.add(number, Cohort.of(kept.time / scale, kept.event, kept.entry / scale, kept.weight, x))

        try:
            self._pass("encoding the rows", add, seen, "third")
            return packer.finish(self.processes)
        except BaseException:
            packer.close()
            raise
