"""Common mistakes in a table: decimal commas, row numbers, codes for missing values."""

from __future__ import annotations

import re
import shlex

import numpy as np
import pandas as pd

from neuralsurv.data.comma_numbers import decimal_comma
from neuralsurv.data.missing_codes import missing_codes
from neuralsurv.data.table import numbers_rows
from neuralsurv.errors import InputError

# What pandas, and our own reader, call a column that the header does not name.
_UNNAMED = re.compile(r"(Unnamed: \d+(\.\d+)*|column \d+|)$")
# What R and collections of its data sets call the names of rows.
_ROW_NAMES = re.compile(r"(row[._ ]?names?|index|X|__index_level_\d+__)$")
_MOST_SENTENCES = 3


def refuse_decimal_commas(frame: pd.DataFrame, *, text_file: bool, categorical: bool = True) -> None:
    """Refuse text columns of numbers with a decimal comma, each of which would become a category.

    `text_file` and `categorical` say whether ``--decimal`` and ``--categorical`` can be used.
    """
    found: dict[str, str] = {}
    for name in frame.columns:
        values = frame[name]
        if pd.api.types.is_object_dtype(values.dtype) or pd.api.types.is_string_dtype(values.dtype):
            example = decimal_comma(values.dropna())
            if example is not None:
                found[str(name)] = example
    if found:
        name, example = next(iter(found.items()))
        more = f" and {len(found) - 1} more" if len(found) > 1 else ""
        more += f" column{'s' if len(found) > 2 else ''}" if more else ""
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


def code_warnings(frame: pd.DataFrame, *, flag: bool = True) -> list[str]:
    """Return a sentence for each number that looks like a code for a missing value, such as 999 or -9.

    The sentences name ``--missing``, or, without `flag`, what to type in Python.
    """
    texts = []
    for found in (found for name in frame.columns for found in missing_codes(frame[name])):
        option = f"add --missing {shlex.quote(f'{found.column}={found.code:g}')}"
        texts.append(found.sentence(option if flag else f"write it as one: {found.python}"))
    return first_few(texts)


def first_few(texts: list[str]) -> list[str]:
    """Return the first few of many sentences, and how many more there are."""
    more = len(texts) - _MOST_SENTENCES
    return texts if more < 2 else [*texts[:_MOST_SENTENCES], f"… and the same for {more} more columns."]
