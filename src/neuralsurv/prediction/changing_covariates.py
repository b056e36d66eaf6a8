"""Survival of subjects whose covariates change, along their episodes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import torch

from neuralsurv.data.episodes import check_episodes
from neuralsurv.errors import InputError
from neuralsurv.prediction.missing_values import union
from neuralsurv.prediction.prediction import Prediction
from neuralsurv.prediction.predictor import Predictor
from neuralsurv.prediction.requested_times import check_times


def path_survival(
    predictor: Predictor, X: Any, times: Any, subject: Any, entry: np.ndarray, time: np.ndarray
) -> Prediction:
    """Predict survival along the episodes of subjects, given that they are event-free at the start of the first.

    The episodes of a subject must follow each other without a gap, and the times must not be after the end of the last.
    """
    values = check_times(times)
    codes, people = pd.factorize(check_episodes(subject, entry, time, None), sort=False)
    episodes = np.split(np.lexsort((entry, codes)), np.cumsum(np.bincount(codes))[:-1])
    for name, rows in zip(people.tolist(), episodes, strict=True):
        _check_path(name, entry[rows], time[rows], values)
    x = predictor.encode(X)
    width = len(values)

    def blocks() -> Iterator[np.ndarray]:
        draws = predictor.draws()
        for rows in episodes:
            total = torch.zeros(predictor.count, width, dtype=torch.float64)
            for row in rows:
                ends = np.clip(values, entry[row], time[row])
                order = np.argsort(ends, kind="stable")
                edges = predictor.scaled(np.concatenate([entry[row : row + 1], ends[order]]))
                curve = predictor.cumulative(draws, edges, x[row : row + 1])[:, 0]
                total += (curve[:, 1:] - curve[:, :1])[:, np.argsort(order, kind="stable")]
            yield torch.exp(-total).numpy()[:, None, :]

    index = pd.Index(people, name="id")
    columns = pd.Index(values, name="time")
    by_episode = predictor.encoding.filled(x.numpy())
    filled = tuple(union(*(by_episode[row] for row in rows)) for rows in episodes) if by_episode else ()
    return Prediction("survival", index, columns, values > predictor.time_scale, predictor.count, blocks, filled)


def _check_path(name: Any, entry: np.ndarray, time: np.ndarray, values: np.ndarray) -> None:
    """Refuse a subject whose episodes, in order, leave a gap or end before the last requested time."""
    gaps = entry[1:] != time[:-1]
    if gaps.any():
        raise InputError(
            f"the path of subject {name!r} has a gap after time {time[:-1][gaps][0]:g}; its episodes must "
            "follow each other."
        )
    if values.max() > time[-1]:
        raise InputError(
            f"times go up to {values.max():g}, but the path of subject {name!r} ends at {time[-1]:g}; "
            "extend its last episode or ask for earlier times."
        )
