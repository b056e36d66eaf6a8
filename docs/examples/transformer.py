"""A transformer over a table: every covariate is a token, and attention lets one look at another.

The cohort is simulated, so that the truth is known: the hazard depends on the largest of six measurements, whichever
that is. Run as
``python docs/examples/transformer.py --out docs/images/networks_transformer.png``; about a minute of one core.
"""

import argparse
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from neuralsurv import NeuralSurv, OwnNetwork
from neuralsurv.errors import NeuralSurvWarning
from neuralsurv.metrics import antolini_concordance, integrated_brier_score


class TabularTransformer(nn.Module):
    """Time and covariates become tokens: their value times a vector of their own, plus another."""

    def __init__(self, covariates: int, width: int = 8) -> None:
        super().__init__()
        self.slope = nn.Parameter(torch.randn(covariates + 1, width) / 2)
        self.place = nn.Parameter(torch.randn(covariates + 1, width) / 2)
        layer = nn.TransformerEncoderLayer(width, nhead=2, dim_feedforward=16, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, num_layers=1, enable_nested_tensor=False)
        self.head = nn.Linear(width, 1)

    def forward(self, t: Tensor, x: Tensor) -> Tensor:
        values = torch.cat([t[:, None], x], 1)
        return self.head(self.encoder(values[:, :, None] * self.slope + self.place).mean(1))


def cohort(rows: int, seed: int) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    """Return covariates, times and events."""
    rng = np.random.default_rng(seed)
    x = pd.DataFrame(rng.normal(size=(rows, 6)), columns=[f"x{k}" for k in range(1, 7)])
    death, leave = rng.exponential(1 / true_rate(x)), rng.exponential(3.0, rows)
    return x, np.minimum(death, leave), death <= leave


def true_rate(x: pd.DataFrame) -> np.ndarray:
    return np.exp(1.5 * (x.to_numpy().max(1) - 1.27))


def run(rows: int = 1500, people: int = 300, epochs: int = 50, draws: int = 300) -> dict[str, Any]:
    """Fit the built-in network and the transformer to the same rows, and score both on others."""
    (x, time, event), (x_new, time_new, event_new) = cohort(rows, 0), cohort(people, 1)
    times = np.quantile(time[event], np.linspace(0.05, 0.9, 20))
    truth = np.exp(-true_rate(x_new)[:, None] * times)
    common = {"average": False, "draws": draws, "random_state": 0, "verbose": False}
    torch.manual_seed(0)
    models = {
        "built-in network": NeuralSurv(**common),
        "transformer": NeuralSurv(network=OwnNetwork(TabularTransformer(x.shape[1]), epochs=epochs), **common),
    }
    scores = {}
    for name, model in models.items():
        model.fit(x, (time, event))
        curves = model.predict_survival(x_new, times)
        mean = curves.mean.to_numpy()
        low, high = (band.to_numpy() for band in curves.interval(0.9))
        scores[name] = {
            "C": antolini_concordance(time_new, event_new, mean, times, tau=times[-1]),
            "IBS": integrated_brier_score(time_new, event_new, mean, times, train_time=time, train_event=event),
            "error": float(np.sqrt(np.mean((mean - truth) ** 2))),
            "cover": float(((low <= truth) & (truth <= high)).mean()),
            "ELBO": float(model.elbo_[-1]),
        }
    return {"scores": scores, "model": model, "times": times}


def draw(found: dict[str, Any], out: Path) -> None:
    """Draw the effect of one covariate where the other is low and where it is high, and the truth."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    middle = float(np.median(found["times"]))
    figure, axes = pyplot.subplots(figsize=(6, 4))
    grid = np.linspace(-2, 3, 25)
    for colour, x2 in (("C0", -1.0), ("C1", 1.5)):
        people = pd.DataFrame({"x1": grid, "x2": x2} | {f"x{k}": -0.5 for k in range(3, 7)})
        curves = found["model"].predict_survival(people, [middle])
        low, high = (band.to_numpy()[:, 0] for band in curves.interval(0.9))
        axes.plot(grid, curves.mean.to_numpy()[:, 0], color=colour, label=f"x2 = {x2:g}, others −0.5")
        axes.fill_between(grid, low, high, color=colour, alpha=0.2)
        axes.plot(grid, np.exp(-true_rate(people) * middle), color=colour, linestyle=":")
    axes.set(xlabel="x1", ylabel=f"survival to time {middle:.2f}", title="Transformer, 90 % bands, truth dotted")
    axes.legend(frameon=False)
    figure.tight_layout()
    figure.savefig(out, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1500)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NeuralSurvWarning)
        found = run(rows=given.rows)
    print("| | C-index | IBS | error of S | truth in 90 % band | ELBO |\n|---|--:|--:|--:|--:|--:|")
    for name, row in found["scores"].items():
        cells = f"{row['C']:.3f} | {row['IBS']:.4f} | {row['error']:.3f} | {row['cover']:.0%} | {row['ELBO']:.1f}"
        print(f"| {name} | {cells} |")
    print("epochs of training:", found["model"].diagnostics_.epochs)
    if given.out is not None:
        draw(found, given.out)


if __name__ == "__main__":
    main()
