"""Means and scales of encoded columns."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from data.encodings import WEIGHT, fit, frame
from neuralsurv.data.features import Encoding
from neuralsurv.errors import InputError


class TestScale:
    def test_weighted_moments_by_hand(self):
        encoding = fit(frame(a=[1.0, 2.0, 6.0]), [1, 2, 1])
        # mean (1 + 4 + 6) / 4, variance (1·1.75² + 2·0.75² + 1·3.25²) / 4
        assert encoding.center.tolist() == [2.75]
        np.testing.assert_allclose(encoding.scale, np.sqrt(3.6875), rtol=1e-15)
        wanted = np.array([[-1.75], [-0.75], [3.25]]) / np.sqrt(3.6875)
        np.testing.assert_allclose(encoding.transform(frame(a=[1, 2, 6])), wanted, rtol=1e-15)

    def test_moments_are_of_the_values_that_are_there(self):
        encoding = fit(frame(a=[1.0, np.nan, 3.0]), [1, 10, 3])
        np.testing.assert_allclose(encoding.center, [2.5, 10 / 14], rtol=1e-15)
        np.testing.assert_allclose(encoding.scale, np.sqrt([0.75, 10 / 14 * 4 / 14]), rtol=1e-15)

    def test_every_column_has_weighted_mean_zero_and_spread_one(self, training, encoding):
        values = encoding.transform(training)
        present = np.ones(values.shape, dtype=bool)
        present[1, [encoding.outputs.index("age"), encoding.outputs.index("sex=m")]] = False
        weight = np.where(present, WEIGHT[:, None], 0)
        np.testing.assert_allclose((weight * values).sum(0) / weight.sum(0), 0, atol=1e-15)
        np.testing.assert_allclose((weight * values**2).sum(0) / weight.sum(0), 1, rtol=1e-14)
        assert (values[~present] == 0).all()

    def test_without_standardising_only_gaps_change(self, training):
        encoding = Encoding.fit(training, WEIGHT, standardise=False)
        values = pd.DataFrame(encoding.transform(training), columns=encoding.outputs)
        assert values["age"].tolist() == [50, (50 + 61 / 2 + 45 * 3) / 4.5, 61, 45]
        assert values["dose"].tolist() == [1, 2, 3, 7]
        assert values["site=rome"].tolist() == [0, 1, 0, 1]
        assert values["sex=m"].tolist() == [0, 3.5 / 4.5, 1, 1]
        assert values["sex missing"].tolist() == [0, 1, 0, 0]

    def test_a_weight_of_two_counts_as_the_row_twice(self, training):
        whole = Encoding.fit(training, np.array([1, 2, 1, 3]))
        twice = fit(training.iloc[[0, 1, 1, 2, 3, 3, 3]])
        np.testing.assert_allclose(whole.center, twice.center, rtol=1e-14)
        np.testing.assert_allclose(whole.scale, twice.scale, rtol=1e-14)

    @pytest.mark.parametrize("unit", [1e-200, 1e-3, 1e200])
    def test_only_the_proportions_of_the_weights_matter(self, training, encoding, unit):
        scaled = Encoding.fit(training, WEIGHT * unit)
        np.testing.assert_allclose(scaled.center, encoding.center, rtol=1e-14)
        np.testing.assert_allclose(scaled.scale, encoding.scale, rtol=1e-14)

    def test_a_column_that_varies_only_in_rows_of_weight_zero_is_scaled_by_its_range(self):
        encoding = fit(frame(a=[100.0, 100.0, 1100.0]), [1, 2, 0])
        assert encoding.with_gaps(frame(a=[100.0, 1100.0, 600.0])).tolist() == [[0], [1], [0.5]]
        # Nothing can be learned from rows that were never at risk.
        assert encoding.transform(frame(a=[100.0, 1100.0, 600.0])).tolist() == [[0], [0], [0]]

    def test_a_column_that_is_known_only_in_rows_of_weight_zero_is_scaled_by_its_range(self):
        X = frame(a=[np.nan, 100.0, 300.0])
        assert fit(X, [1, 0, 0]).transform(X)[:, 0].tolist() == [0, -1, 1]

    @pytest.mark.parametrize("size", [1e300, 1.7e308 / 3, 1e-300, 3e-308, 1e150, 1.0])
    def test_huge_and_tiny_columns_have_the_same_encoding(self, size):
        values = np.array([1.0, -3.0, 2.0, 2.5])
        wanted = fit(frame(a=values), WEIGHT).transform(frame(a=values))
        found = fit(frame(a=values * size), WEIGHT).transform(frame(a=values * size))
        np.testing.assert_allclose(found, wanted, rtol=1e-13)

    def test_smallest_numbers(self):
        X = frame(a=[5e-324, 0.0, -5e-324])
        assert fit(X).transform(X).tolist() == [[1], [0], [-1]]
        # Here the spread itself is below the smallest number.
        X = frame(a=[0.0, 1e-323])
        assert np.isfinite(fit(X, [1, 1000]).transform(X)).all()

    def test_spread_as_wide_as_numbers_go(self):
        """The range of a column that only varies among rows which do not count may be the largest number there is."""
        encoding = fit(frame(a=[-np.finfo(float).max, 5e291]), [0.0, 1.0])
        assert np.isfinite(encoding.scale).all()
        assert np.isfinite(encoding.transform(frame(a=[-np.finfo(float).max, 5e291]))).all()

    def test_mean_of_huge_numbers(self):
        X = frame(a=[1.7e308, np.nan, 1.5e308])
        encoding = fit(X, standardise=False)
        np.testing.assert_allclose(encoding.center[0], 1.6e308, rtol=1e-14)
        message = r"column 'a' is too large to be computed with in 2 rows \(rows 0, 2, counting from 0\); correct"
        with pytest.raises(InputError, match=message):
            encoding.transform(X)

    def test_large_offset_loses_no_digits(self):
        X = frame(a=[1e15, 1e15 + 100, 1e15 + 200])
        np.testing.assert_allclose(fit(X).transform(X)[:, 0], [-(1.5**0.5), 0, 1.5**0.5], rtol=1e-12)

    @settings(deadline=None, max_examples=200)
    @given(
        values=hnp.arrays(
            np.float64,
            st.integers(2, 8),
            elements=st.floats(allow_infinity=False, allow_nan=True, allow_subnormal=True),
        ),
        standardise=st.booleans(),
    )
    def test_any_column_of_numbers_is_encoded_as_finite_numbers_or_refused(self, values, standardise):
        X = frame(a=values)
        if len(set(values[~np.isnan(values)])) < 2:
            with pytest.raises(InputError, match=r"column 'a' (is constant|has no value)"):
                fit(X)
            return
        encoding = fit(X, np.arange(len(values)), standardise=standardise)
        if not standardise and np.nanmax(np.abs(values)) > 1e100:
            with pytest.raises(InputError, match="column 'a' is too large to be computed with"):
                encoding.transform(X)
            return
        encoded = encoding.transform(X)
        assert np.isfinite(encoded).all()
        # A value that has next to no weight may lie as far out as the square root of its share allows, and no further.
        assert not standardise or np.abs(encoded).max() < 1e13
