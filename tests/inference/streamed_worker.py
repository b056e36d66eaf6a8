"""A process of a streamed fit: python streamed_worker.py FOLDER METHOD CHECKPOINT OUT [scenario]

Alone, or with RANK and WORLD_SIZE in the environment as one of several. Writes what was found to OUT.
"""

import os
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from neuralsurv import NeuralSurv
from neuralsurv.data.stream import batches as stream
from neuralsurv.errors import NeuralSurvWarning, ProcessLostError
from neuralsurv.files import checkpoint

# Small enough for several chunks of a small table.
CHUNK_ROWS = 300


def die_after(saves: int) -> None:
    """End this process without a word at its so many-th step."""
    plain, count = checkpoint.Checkpoint.save, [0]

    def save(self, snapshot, *, now=False):
        plain(self, snapshot, now=now)
        count[0] += 1
        if count[0] == saves:
            os._exit(9)

    checkpoint.Checkpoint.save = save


def fit(folder: str, method: str, state: str | None, shards: str = "shared") -> NeuralSurv:
    """Fit all rows of a folder, or with `own` every process some of them."""
    data: object = folder
    if shards == "own":
        table = pd.read_parquet(folder)
        rank = int(os.environ.get("RANK", "0"))
        # Process 1 has no row at all.
        cuts = {0: slice(0, 600), 1: slice(0, 0), 2: slice(600, None)}
        size = int(os.environ.get("WORLD_SIZE", "1"))
        data = [table] if size == 1 else [table[cuts[rank if size == 3 else 2 * rank]]]
    # With steps on samples a wider network, of which only some directions are kept.
    hidden = (64,) if method == "mini-batch" else (4,)
    model = NeuralSurv(hidden=hidden, random_state=0, verbose=False)
    given: dict[str, Any] = {"passes": 2, "batch_size": 512} if method == "mini-batch" else {}
    if state is not None:
        given["checkpoint_seconds"] = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NeuralSurvWarning)
        return model.fit_stream(
            data,
            time="time",
            event="event",
            method=method,
            training_passes=4,
            directions=20,
            checkpoint=state,
            shards=shards,
            **given,
        )


def result(model: NeuralSurv) -> dict[str, np.ndarray]:
    """Return the numbers that make up a fit."""
    theta = model.posterior_.theta
    return {
        "mean": theta.mean.numpy(),
        "factor": theta.inner_factor.numpy(),
        "mode": model.posterior_.theta_star.numpy(),
        "elbo": model.elbo_,
        "center": model.encoding_.center,
        "scale": model.encoding_.scale,
    }


def main() -> None:
    stream.CHUNK_ROWS = CHUNK_ROWS
    folder, method, state, out = sys.argv[1:5]
    scenario = sys.argv[5] if len(sys.argv) > 5 else ""
    rank = int(os.environ.get("RANK", "0"))
    if scenario == "die" and rank == 1:
        die_after(6)
    if scenario == "all":
        found = {}
        import torch.distributed as distributed

        distributed.init_process_group("gloo")
        for kind, shards in (("exact", "shared"), ("mini-batch", "shared"), ("exact", "own")):
            model = fit(folder, kind, None, shards)
            found |= {f"{kind} {shards} {name}": values for name, values in result(model).items()}
        distributed.destroy_process_group()
    else:
        try:
            found = result(fit(folder, method, None if state == "-" else state))
        except ProcessLostError as error:
            Path(f"{out}.{rank}.error").write_text(str(error), encoding="utf-8")
            raise SystemExit(3) from error
    if rank == 0:
        np.savez(out, **found)


if __name__ == "__main__":
    main()
