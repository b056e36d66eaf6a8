"""Values imputed in place of missing ones."""

import numpy as np
import pandas as pd

from neuralsurv.data.features import Encoding


def test_imputations_are_spread_like_the_training_values():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "age": rng.normal(60, 10, 4000),
            "count": rng.poisson(0.3, 4000),
            "flag": rng.choice([2.0, 5.0], 4000, p=[0.8, 0.2]),
            "sex": rng.choice(["f", "m"], 4000, p=[0.25, 0.75]),
            "site": rng.choice(list("abc"), 4000, p=[0.5, 0.3, 0.2]),
        }
    )
    encoding = Encoding.fit(frame, np.ones(4000), standardise=False)
    values = pd.DataFrame(encoding.imputations(), columns=encoding.outputs)
    assert abs(values.age.mean() - 60) < 1
    assert abs(values.age.std() - 10) < 1
    assert values["count"].between(0, frame["count"].max()).all()
    assert sorted(values.flag) == [2.0] * 16 + [5.0] * 4
    assert values["sex=m"].sum() == 15
    assert values[["site=a", "site=b", "site=c"]].sum().tolist() == [10, 6, 4]
    # Several gaps vary independently of each other.
    correlations = values[["age", "flag", "sex=m", "site=a"]].corr().to_numpy()[np.triu_indices(4, 1)]
    assert np.abs(correlations).max() < 0.6
    scaled = Encoding.fit(frame, np.ones(4000))
    np.testing.assert_allclose(scaled.imputations() * scaled.scale + scaled.center, values, atol=1e-9)
