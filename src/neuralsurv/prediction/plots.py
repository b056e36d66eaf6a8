"""Plots of predictions and fits. matplotlib is imported only when something is drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from neuralsurv.errors import InputError
from neuralsurv.metrics.kaplan_meier import kaplan_meier
from neuralsurv.names import counted

if TYPE_CHECKING:
    from neuralsurv.data.outcome import Outcome
    from neuralsurv.model.prior import Gamma, PointMass
    from neuralsurv.prediction.prediction import Prediction

# Okabe–Ito: distinguishable with any colour vision.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_MOST_CURVES = 30


def axes(ax: Any = None) -> Any:
    """Return the given axes, or new ones."""
    if ax is not None:
        return ax
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise InputError("plots need matplotlib: pip install 'neuralsurv[plot]'.") from error
    return pyplot.subplots(figsize=(6.4, 4.2), layout="constrained")[1]


def plot_prediction(
    prediction: Prediction, *, level: float = 0.9, ax: Any = None, labels: Any = None, band: bool = True
) -> Any:
    """Draw the median of every person with its band; dashed beyond the training range."""
    people = len(prediction.index)
    if prediction.columns is not None and "cause" in prediction.columns.names:
        raise InputError("a prediction for several causes is not drawn as one curve; give cause=… when predicting.")
    if people > _MOST_CURVES:
        raise InputError(f"{people} curves in one picture cannot be read; choose at most {_MOST_CURVES} rows of X.")
    names = [str(name) for name in (prediction.index if labels is None else labels)]
    if len(names) != people:
        raise InputError(f"X has {counted(people, 'row')} and labels has {len(names)}; give one for each row.")
    target = axes(ax)
    lower, upper = (end.to_numpy() for end in prediction.interval(level))
    median = prediction.median.to_numpy()
    open_end = _open_end(median, lower, upper)
    if prediction.columns is None:
        return _plot_intervals(prediction.name, target, names, (lower, median, upper), open_end)
    order = np.argsort(prediction.columns.to_numpy(), kind="stable")
    times = prediction.columns.to_numpy()[order]
    beyond = prediction.extrapolated[order]
    for k, name in enumerate(names):
        colour = COLOURS[k % len(COLOURS)]
        middle, low, high = (part[k, order] for part in (median, lower, upper))
        inside = ~beyond
        target.plot(times[inside], middle[inside], color=colour, label=name)
        if beyond.any():
            # The dashed piece starts where the solid one ends.
            tail = np.flatnonzero(beyond)
            piece = np.concatenate([tail[:1] - 1, tail]) if tail[0] > 0 else tail
            target.plot(times[piece], middle[piece], color=colour, linestyle="--")
        if band:
            low, high = (np.minimum(end, open_end) for end in (low, high))
            target.fill_between(times, low, high, color=colour, alpha=0.2, linewidth=0)
    target.set_xlabel(str(prediction.columns.name or "time"))
    target.set_ylabel(prediction.name)
    if prediction.name == "survival":
        target.set_ylim(0, 1.02)
    if np.isfinite(open_end):
        target.set_ylim(top=open_end)
    target.margins(x=0)
    if len(names) > 1 or labels is not None:
        target.legend(frameon=False)
    return target


def plot_stacked(prediction: Prediction, *, level: float = 0.9, ax: Any = None) -> Any:
    """Draw the cumulative incidences of one person on top of each other, with the interval of each sum as lines."""
    if len(prediction.index) != 1:
        raise InputError(
            f"X has {counted(len(prediction.index), 'row')}; stacked incidences are drawn for one person. "
            "Draw one picture for each, with ax=…."
        )
    target, columns = axes(ax), prediction.columns
    assert columns is not None
    times, causes = columns.unique("time").to_numpy(), columns.unique("cause")
    draws = prediction.draws[:, 0].reshape(prediction.count, len(causes), len(times))
    order = np.argsort(times, kind="stable")
    times, draws = times[order], draws[..., order]
    sums = draws.cumsum(1)
    middle = draws.mean(0)
    colours = [COLOURS[k % len(COLOURS)] for k in range(len(causes))]
    target.stackplot(times, middle, colors=colours, labels=[str(cause) for cause in causes], alpha=0.55, linewidth=0)
    for k, colour in enumerate(colours):
        for end in np.quantile(sums[:, k], [(1 - level) / 2, (1 + level) / 2], axis=0):
            target.plot(times, end, color=colour, linestyle=":", linewidth=1)
    target.set_ylim(0, 1)
    target.margins(x=0)
    target.set_xlabel("time")
    target.set_ylabel("cumulative incidence")
    target.legend(frameon=False, loc="upper left")
    return target


def _open_end(*parts: np.ndarray) -> float:
    """Return where to clip bands without an upper end: just above all finite values; infinity if there are none."""
    values = np.concatenate([part.reshape(-1) for part in parts])
    if np.isfinite(values).all():
        return np.inf
    return 1.1 * float(np.max(values, initial=0.0, where=np.isfinite(values))) or 1.0


def _plot_intervals(
    name: str, target: Any, names: list[str], parts: tuple[np.ndarray, np.ndarray, np.ndarray], open_end: float
) -> Any:
    rows = np.arange(len(names))[::-1]
    lower, median, upper = (np.minimum(part, open_end) for part in parts)
    target.hlines(rows, lower, upper, color=COLOURS[0], linewidth=2)
    known = np.isfinite(parts[1])
    target.plot(median[known], rows[known], "o", color=COLOURS[0])
    endless = np.isinf(parts[2])
    if endless.any():
        # An arrow marks an interval without an upper end.
        target.plot(upper[endless], rows[endless], ">", color=COLOURS[0])
    target.set_yticks(rows, names)
    target.set_xlabel(name)
    return target


def plot_elbo(elbo: np.ndarray, *, ax: Any = None) -> Any:
    """Draw the evidence lower bound after each sweep."""
    target = axes(ax)
    target.plot(np.arange(1, len(elbo) + 1), elbo, color=COLOURS[0])
    target.set_xlabel("sweep")
    target.set_ylabel("ELBO (nats)")
    target.margins(x=0)
    return target


def plot_phi(posterior: Gamma | PointMass, prior: Gamma | PointMass, *, ax: Any = None) -> Any:
    """Draw the prior and the posterior density of phi, the scale of the hazard; for research.

    Parameters
    ----------
    posterior, prior : Gamma
        ``model.posterior_.phi`` and ``model.phi_prior_`` of the paper's model; a phi that is fixed is refused.
    ax : Axes, optional
        Where to draw.
    """
    top = max(posterior.quantile(0.9999), prior.quantile(0.9))
    grid = np.linspace(top / 1000, top, 500)
    densities = prior.density(grid), posterior.density(grid)
    target = axes(ax)
    for density, name, colour in zip(densities, ("prior", "posterior"), ("0.5", COLOURS[0]), strict=True):
        target.plot(grid, density, color=colour, label=name)
    target.set_xlabel("phi (events per unit of scaled time)")
    target.set_ylabel("density")
    target.set_ylim(bottom=0)
    target.margins(x=0)
    target.legend(frameon=False)
    return target


def plot_partial_dependence(prediction: Prediction, *, level: float = 0.9, ax: Any = None) -> Any:
    """Draw one averaged quantity against the values of a covariate, with its band."""
    target = axes(ax)
    lower, upper = (part.to_numpy()[0] for part in prediction.interval(level))
    middle = prediction.median.to_numpy()[0]
    values = prediction.columns if prediction.columns is not None else np.arange(len(middle))
    if np.issubdtype(np.asarray(values).dtype, np.number) and len(values) > 2:
        target.plot(values, middle, color=COLOURS[0])
        target.fill_between(values, lower, upper, color=COLOURS[0], alpha=0.2, linewidth=0)
        target.margins(x=0)
    else:
        places = np.arange(len(values))
        target.vlines(places, lower, upper, color=COLOURS[0], linewidth=2)
        target.plot(places, middle, "o", color=COLOURS[0])
        target.set_xticks(places, [str(value) for value in values])
        target.margins(x=0.2)
    target.set_xlabel(str(getattr(prediction.columns, "name", "")))
    target.set_ylabel(prediction.name)
    return target


def plot_calibration(predicted: np.ndarray, outcome: Outcome, time: float, groups: int, *, ax: Any = None) -> Any:
    """Draw the Kaplan–Meier estimate of groups of equal size against their mean prediction."""
    if not 2 <= groups <= len(predicted) // 2:
        raise InputError(f"groups={groups!r} does not suit {len(predicted)} rows; use 2 to {len(predicted) // 2}.")
    target = axes(ax)
    target.plot([0, 1], [0, 1], color="0.7", linewidth=1)
    for rows in np.array_split(np.argsort(predicted, kind="stable"), groups):
        observed, low, high = kaplan_meier(outcome.select(rows), time)
        middle = float(predicted[rows].mean())
        target.vlines(middle, low, high, color=COLOURS[0], linewidth=2)
        target.plot(middle, observed, "o", color=COLOURS[0])
    target.set(xlim=(0, 1), ylim=(0, 1.02), aspect="equal")
    target.set_xlabel(f"predicted survival at {time:g}")
    target.set_ylabel("observed (Kaplan–Meier, 90 % interval)")
    return target
