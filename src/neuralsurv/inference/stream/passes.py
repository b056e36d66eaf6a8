"""The passes of a streamed fit over its source: a survey of the rows, their encoding, and the file that keeps them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass

import pandas as pd

from neuralsurv.data.cohort import Cohort
from neuralsurv.data.features import Encoding
from neuralsurv.data.outcome import Outcome
from neuralsurv.data.stream.batches import CHUNK_ROWS, Chunk, Source, number_apart
from neuralsurv.data.stream.survey import MomentTaker, Survey, Surveyor, nothing_seen
from neuralsurv.data.stream.tally import Tally
from neuralsurv.errors import InputError, StorageError
from neuralsurv.inference.stream.packed_rows import PackedRows, Packer
from neuralsurv.inference.stream.processes import Team, together
from neuralsurv.progress import bar

Take = Callable[[int, pd.DataFrame, Outcome], None]


@dataclass(frozen=True)
class OutcomeColumns:
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
class RowStream:
    """The chunks of a source that belong to this process.

    Attributes
    ----------
    source : Source
        Where rows come from.
    roles : OutcomeColumns
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
    roles: OutcomeColumns
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
                packer.add(number, Cohort.of(kept.time / scale, kept.event, kept.entry / scale, kept.weight, x))

        try:
            self._go_through("encoding the rows", add, seen, "third")
            return packer.finish(self.team)
        except BaseException:
            packer.close()
            raise
