"""A transformer over a table: every covariate is a token, and attention lets one look at another.

The cohort is simulated, with an effect of one covariate that depends on another, so that the truth is known. Run as
``python docs/examples/transformer.py --out docs/images/networks_transformer.png``; about a minute of one core.
"""

import argparse
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from neuralsurv import NeuralSurv
from neuralsurv.data.simulate import interaction_cohort
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


def run(rows: int = 1500, people: int = 300, epochs: int | None = 40, draws: int = 300) -> dict[str, Any]:
    """Fit the built-in network and the transformer to the same rows, and score both on others."""
    train, test = interaction_cohort(rows, seed=0), interaction_cohort(people, seed=1)
    times = np.quantile(train.time[train.event], np.linspace(0.05, 0.9, 20))
    truth = test.true_survival(times)
    common = {"average": False, "draws": draws, "random_state": 0, "verbose": False}
    torch.manual_seed(0)
    models = {
        "built-in network": NeuralSurv(**common),
        "transformer": NeuralSurv(network=TabularTransformer(train.x.shape[1]), epochs=epochs, **common),
    }
    scores = {}
    for name, model in models.items():
        model.fit(train.x, train.y)
        curves = model.predict_survival(test.x, times)
        mean = curves.mean.to_numpy()
        low, high = (band.to_numpy() for band in curves.interval(0.9))
        scores[name] = {
            "C": antolini_concordance(test.time, test.event, mean, times, tau=times[-1]),
            "IBS": integrated_brier_score(
                test.time, test.event, mean, times, train_time=train.time, train_event=train.event
            ),
            "error": float(np.sqrt(np.mean((mean - truth) ** 2))),
            "cover": float(((low <= truth) & (truth <= high)).mean()),
            "ELBO": float(model.elbo_[-1]),
        }
    return {"scores": scores, "model": model, "train": train, "test": test, "times": times}


def draw(found: dict[str, Any], out: Path) -> None:
    """Draw the effect of one covariate where the other is low and where it is high, and the truth."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    train, middle = found["train"], float(np.median(found["times"]))
    figure, axes = pyplot.subplots(figsize=(6, 4))
    grid = np.linspace(-2, 2, 25)
    for colour, level in (("C0", -1.0), ("C1", 1.0)):
        people = train.x.iloc[[0] * len(grid)].reset_index(drop=True) * 0
        people["x1"], people["x2"] = grid, level
        curves = found["model"].predict_survival(people, [middle])
        low, high = (band.to_numpy()[:, 0] for band in curves.interval(0.9))
        axes.plot(grid, curves.mean.to_numpy()[:, 0], color=colour, label=f"x2 = {level:g}")
        axes.fill_between(grid, low, high, color=colour, alpha=0.2)
        axes.plot(grid, train.true_survival([middle], people)[:, 0], color=colour, linestyle=":")
    axes.set(xlabel="x1", ylabel=f"survival to time {middle:.0f}", title="Transformer, 90 % bands, truth dotted")
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
