"""One SQLite file with one row for every finished or failed job."""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Mapping
from dataclasses import astuple, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

# Changes whenever a store written before can no longer be read; kept in the file as SQLite's `user_version`.
LAYOUT = 1
# Another process (a reader making tables, a second runner) may hold the file for a moment.
_PATIENCE_SECONDS = 60.0
# Enough to tell any two results apart, and half the size of a full float64 in text.
_DIGITS = 8

Status = Literal["finished", "failed"]


@dataclass(frozen=True, order=True)
class Key:
    """What makes a job different from every other one.

    Attributes
    ----------
    experiment : str
        Name of the experiment.
    cohort : str
        Name of the cohort.
    setting : str
        What else the experiment varies, in words: rows, layers, a prior; empty if nothing.
    fold : int
        Fold of the cohort.
    method, variant : str
        The method and which variant of it.
    seed : int
        Seed of the method; the subsample where there are several, the repetition where times are measured.
    """

    experiment: str
    cohort: str
    setting: str
    fold: int
    method: str
    variant: str
    seed: int


@dataclass(frozen=True)
class Record:
    """What came out of one job.

    Attributes
    ----------
    key : Key
        The job.
    status : {"finished", "failed"}
        Whether it ended well.
    scores : mapping
        For each definition of the metrics ("paper", "ours") its metrics by name: numbers, lists of numbers, or None
        where a metric is not defined.
    fit_seconds, predict_seconds : float or None
        How long fitting and predicting the test rows took; None if the job did not get there.
    details : mapping
        What only some experiments keep: curves, a posterior, warnings.
    error : str
        What went wrong; empty if nothing did.
    environment : mapping
        Versions and machine.
    date : str
        When the job ended, ISO 8601, UTC.
    """

    key: Key
    status: Status = "finished"
    scores: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    fit_seconds: float | None = None
    predict_seconds: float | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""
    environment: Mapping[str, Any] = field(default_factory=dict)
    date: str = ""


_KEY_NAMES = ", ".join(part.name for part in fields(Key))
_TABLES = f"""
CREATE TABLE IF NOT EXISTS environment (
    id INTEGER PRIMARY KEY,
    description TEXT NOT NULL UNIQUE
);
CREATE TABLE IF NOT EXISTS result (
    experiment TEXT NOT NULL,
    cohort TEXT NOT NULL,
    setting TEXT NOT NULL,
    fold INTEGER NOT NULL,
    method TEXT NOT NULL,
    variant TEXT NOT NULL,
    seed INTEGER NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('finished', 'failed')),
    scores TEXT NOT NULL,
    fit_seconds REAL,
    predict_seconds REAL,
    details TEXT NOT NULL,
    error TEXT NOT NULL,
    environment INTEGER NOT NULL REFERENCES environment (id),
    date TEXT NOT NULL,
    PRIMARY KEY ({_KEY_NAMES})
) WITHOUT ROWID;
PRAGMA user_version = {LAYOUT};
"""
# A finished result is never replaced; a failed one may be tried again.
_SAVE = f"""
INSERT INTO result VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, (SELECT id FROM environment WHERE description = ?), ?)
ON CONFLICT ({_KEY_NAMES}) DO UPDATE SET
    status = excluded.status, scores = excluded.scores, fit_seconds = excluded.fit_seconds,
    predict_seconds = excluded.predict_seconds, details = excluded.details, error = excluded.error,
    environment = excluded.environment, date = excluded.date
WHERE result.status = 'failed'
"""


class Store:
    """The file of results.

    A rollback journal, not a write-ahead log, so that between two writes there is one file and nothing beside it, and
    it can be copied and committed as it is. Every result is a transaction of its own, on the disk when `save` returns.

    Parameters
    ----------
    path : path
        The file; made with its folder if it is not there.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._connection = sqlite3.connect(self.path, timeout=_PATIENCE_SECONDS, isolation_level=None)
        try:
            self._open()
        except BaseException:
            self._connection.close()
            raise

    def _open(self) -> None:
        try:
            layout = self._prepare()
        except sqlite3.DatabaseError as error:
            raise _refusal(f"{self.path.name} cannot be used as a store of results ({error}); name another") from error
        if layout not in (0, LAYOUT):
            raise _refusal(
                f"{self.path.name} was written with layout {layout} of the store, this version reads layout {LAYOUT}; "
                "name another"
            )
        if layout == 0:
            self._connection.executescript(f"BEGIN IMMEDIATE; {_TABLES} COMMIT;")

    def _prepare(self) -> int:
        """Choose how the file is written and return its layout, 0 for a new one."""
        self._connection.execute("PRAGMA journal_mode = DELETE")
        self._connection.execute("PRAGMA synchronous = EXTRA")
        return int(self._connection.execute("PRAGMA user_version").fetchone()[0])

    def save(self, record: Record) -> None:
        """Write one record, all of it or nothing; a finished one that is there already stays as it was."""
        environment = _as_json(record.environment)
        values = (
            *astuple(record.key),
            record.status,
            _as_json(record.scores),
            record.fit_seconds,
            record.predict_seconds,
            _as_json(record.details),
            record.error,
            environment,
            record.date,
        )
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            self._connection.execute("INSERT OR IGNORE INTO environment (description) VALUES (?)", (environment,))
            self._connection.execute(_SAVE, values)
            self._connection.execute("COMMIT")
        except BaseException:
            # SQLite ends the transaction by itself on some errors, a full disk for one.
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

    def stored(self, status: Status | None = None) -> set[Key]:
        """Return the jobs that are in the store, or only those of one status."""
        where, values = ("", ()) if status is None else ("WHERE status = ?", (status,))
        rows = self._connection.execute(f"SELECT {_KEY_NAMES} FROM result {where}", values)
        return {Key(*row) for row in rows}

    def records(self, experiment: str | None = None) -> list[Record]:
        """Return the records of an experiment, or of all, ordered by their keys."""
        where, values = ("", ()) if experiment is None else ("WHERE experiment = ?", (experiment,))
        rows = self._connection.execute(
            f"SELECT {_KEY_NAMES}, status, scores, fit_seconds, predict_seconds, details, error, description, date "
            f"FROM result JOIN environment ON environment.id = result.environment {where} ORDER BY {_KEY_NAMES}",
            values,
        )
        width = len(fields(Key))
        return [_record(Key(*row[:width]), *row[width:]) for row in rows]

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def __enter__(self) -> Store:
        """Return the open store."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file."""
        self.close()


def _record(
    key: Key,
    status: Status,
    scores: str,
    fit_seconds: float | None,
    predict_seconds: float | None,
    details: str,
    error: str,
    environment: str,
    date: str,
) -> Record:
    return Record(
        key,
        status,
        json.loads(scores),
        fit_seconds,
        predict_seconds,
        json.loads(details),
        error,
        json.loads(environment),
        date,
    )


def _refusal(reason: str) -> Exception:
    # Imported here because it brings torch along, and a store must be open in a moment.
    from neuralsurv.errors import InputError

    return InputError(f"{reason} file with --store.")


def _as_json(value: Any) -> str:
    return json.dumps(_plain(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _plain(value: Any) -> Any:
    """Return `value` in JSON's own types, numbers rounded to eight digits and None for what is not finite."""
    if isinstance(value, Mapping):
        return {str(name): _plain(part) for name, part in value.items()}
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else None
    return value
