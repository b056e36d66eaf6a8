"""Codes for missing values: what counts as one, and that a fit says so."""

import numpy as np
import pandas as pd
import pytest

from neuralsurv.data.missing_codes import CodeCounts, missing_codes
from neuralsurv.errors import MissingCodeWarning
from small_cohort import quick_default, quick_model, small_cohort

USUAL = [41, 52, 63, 74, 58, 66, 71, 49, 55, 60]


@pytest.mark.parametrize(
    ("values", "codes"),
    [
        ([*USUAL, 999, 999], [999]),
        ([*USUAL, -9, -9, -9], [-9]),
        ([*USUAL, 999], []),
        ([*USUAL, 99, 99], []),
        ([*USUAL, 88, 88], []),
        ([*USUAL, 100, 100], []),
        ([1, 0] * 6 + [9, 9], [9]),
        (USUAL, []),
        ([999, 999], []),
        (["a"] * 12, []),
    ],
)
def test_what_looks_like_a_code(values, codes):
    assert [found.code for found in missing_codes(pd.Series(values, name="x"))] == codes


@pytest.mark.parametrize("dtype", ["float64", "int16", "Int64", "category", "bool"])
def test_parts_of_a_column_add_up_to_the_whole(dtype):
    values = pd.Series([*USUAL, 999, -9, *USUAL, 999, -9, 88, 7, 100], name="x").astype(dtype)
    for ends in ([], [3], [0, 11, 12], [10, 11, 24]):
        parts = [values.iloc[a:b] for a, b in zip([0, *ends], [*ends, len(values)], strict=True)]
        total = sum((CodeCounts.of(part) for part in parts), CodeCounts())
        assert total == CodeCounts.of(values)
        assert total.codes("x") == missing_codes(values)
    assert [(found.code, found.count) for found in missing_codes(values)] == (
        [] if dtype in ("category", "bool") else [(-9.0, 2), (999.0, 2)]
    )


@pytest.mark.parametrize("make", [quick_default, quick_model])
def test_a_fit_says_so_with_the_line_to_type(make):
    cohort = small_cohort()
    x = cohort.x.assign(age=np.where(np.arange(40) < 3, 999.0, cohort.x["age"]))
    message = r"column 'age' holds 999 in 3 rows, and .* df\['age'\] = df\['age'\]\.replace\(999, float\('nan'\)\)\."
    with pytest.warns(MissingCodeWarning, match=message) as caught:
        make().fit(x, cohort.y)
    assert caught[0].filename == __file__
