"""An image and a table together: X is a dict, and so is what the network sees.

The hazard depends on the digit of an image of scikit-learn's and on two numbers of a table. Run as
``python docs/examples/image_and_table.py --out docs/images/networks_image_and_table.png``; about a minute of one core.
"""

import argparse
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

from neuralsurv import NeuralSurv, OwnNetwork
from neuralsurv.errors import NeuralSurvWarning
from neuralsurv.metrics import antolini_concordance, integrated_brier_score


class ImageAndTable(nn.Module):
    """Convolutions over the image; the head sees their outcome beside the table and the time."""

    def __init__(self) -> None:
        super().__init__()
        self.image = nn.Sequential(
            *(nn.InstanceNorm2d(1), nn.Conv2d(1, 16, 3, padding=1), nn.SiLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(16, 32, 3, padding=1), nn.SiLU(), nn.MaxPool2d(2), nn.Flatten()),
            nn.LayerNorm(128, elementwise_affine=False),
        )
        self.head = nn.Sequential(nn.Linear(128 + 2 + 1, 32), nn.SiLU(), nn.Linear(32, 1))

    def forward(self, t: Tensor, x: dict[str, Tensor]) -> Tensor:
        return self.head(torch.cat([t[:, None], self.image(x["image"]), x["table"]], 1))


def cohort(seed: int = 0) -> tuple[dict[str, Any], np.ndarray, np.ndarray, np.ndarray]:
    """Return X, times, events and the true rates."""
    rng = np.random.default_rng(seed)
    digits = load_digits()
    order = rng.permutation(len(digits.target))
    age, dose = rng.normal(60, 10, len(order)), rng.normal(size=len(order))
    rate = np.exp(0.365 * (digits.target[order] - 4.5) + 0.06 * (age - 60) - 0.5 * dose)
    death, leave = rng.exponential(1 / rate), rng.exponential(3.0, len(rate))
    X = {"image": digits.images[order, None] / 16, "table": pd.DataFrame({"age": age, "dose": dose})}
    return X, np.minimum(death, leave), death <= leave, rate


def part_of(X: dict[str, Any], rows: slice) -> dict[str, Any]:
    return {"image": X["image"][rows], "table": X["table"].iloc[rows]}


def run(rows: int = 1000, people: int = 300, epochs: int = 50, draws: int = 200) -> dict[str, Any]:
    """Fit the table alone and both together, and score them on other people."""
    X, time, event, rate = cohort()
    train, test = slice(0, rows), slice(len(time) - people, None)
    times = np.quantile(time[train][event[train]], np.linspace(0.02, 0.9, 25))
    common = {"average": False, "draws": draws, "random_state": 0, "verbose": False}
    torch.manual_seed(0)
    models = {
        "table alone": (
            NeuralSurv(**common),
            {name: part_of(X, rows)["table"] for name, rows in (("train", train), ("test", test))},
        ),
        "image and table": (
            NeuralSurv(network=OwnNetwork(ImageAndTable(), epochs=epochs), **common),
            {"train": part_of(X, train), "test": part_of(X, test)},
        ),
    }
    scores = {}
    for name, (model, parts) in models.items():
        model.fit(parts["train"], (time[train], event[train]))
        curves = model.predict_survival(parts["test"], times).mean.to_numpy()
        scores[name] = {
            "C": antolini_concordance(time[test], event[test], curves, times, tau=times[-1]),
            "IBS": integrated_brier_score(
                time[test], event[test], curves, times, train_time=time[train], train_event=event[train]
            ),
            "error": float(np.sqrt(np.mean((curves - np.exp(-rate[test][:, None] * times)) ** 2))),
        }
    return {"scores": scores, "model": model, "X": part_of(X, test), "rate": rate[test], "times": times}


def draw(found: dict[str, Any], out: Path) -> None:
    """Draw what age does to somebody with a given image."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6, 4))
    grid = np.linspace(0, found["times"][-1], 50)
    one = part_of(found["X"], slice(0, 1))
    for colour, age in (("C0", 45.0), ("C1", 75.0)):
        person = {"image": one["image"], "table": one["table"].assign(age=age, dose=0.0)}
        curves = found["model"].predict_survival(person, grid)
        low, high = curves.interval(0.9)
        axes.plot(grid, curves.mean.iloc[0], color=colour, label=f"age {age:.0f}")
        axes.fill_between(grid, low.iloc[0], high.iloc[0], color=colour, alpha=0.2)
    corner = axes.inset_axes((0.8, 0.72, 0.18, 0.25))
    corner.imshow(one["image"][0, 0], cmap="gray_r")
    corner.set_axis_off()
    axes.set(xlabel="time", ylabel="survival", ylim=(0, 1.02), title="The same image at two ages, 90 % bands")
    axes.legend(frameon=False, loc="lower left")
    figure.tight_layout()
    figure.savefig(out, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NeuralSurvWarning)
        found = run(rows=given.rows)
    print("| | C-index | IBS | error of S |\n|---|--:|--:|--:|")
    for name, row in found["scores"].items():
        print(f"| {name} | {row['C']:.3f} | {row['IBS']:.4f} | {row['error']:.3f} |")
    print("epochs of training:", found["model"].diagnostics_.epochs)
    if given.out is not None:
        draw(found, given.out)


if __name__ == "__main__":
    main()
