"""Small tables and their encodings."""

import numpy as np
import pandas as pd

from neuralsurv.data.features import Encoding
from neuralsurv.data.frames import as_frame

WEIGHT = np.array([1.0, 2.0, 0.5, 3.0])


def frame(**columns):
    return pd.DataFrame(columns)


def fit(X, weight=None, **options):
    rows = len(as_frame(X))
    return Encoding.fit(X, np.ones(rows) if weight is None else np.asarray(weight, dtype=float), **options)


def raw(X, weight=None):
    """The encoded columns as they are before scaling, gaps filled."""
    encoding = fit(X, weight, standardise=False)
    return dict(zip(encoding.outputs, encoding.transform(X).T.tolist(), strict=True))


def as_object(values):
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array
