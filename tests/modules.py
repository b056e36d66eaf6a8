"""Small networks of every kind, with inputs for them."""

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

WIDTH = 3


class Perceptron(nn.Module):
    """The built-in MLP, layer for layer: its parameters in order are the flat weight vector of that."""

    def __init__(self, covariates: int, hidden: tuple[int, ...], activation: type[nn.Module] = nn.Tanh) -> None:
        super().__init__()
        widths = [covariates + 1, *hidden]
        layers: list[nn.Module] = []
        for before, after in itertools.pairwise(widths):
            layers += [nn.Linear(before, after), activation()]
        self.layers = nn.Sequential(*layers, nn.Linear(widths[-1], 1))

    def forward(self, t: Tensor, x: Tensor) -> Tensor:
        return self.layers(torch.cat([t[:, None], x], 1))


class Convolutional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.SiLU(), nn.Flatten(), nn.Dropout(0.5))
        self.head = nn.Linear(2 * 4 + 1, 1)

    def forward(self, t: Tensor, x: Tensor) -> Tensor:
        return self.head(torch.cat([self.body(x), t[:, None]], 1))


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.block, self.head = nn.Linear(WIDTH + 1, 4), nn.Linear(4, 4), nn.Linear(4, 1)
        self.norm = nn.LayerNorm(4)

    def forward(self, t: Tensor, x: Tensor) -> Tensor:
        h = self.first(torch.cat([x, t[:, None]], 1))
        return self.head(h + torch.tanh(self.block(self.norm(h)))).squeeze(1)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.steps, self.head = nn.GRU(2, 3, batch_first=True), nn.Linear(4, 1)

    def forward(self, t: Tensor, x: Tensor) -> Tensor:
        return self.head(torch.cat([self.steps(x)[0][:, -1], t[:, None]], 1))


class TabularTransformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(0.5 * torch.randn(WIDTH + 1, 4))
        self.place = nn.Parameter(0.5 * torch.randn(WIDTH + 1, 4))
        layer = nn.TransformerEncoderLayer(4, 2, 4, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.head = nn.Linear(4, 1)

    def forward(self, t: Tensor, x: Tensor) -> Tensor:
        tokens = torch.cat([t[:, None], x], 1)[:, :, None] * self.weight + self.place
        return self.head(self.encoder(tokens).mean(1))


class FrozenEncoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(WIDTH, 5), nn.Tanh())
        self.encoder.requires_grad_(False)
        self.head = nn.Linear(6, 1)

    def forward(self, t: Tensor, x: Tensor) -> Tensor:
        return self.head(torch.cat([self.encoder(x), t[:, None]], 1))


class ImageAndTable(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.image = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Tanh(), nn.Flatten())
        self.code = nn.Embedding(3, 2)
        self.head = nn.Linear(8 + 2 + 2 + 1, 1)

    def forward(self, t: Tensor, x: dict[str, Tensor]) -> Tensor:
        parts = [self.image(x["image"]), x["table"], self.code(x["code"][:, 0]), t[:, None]]
        return self.head(torch.cat(parts, 1))


class Pair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4 + 2 + 1, 1)

    def forward(self, t: Tensor, x: tuple[Tensor, Tensor]) -> Tensor:
        return self.head(torch.cat([x[0].flatten(1), x[1], t[:, None]], 1))


@dataclass(frozen=True)
class Case:
    """A network, and covariates for it whose first number raises the hazard."""

    name: str
    module: type[nn.Module]
    differentiation: str = "together"

    def make(self, seed: int = 0) -> nn.Module:
        torch.manual_seed(seed)
        return self.module()

    def inputs(self, count: int, seed: int = 0) -> Any:
        rng = np.random.default_rng(seed)
        if self.module is Convolutional:
            return rng.normal(size=(count, 1, 4, 4))
        if self.module is Recurrent:
            return rng.normal(size=(count, 3, 2))
        if self.module is ImageAndTable:
            return {
                "image": rng.normal(size=(count, 1, 4, 4)),
                "table": rng.normal(size=(count, 2)),
                "code": rng.integers(0, 3, size=count),
            }
        if self.module is Pair:
            return rng.normal(size=(count, 2, 2)), rng.normal(size=(count, 2))
        return rng.normal(size=(count, WIDTH))


CASES = [
    Case("convolutional", Convolutional),
    Case("residual", Residual),
    Case("recurrent", Recurrent, differentiation="backwards"),
    Case("transformer", TabularTransformer),
    Case("frozen encoder", FrozenEncoder),
    Case("image and table", ImageAndTable),
    Case("tuple", Pair),
]
