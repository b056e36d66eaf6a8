"""A convolutional network on images: scikit-learn's digits, whose hazard depends on the digit that is drawn.

Nobody tells the model which digit it is; it sees the picture and a censored time. Run as
``python docs/examples/digits.py --out docs/images/networks_digits.png``; it takes about a minute of one core.
"""

import argparse
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.ndimage import gaussian_filter, rotate
from sklearn.datasets import load_digits
from torch import Tensor, nn

from neuralsurv import NeuralSurv, OwnNetwork
from neuralsurv.errors import NeuralSurvWarning
from neuralsurv.metrics import antolini_concordance, integrated_brier_score


class Convolutional(nn.Module):
    """Two layers of convolution, then a small head that sees the time beside what they have found.

    What they have found is brought to one length. Without that (``even=False``) a blurred image has weak features,
    close to the average of all images, which the data know best, and its bands are narrower than those of a sharp one.

    With ``waves``, fixed random waves over the image are added, and what they are multiplied by is learned: a random
    function whose values at two images have less to do with each other the farther these are apart (Rahimi and Recht
    2007). Layers of convolution may take a strange image for a common one; far from all images of the training rows,
    what the waves add stays unknown.
    """

    def __init__(self, even: bool = True, waves: int = 0, length: float = 5.0) -> None:
        super().__init__()
        self.contrast = nn.InstanceNorm2d(1)
        self.body = nn.Sequential(
            *(nn.Conv2d(1, 16, 3, padding=1), nn.SiLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(16, 32, 3, padding=1), nn.SiLU(), nn.MaxPool2d(2), nn.Flatten()),
        )
        self.even = nn.LayerNorm(128, elementwise_affine=False) if even else nn.Identity()
        self.head = nn.Sequential(nn.Linear(129, 32), nn.SiLU(), nn.Linear(32, 1))
        fixed = torch.Generator().manual_seed(0)
        self.register_buffer("direction", torch.randn(64, waves, generator=fixed) / length)
        self.register_buffer("phase", 2 * torch.pi * torch.rand(waves, generator=fixed))
        self.height = nn.Linear(waves, 1, bias=False) if waves else None

    def forward(self, t: Tensor, x: Tensor) -> Tensor:
        x = self.contrast(x)
        g = self.head(torch.cat([t[:, None], self.even(self.body(x))], 1))
        if self.height is None:
            return g
        return g + self.height(2**0.5 * torch.cos(x.flatten(1) @ self.direction + self.phase))


class Dense(nn.Module):
    """Two dense layers over the pixels, with about as many weights, trained in the same way: it sees no neighbours."""

    def __init__(self, pixels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(pixels, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU())
        self.head = nn.Sequential(nn.Linear(65, 32), nn.SiLU(), nn.Linear(32, 1))

    def forward(self, t: Tensor, x: Tensor) -> Tensor:
        return self.head(torch.cat([t[:, None], self.body(x)], 1))


def cohort(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return images (N, 1, 8, 8) between 0 and 1, times, events and the true rates, in a random order."""
    rng = np.random.default_rng(seed)
    digits = load_digits()
    rate = np.exp(0.365 * (digits.target - 4.5))
    death, leave = rng.exponential(1 / rate), rng.exponential(3.0, len(rate))
    order = rng.permutation(len(rate))
    time, event = np.minimum(death, leave), death <= leave
    return digits.images[order, None] / 16, time[order], event[order], rate[order]


def spoilt(images: np.ndarray) -> dict[str, np.ndarray]:
    """Return the images as they are, blurred, turned, and without any drawing."""
    blurred = np.stack([gaussian_filter(image[0], 1.5)[None] for image in images])
    turned = np.stack([rotate(image[0], 90, reshape=False)[None] for image in images])
    noise = np.random.default_rng(1).random(images.shape)
    return {"as they are": images, "blurred": blurred, "turned by 90°": turned, "noise": noise}


def score(curves: np.ndarray, times: np.ndarray, test: tuple[np.ndarray, ...], train: tuple[np.ndarray, ...]) -> dict:
    (time, event, rate), (train_time, train_event) = test, train
    truth = np.exp(-rate[:, None] * times)
    return {
        "C": antolini_concordance(time, event, curves, times, tau=times[-1]),
        "IBS": integrated_brier_score(time, event, curves, times, train_time=train_time, train_event=train_event),
        "error": float(np.sqrt(np.mean((curves - truth) ** 2))),
    }


def g_draws(model: NeuralSurv, images: np.ndarray, time: float) -> np.ndarray:
    """Return g, the logit of the hazard's share of its ceiling, for every draw and image at one time, (draws, n)."""
    x = torch.from_numpy(model.encoding_.transform(images))
    at = torch.full((len(x),), time / model.time_scale_, dtype=torch.float64)
    draws = model.posterior_.draw(model.draws, model.fitted_.draw_seed)
    return model.posterior_.g_draws(draws, at, x).numpy()


def run(
    rows: int = 1000,
    people: int = 400,
    even: bool = True,
    waves: int = 0,
    epochs: int = 50,
    draws: int = 200,
    seed: int = 0,
) -> dict[str, Any]:
    """Fit the networks and return scores, widths of bands and the fitted models."""
    images, time, event, rate = cohort(seed)
    train, test = slice(0, rows), slice(len(time) - people, None)
    times = np.quantile(time[train][event[train]], np.linspace(0.02, 0.9, 30))
    pixels = images.reshape(len(images), -1)
    pixels = pixels[:, pixels[train].std(0) > 0]
    common = {"average": False, "draws": draws, "random_state": seed, "verbose": False}
    torch.manual_seed(seed)
    dense, convolutional = Dense(pixels.shape[1]), Convolutional(even, waves)
    models = {
        "built-in network on pixels": (NeuralSurv(**common), pixels),
        "dense network on pixels": (NeuralSurv(network=OwnNetwork(dense, epochs=epochs), **common), pixels),
        "convolutional network": (NeuralSurv(network=OwnNetwork(convolutional, epochs=epochs), **common), images),
    }
    known = (time[test], event[test], rate[test]), (time[train], event[train])
    results: dict[str, Any] = {"scores": {}, "elbo": {}}
    for name, (model, X) in models.items():
        model.fit(X[train], (time[train], event[train]))
        curves = model.predict_survival(X[test], times)
        low, high = (band.to_numpy() for band in curves.interval(0.9))
        truth = np.exp(-rate[test][:, None] * times)
        covered = float(((low <= truth) & (truth <= high)).mean())
        results["scores"][name] = score(curves.mean.to_numpy(), times, *known) | {"cover": covered}
        results["elbo"][name] = float(model.elbo_[-1])
    results["scores"]["the truth"] = score(np.exp(-rate[test][:, None] * times), times, *known)
    middle = float(np.median(time[train]))
    results["widths"] = {}
    for name, pictures in spoilt(images[test][:100]).items():
        model.set_params(draws=1000)
        g = g_draws(model, pictures, middle)
        low, high = (band.to_numpy() for band in model.predict_survival(pictures, [middle]).interval(0.9))
        results["widths"][name] = {"S": high - low, "g": g.std(axis=0)}
    return results | {"model": model, "images": images[test], "times": times, "rate": rate[test], "middle": middle}


def draw(found: dict[str, Any], out: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 4))
    grid = np.linspace(0, found["times"][-1], 60)
    some = [int(np.argmin(abs(found["rate"] - np.exp(0.365 * (digit - 4.5))))) for digit in (1, 5, 9)]
    curves = found["model"].predict_survival(found["images"][some], grid)
    low, high = curves.interval(0.9)
    for place, (row, digit) in enumerate(zip(some, (1, 5, 9), strict=True)):
        colour = f"C{place}"
        left.plot(grid, curves.mean.iloc[place], color=colour, label=f"a {digit}")
        left.fill_between(grid, low.iloc[place], high.iloc[place], color=colour, alpha=0.2)
        left.plot(grid, np.exp(-found["rate"][row] * grid), color=colour, linestyle=":")
        corner = left.inset_axes((0.62 + 0.13 * place, 0.82, 0.12, 0.16))
        corner.imshow(found["images"][row, 0], cmap="gray_r")
        corner.set_axis_off()
        corner.set_title(f"a {digit}", fontsize=7, pad=1, color=colour)
    left.set(xlabel="time", ylabel="survival", title="Three test images, 90 % bands, truth dotted", ylim=(0, 1.02))
    names = list(found["widths"])
    right.boxplot([found["widths"][name]["g"] for name in names], tick_labels=names, showfliers=False)
    right.set(ylabel="posterior sd of g", title=f"How sure it is, 100 test images, time {found['middle']:.2f}")
    figure.tight_layout()
    figure.savefig(out, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0, help="of the times, the rows and the networks")
    parser.add_argument("--uneven", action="store_true", help="leave the length of the features as it is")
    parser.add_argument("--waves", type=int, default=0, help="fixed random waves beside it, such as 256")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NeuralSurvWarning)
        found = run(rows=given.rows, even=not given.uneven, waves=given.waves, seed=given.seed)
    print("| | C-index | IBS | error of S | truth in 90 % band |\n|---|--:|--:|--:|--:|")
    for name, row in found["scores"].items():
        cover = f"{row['cover']:.0%}" if "cover" in row else ""
        print(f"| {name} | {row['C']:.3f} | {row['IBS']:.4f} | {row['error']:.3f} | {cover} |")
    print("\n| images | sd of g, median | larger than of the clean image | width of the band of S |\n|---|--:|--:|--:|")
    clean = found["widths"]["as they are"]["g"]
    for name, widths in found["widths"].items():
        larger = "" if widths["g"] is clean else f"{np.mean(widths['g'] > clean):.0%}"
        print(f"| {name} | {np.median(widths['g']):.3f} | {larger} | {widths['S'].mean():.3f} |")
    print("\nELBO and log hyper-prior:", {name: round(value, 1) for name, value in found["elbo"].items()})
    print("epochs of training:", found["model"].diagnostics_.epochs)
    if given.out is not None:
        draw(found, given.out)


if __name__ == "__main__":
    main()
