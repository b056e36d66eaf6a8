"""Draw every picture of the explanation pages."""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib

from neuralsurv import NeuralSurv
from neuralsurv.data.simulate import lognormal_cohort
from pictures.algorithm import draw_bound, draw_sweeps
from pictures.competing import draw_competing
from pictures.hazard import draw_hazard
from pictures.posterior import draw_bands, draw_posterior
from pictures.prior import draw_prior
from pictures.start import draw_start


def main(arguments: list[str] | None = None) -> None:
    """Draw them into a folder."""
    parser = argparse.ArgumentParser(prog="python -m pictures", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs/images"), help="folder (default: docs/images)")
    out: Path = parser.parse_args(arguments).out
    matplotlib.use("Agg")
    cohort = lognormal_cohort(100, seed=1)
    model = NeuralSurv(random_state=0, verbose=False).fit(cohort.x, cohort.y)
    pictures = [draw_start(out), draw_hazard(out), draw_prior(model, cohort, out), draw_posterior(out), draw_bands(out)]
    for path in [*pictures, draw_bound(out), draw_sweeps(out), draw_competing(out)]:
        print(f"picture: {path}")


if __name__ == "__main__":
    main()
