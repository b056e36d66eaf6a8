"""Which covariates a model can use, and common mistakes in a table: decimal commas, row numbers, codes for gaps."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

import numpy as np
import pandas as pd

from neuralsurv.data.columns import Column
from neuralsurv.data.comma_numbers import decimal_comma
from neuralsurv.data.missing_codes import missing_codes
from neuralsurv.data.row_values import is_number
from neuralsurv.data.table import numbers_rows
from neuralsurv.errors import InputError
from neuralsurv.names import counted

# What pandas, and our own reader, call a column that the header does not name.
_UNNAMED = re.compile(r"(Unnamed: \d+(\.\d+)*|column \d+|)$")
# What R and collections of its data sets call the names of rows.
_ROW_NAMES = re.compile(r"(row[._ ]?names?|index|X|__index_level_\d+__)$")
MOST_SENTENCES = 3
# A text column with more different values than this is hardly one of categories.
_MANY = 20
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}([T ].*)?$")


def refuse_decimal_commas(frame: pd.DataFrame, *, text_file: bool, categorical: bool = True) -> None:
    """Refuse text columns of numbers with a decimal comma, each of which would become a category.

    `text_file` and `categorical` say whether ``--decimal`` and ``--categorical`` can be used.
    """
    texts = [name for name in frame.columns if pd.api.types.is_string_dtype(frame[name].dtype)]
    found = {str(name): example for name in texts if (example := decimal_comma(frame[name].dropna())) is not None}
    if found:
        name, example = next(iter(found.items()))
        more = f" and {counted(len(found) - 1, 'more column')}" if len(found) > 1 else ""
        whose = f"column {name!r}{more} {'hold' if more else 'holds'}"
        python = f"df[{name!r}] = df[{name!r}].str.replace(',', '.').astype(float)"
        repair = "add --decimal ," if text_file else f"write them as numbers: {python}"
        other = f" (or, if they are categories, --categorical {shlex.quote(name)})" if categorical else ""
        raise InputError(f"{whose} numbers with a decimal comma, such as {example!r}; {repair}{other}.")


def row_number_columns(frame: pd.DataFrame) -> dict[str, str]:
    """Return the columns that only number the rows, with a sentence for each.

    A column without a name of its own counts as such if its whole numbers rise, as R's row names do after rows were
    taken out; one that is called like row names, if it holds 1 to N or 0 to N - 1.
    """
    found = {}
    for name in map(str, frame.columns):
        unnamed = _UNNAMED.match(name) is not None
        if not (unnamed or _ROW_NAMES.match(name)) or not pd.api.types.is_numeric_dtype(frame[name].dtype):
            continue
        numbers = frame[name].to_numpy(dtype=np.float64, na_value=np.nan)
        rising = len(numbers) > 1 and bool((numbers % 1 == 0).all() and (np.diff(numbers) > 0).all())
        if numbers_rows(frame[name]) or (unnamed and rising):
            why = "has no name in the header and numbers" if unnamed else "numbers"
            found[name] = (
                f"left out column {name!r}: it {why} the rows ({numbers[0]:g} to {numbers[-1]:g}); to use it, "
                "give it another name."
            )
    return found


def code_warnings(frame: pd.DataFrame) -> list[str]:
    """Return a sentence for each number that looks like a code for a missing value, with the option to add."""
    found = [code for name in frame.columns for code in missing_codes(frame[name])]
    return first_few([code.sentence(f"add --missing {shlex.quote(f'{code.column}={code.code:g}')}") for code in found])


def first_few(texts: list[str]) -> list[str]:
    """Return the first few of many sentences, and how many more there are."""
    more = len(texts) - MOST_SENTENCES
    return texts if more < 2 else [*texts[:MOST_SENTENCES], f"… and the same for {more} more columns."]


def text_categories(columns: Sequence[Column]) -> list[str]:
    """Return the categories that a model needs as text: a code such as 01 looks like a number and is none."""
    return [
        column.name for column in columns if column.kind == "category" and not set(column.levels) <= {"True", "False"}
    ]


def unusable(values: pd.Series) -> str | None:
    """Return why a column cannot be a covariate, or None if it can.

    These are columns that the estimator would refuse, and text that is clearly a number or a date read wrongly.
    """
    present = values.dropna()
    if len(present) == 0:
        return "it has no value in any row"
    if pd.api.types.is_datetime64_any_dtype(values.dtype) or pd.api.types.is_timedelta64_dtype(values.dtype):
        return "it holds dates; turn it into a number to use it"
    different = present.nunique()
    if different == 1:
        return f"it is {present.iloc[0]} in every row that has a value"
    if is_number(values):
        return None
    if different > max(_MANY, len(values) / 2):
        return f"it has {different} different texts in {len(values)} rows, like a name{_mostly_numbers(values)}"
    if present.map(lambda value: isinstance(value, str) and _DATE.match(value) is not None).all():
        return "it holds dates; turn it into a number to use it"
    if different > _MANY and _mostly_numbers(values):
        return f"it would be {different} categories{_mostly_numbers(values)}"
    return None


def drop_unusable(covariates: pd.DataFrame) -> dict[str, str]:
    """Return the columns to leave out, with a sentence for each."""
    reasons = {str(name): unusable(covariates[name]) for name in covariates.columns}
    return {name: f"left out column {name!r}: {reason}." for name, reason in reasons.items() if reason is not None}


def many_levels(covariates: pd.DataFrame) -> list[str]:
    """Return a warning for each text column with many categories."""
    levels = {name: covariates[name].nunique() for name in covariates if not is_number(covariates[name])}
    return first_few(
        [
            f"column {name!r} is text with {different} levels in {len(covariates)} rows, and the model sees an "
            f"indicator for each; join the rare ones in the file, or leave the column out: --drop "
            f"{shlex.quote(str(name))}."
            for name, different in levels.items()
            if different > _MANY
        ]
    )


def remarks(covariates: pd.DataFrame) -> list[str]:
    """Return notes on columns that may not be used as intended."""
    found = []
    for name, values in covariates.items():
        suspicion = _mostly_numbers(values)
        if suspicion:
            found.append(f"column {name!r} is used as categories{suspicion}.")
        elif _looks_like_counter(values):
            found.append(
                f"column {name!r} is used as a number, but has another whole number in every row; if it is an "
                f"identifier, add --drop {shlex.quote(str(name))}."
            )
    return found


def _mostly_numbers(values: pd.Series) -> str:
    """Return a remark if a text column is mostly numbers, else an empty text."""
    if is_number(values) or pd.api.types.is_datetime64_any_dtype(values.dtype):
        return ""
    text = values.dropna().map(str)
    numbers = pd.to_numeric(text, errors="coerce").notna()
    odd = text[~numbers]
    if len(odd) == 0 or numbers.mean() < 0.5:
        return ""
    one = len(odd) == 1
    found = f"{odd.iloc[0]!r}, is not a number" if one else f"such as {odd.iloc[0]!r}, are not numbers"
    return (
        f", since {len(odd)} of its {len(text)} values, {found} (if {'it means' if one else 'they mean'} a missing "
        f"value, add --missing {odd.iloc[0]!r})"
    )


def _looks_like_counter(values: pd.Series) -> bool:
    if not is_number(values) or values.isna().any() or len(values) < 20:
        return False
    numbers = values.to_numpy(dtype=np.float64, na_value=np.nan)
    return bool(np.isfinite(numbers).all() and (numbers % 1 == 0).all() and len(np.unique(numbers)) == len(numbers))


def described(columns: Sequence[Column], covariates: pd.DataFrame) -> list[tuple[str, str, str, str]]:
    """Return a row for each covariate: its name, how it was read, its gaps, and what the model sees of it."""
    rows = []
    for column in columns:
        gaps = int(covariates[column.name].isna().sum())
        if column.kind == "number":
            kind, seen = "number", "scaled"
        else:
            levels = ", ".join(column.levels[:4]) + (", …" if len(column.levels) > 4 else "")
            kind, seen = f"{len(column.levels)} categories: {levels}", counted(len(column.shown), "indicator")
        if column.has_missing:
            marked = " and marked by an indicator" if column.gap_indicator else "; too few for an indicator"
            seen += f"; gaps filled with the mean{marked}"
        share = gaps / len(covariates)
        missing = f"{gaps} ({'<1%' if share < 0.005 else f'{share:.0%}'})" if gaps else "none"
        rows.append((column.name, kind, missing, seen))
    return rows
