"""The picture of the page "Competing risks": stacked cumulative incidences of two patients with melanoma."""

from __future__ import annotations

import warnings
from pathlib import Path

import pandas as pd
from matplotlib import pyplot

from neuralsurv import NeuralSurv
from neuralsurv.errors import CausesWarning
from pictures.start import TABLES


def draw_competing(out: Path) -> Path:
    """Fit the melanoma table and draw two of its patients."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CausesWarning)
        model = NeuralSurv(random_state=0, verbose=False)
        model.fit(pd.read_csv(TABLES / "melanoma.csv"), time="days", event="status")
    known = {"sex": "male", "year": 1970}
    people = pd.DataFrame({**known, "age": [50, 75], "thickness": [1.0, 6.0], "ulcer": ["no", "yes"]})
    titles = ("50 years, 1 mm, no ulcer", "75 years, 6 mm, ulcer")
    figure, axes = pyplot.subplots(1, 2, figsize=(8, 3.4), sharey=True, layout="constrained")
    for row, (target, title) in enumerate(zip(axes, titles, strict=True)):
        model.plot_cumulative_incidence(people.iloc[[row]], ax=target)
        target.set_title(title, fontsize=10)
        target.set_xlabel("days")
    picture = out / "competing_incidence.png"
    figure.savefig(picture, dpi=130)
    pyplot.close(figure)
    return picture
