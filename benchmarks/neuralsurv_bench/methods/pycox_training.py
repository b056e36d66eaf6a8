"""What the nine methods of pycox share: the network, the learning rate, the training loop and when it stops.

The published set-up is two hidden layers with ReLU, batch normalisation and dropout 0.1, Adam, 1,000 epochs in batches
of 256. Its learning rate is "selected via grid search"; here it is torchtuples' range test, as in pycox's examples. The
text names no stopping by validation rows, and the published figures agree that there was none: on COLON all 1,000
epochs give integrated Brier scores of 0.25 to 0.36 (published: 0.28 to 0.33), stopping gives 0.20 to 0.25.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from neuralsurv.errors import InputError
from neuralsurv_bench.methods.interface import Floats, Rows, Settings, Split
from neuralsurv_bench.threads import one_thread

EPOCHS = 1000
BATCH = 256
DROPOUT = 0.1

PATIENCE = 100
"""Epochs without a better validation loss after which `fair` stops.

A training set of up to 256 rows is one batch, so that an epoch is one step of Adam. The examples of pycox wait for 10
epochs; after as many steps the running means of batch normalisation, which the validation loss is computed with, still
hold a third of where they started.
"""

HELD_OUT = 0.2
"""Share of the training rows to stop by where the split has no validation row with an event."""

RATE_STEPS = 100
RATE_RANGE = (1e-7, 10.0)
RATE_BOUNDS = (1e-4, 1.0)
"""Rates that the range test may choose: torchtuples' own bounds, used by `as-published`."""
FAIR_RATE_BOUNDS = (1e-4, 1e-2)
"""The same for `fair`. On 80 rows the range test says 0.02 to 0.2, and with 0.1 the validation loss of COLON is mostly
lowest in the first five epochs: too coarse to stop by."""

PycoxModel = Any
"""A model of pycox; the package has no types."""
Target = tuple[NDArray[Any], ...]


def pycox_models() -> ModuleType:
    """Import `pycox.models` when a method is first fitted (it takes seconds) and without its warnings.

    Docstrings of pycox hold invalid escape sequences, which Python reports when it compiles them.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="invalid escape sequence")
        import pycox.models
    models: ModuleType = pycox.models
    return models


@contextmanager
def pycox_session() -> Iterator[None]:
    """Run torch on one thread and without known warnings; the number of threads and the filters are put back.

    With 80 rows a second thread costs more than it brings. The warnings: torchtuples asks CoxTime's rows for a list of
    slices, only to note the shape of a batch, and goes on without it if that fails; and PCHazard says that a row whose
    time is 0 does not count, which is what its likelihood asks for.
    """
    pycox_models()  # importing numba sets torch's number of threads, so it has to come first
    with one_thread(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Using a non-tuple sequence for multidimensional indexing")
        warnings.filterwarnings("ignore", message="Got event/censoring at start time")
        yield


def seed_everything(seed: int) -> None:
    """Seed torch's generator and numpy's global one, from which pycox draws the controls of CoxCC and CoxTime."""
    torch.manual_seed(seed)
    np.random.seed(seed)  # noqa: NPY002 - pycox draws from the global generator


def as_input(x: Floats) -> NDArray[np.float32]:
    """Return covariates in the precision of the networks."""
    return np.ascontiguousarray(x, dtype=np.float32)


def mlp(inputs: int, outputs: int, hidden: tuple[int, ...], *, bias: bool = True) -> torch.nn.Module:
    """Return the network of the published set-up; `bias` is that of the last layer."""
    from torchtuples.practical import MLPVanilla

    network: torch.nn.Module = MLPVanilla(
        inputs, list(hidden), outputs, batch_norm=True, dropout=DROPOUT, output_bias=bias
    )
    return network


def adam(rate: float) -> Any:
    """Return torchtuples' Adam, to be given the weights of a model later."""
    import torchtuples

    return torchtuples.optim.Adam(rate)


def rows_to_stop_by(split: Split, seed: int) -> tuple[Rows, Rows]:
    """Return the rows to train on and the rows to stop by.

    The validation rows of the split are used where one of them has an event. Otherwise a seeded fifth of the training
    rows is held out, the same share of those with an event and of those without.

    Parameters
    ----------
    split : Split
        The fold.
    seed : int
        Decides which rows are held out.

    Returns
    -------
    tuple of Rows
        Rows to train on, rows to stop by.
    """
    if split.validation.event.any():
        return split.train, split.validation
    train = split.train
    events = int(train.event.sum())
    if events < 2:
        raise InputError(
            f"Stopping early needs an event to train on and one to stop by, but there are {events} among the "
            f"{len(train)} training rows and none among the {len(split.validation)} validation rows. "
            "Give validation rows with an event, or use the variant 'as-published', which does not stop early."
        )
    generator = np.random.default_rng(seed)
    held_out = np.zeros(len(train), dtype=bool)
    for stratum in (np.flatnonzero(train.event), np.flatnonzero(~train.event)):
        count = round(HELD_OUT * len(stratum))
        if train.event[stratum].any():
            count = max(count, 1)
        held_out[generator.permutation(stratum)[:count]] = True
    return _taken(train, ~held_out), _taken(train, held_out)


def _taken(rows: Rows, mask: NDArray[np.bool_]) -> Rows:
    return Rows(rows.x[mask], rows.time[mask], rows.event[mask])


def batch_size(rows: int) -> int:
    """Return 256, or the next size that leaves no batch of a single row, whose batch normalisation is undefined."""
    size = BATCH
    while rows % size == 1 and rows > 1:
        size += 1
    return size


MakeModel = Callable[[float], PycoxModel]


def find_rate(make_model: MakeModel, x: NDArray[np.float32], target: Target, bounds: tuple[float, float]) -> float:
    """Choose the learning rate by torchtuples' range test.

    The rate grows from 1e-7 to 10 over 100 steps; the answer is a tenth of the rate at which the smoothed loss was
    lowest, within `bounds`. `Model.lr_finder` does the same but keeps the weights in a file of the working directory,
    where parallel runs and interrupted ones leave it behind; and a loss that is not a number would win there.

    Parameters
    ----------
    make_model : callable
        Makes an untrained model with a given rate.
    x : ndarray of float32, shape (n, d)
        Covariates.
    target : tuple of ndarray
        Labels as the model takes them.
    bounds : tuple of float
        Lowest and highest rate.
    """
    from torchtuples.callbacks import LRFinder

    finder = LRFinder(*RATE_RANGE, RATE_STEPS)
    make_model(RATE_RANGE[0]).fit(x, target, batch_size(len(x)), RATE_STEPS, [finder], verbose=False)
    finder.batch_loss = [loss if np.isfinite(loss) else np.inf for loss in finder.batch_loss]
    return float(finder.get_best_lr(*bounds))


def best_weights_callback(validation_loss: Callable[[PycoxModel], float], patience: int) -> Any:
    """Return a callback of torchtuples that stops the training and puts the best weights back.

    `torchtuples.callbacks.EarlyStopping` keeps the weights in a file of the working directory; this one in memory.

    Parameters
    ----------
    validation_loss : callable
        Takes the model, returns what is to be small. A value that is not a number is never the best.
    patience : int
        Epochs without a new best after which training stops.
    """
    from torchtuples.callbacks import Callback

    class BestWeights(Callback):
        def on_fit_start(self) -> None:
            self.best_loss = np.inf
            self.best_weights = copy.deepcopy(self.model.net.state_dict())
            self.losses: list[float] = []
            self.best_epoch = -1

        def on_epoch_end(self) -> bool:
            loss = validation_loss(self.model)
            self.losses.append(loss)
            if loss < self.best_loss:
                self.best_loss, self.best_epoch = loss, len(self.losses) - 1
                self.best_weights = copy.deepcopy(self.model.net.state_dict())
            return len(self.losses) - 1 - self.best_epoch >= patience

        def on_fit_end(self) -> None:
            self.model.net.load_state_dict(self.best_weights)

    return BestWeights()


def train(
    make_model: MakeModel,
    x: NDArray[np.float32],
    target: Target,
    settings: Settings,
    *,
    validation_loss: Callable[[PycoxModel], float] | None,
    epochs: int = EPOCHS,
    patience: int = PATIENCE,
) -> PycoxModel:
    """Train a model: rate by the range test, then at most `epochs` epochs from the same initial weights.

    Parameters
    ----------
    make_model : callable
        Makes an untrained model with a given rate.
    x : ndarray of float32, shape (n, d)
        Covariates.
    target : tuple of ndarray
        Labels as the model takes them.
    settings : Settings
        The seed and the variant.
    validation_loss : callable or None
        What to stop by; None trains for all epochs and keeps the last weights.
    epochs : int
        Largest number of epochs.
    patience : int
        Epochs without a new best validation loss after which training stops.

    Returns
    -------
    model
        The trained model, its network in evaluation mode.
    """
    seed_everything(settings.seed)
    rate = find_rate(make_model, x, target, RATE_BOUNDS if settings.variant == "as-published" else FAIR_RATE_BOUNDS)
    seed_everything(settings.seed)
    model = make_model(rate)
    callbacks = [] if validation_loss is None else [best_weights_callback(validation_loss, patience)]
    model.fit(x, target, batch_size(len(x)), epochs, callbacks, verbose=False)
    model.net.eval()
    return model
