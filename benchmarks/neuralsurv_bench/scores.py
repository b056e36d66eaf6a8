"""How predictions are scored: with the paper's metrics, and with ours. One survival matrix serves both.

A score that is not defined is NaN, never 0, and `reasons` says why, by the name of the score.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypedDict

import numpy as np

from neuralsurv import metrics
from neuralsurv.errors import InputError
from neuralsurv_bench.methods.interface import Floats, Rows, Split

OUR_TIMES = 100
OUR_HORIZON_QUANTILE = 0.9

# A curve may leave [0, 1], or rise, by this much through rounding, and is put right without a word.
_ROUNDING = 1e-6

NO_CURVES = "the method has no survival curves"


class PaperScores(TypedDict):
    """The paper's four scores of one fold, named as in its tables, and why a score is NaN or was rescued."""

    c_index: float
    ibs: float
    d_calibration_p: float
    km_calibration: float
    reasons: dict[str, str]


class OurScores(TypedDict):
    """Our scores of one fold, and why a score is NaN or was rescued."""

    c_index: float
    ibs: float
    d_calibration_p: float
    d_calibration_histogram: list[float]
    km_calibration: float
    log_likelihood: float
    reasons: dict[str, str]


def our_times(split: Split) -> Floats:
    """Return the times of our Brier score: 100 equally spaced in (0, tau].

    tau is the 90 % quantile of the training times, or the last time at which a censoring weight is defined if that is
    earlier (in GBSG a tenth of the rows can be censored at the one time where the follow-up was cut).
    """
    horizon = float(np.quantile(split.train.time, OUR_HORIZON_QUANTILE))
    defined = metrics.censoring_horizon(split.train.time, split.train.event)
    return np.linspace(0.0, min(horizon, defined), OUR_TIMES + 1)[1:]


def likelihood_times(split: Split) -> Floats:
    """Return the times between which our likelihood takes the hazard as constant.

    Deciles of the training event times up to tau, each moved up to the next of `our_times`: in every interval there is
    a training event, so that a step function, too, has a hazard there.
    """
    times = our_times(split)
    events = split.train.time[split.train.event & (split.train.time <= times[-1])]
    if not len(events):
        return times[-1:]
    deciles = np.quantile(events, np.linspace(0.1, 1.0, 10), method="inverted_cdf")
    return np.unique(times[np.searchsorted(times, deciles)])


def grid(split: Split) -> Floats:
    """Return the times at which survival is asked of a method: 0, the test times and `our_times`, increasing."""
    return np.unique(np.concatenate([[0.0], split.test.time, our_times(split)]))


def paper_scores(
    split: Split,
    survival_at_times: Floats | None,
    times: Floats,
    risk: Floats | None = None,
    *,
    published_rules: bool = False,
) -> PaperScores:
    """Return the paper's scores, by the packages that the paper used.

    - ``c_index``: Antolini's, torchsurv's `ConcordanceIndex` of −S(t_j | x_i); without curves, of `risk`.
    - ``ibs``: torchsurv's `BrierScore` at the distinct test times with inverse probability of censoring weights from
      the training rows (weight 0 where nobody of them is left uncensored, the last weight beyond their last time),
      trapezoidal rule divided by the range of test times.
    - ``d_calibration_p``, ``km_calibration``: SurvivalEVAL, of the curves at the distinct test times, ten bins. Curves
      that rise are replaced by their running minimum first, which `reasons` then says.

    Parameters
    ----------
    split : Split
        The fold; its training rows give the weights.
    survival_at_times : ndarray of shape (n_test, len(times)) or None
        S(t | x) of the test rows; None for a method without curves, which gets a C-index of `risk` only.
    times : ndarray of shape (T,)
        Increasing; must hold all test times (`grid` does).
    risk : ndarray of shape (n_test,), optional
        Risk scores, higher is sooner; used only if there are no curves.
    published_rules : bool
        Score missing survival as the paper's code did, to explain its tables: NaN compares as discordant in the
        C-index, a Brier score of NaN counts as 0, and NaN counts as survival 1 for calibration. Without this, curves
        with NaN have no scores.
    """
    reasons: dict[str, str] = {}
    scores = PaperScores(c_index=np.nan, ibs=np.nan, d_calibration_p=np.nan, km_calibration=np.nan, reasons=reasons)
    everything = ("c_index", "ibs", "d_calibration_p", "km_calibration")
    if survival_at_times is None:
        reasons |= dict.fromkeys(everything[1:], NO_CURVES)
        known_risk = _checked_risk(split, risk)
        if _missing(known_risk, "risk"):
            reasons["c_index"] = _missing(known_risk, "risk")
        else:
            scores["c_index"] = _torchsurv_concordance(split.test, known_risk, reasons)
        return scores
    curves = _checked_curves(split, survival_at_times, times)
    missing = _missing(curves, "survival")
    if missing and not published_rules:
        reasons |= dict.fromkeys(everything, missing)
        return scores
    if not split.test.event.any():
        reasons |= dict.fromkeys(everything, f"none of the {len(split.test)} test rows has an event: torchsurv refuses")
        return scores

    scores["c_index"] = _torchsurv_concordance(split.test, -curves[:, np.searchsorted(times, split.test.time)], reasons)
    test_times = np.unique(split.test.time)
    at_test_times = curves[:, np.searchsorted(times, test_times)]
    scores["ibs"] = _torchsurv_integrated_brier(split, at_test_times, test_times, nan_counts_as_zero=published_rules)
    if published_rules:
        at_test_times = np.nan_to_num(at_test_times, nan=1.0)
    falling = _falling(at_test_times, ("d_calibration_p", "km_calibration"), reasons)
    scores["d_calibration_p"], scores["km_calibration"] = _survivaleval_calibration(split, falling, test_times, reasons)
    return scores


def our_scores(split: Split, survival_at_times: Floats | None, times: Floats, risk: Floats | None = None) -> OurScores:
    """Return the scores that our own comparisons are made with, by `neuralsurv.metrics`.

    - ``c_index``: Antolini's; without curves, Harrell's of `risk`.
    - ``ibs``: Brier score at `our_times` with weights from the training rows, trapezoidal rule divided by the range.
      The times end at the 90 % quantile of the training times, where the weights still rest on rows.
    - ``d_calibration_p``, ``d_calibration_histogram``: ten bins; histograms of folds can be added up.
    - ``km_calibration``: exact integral of the curves, linear between `times`, up to the last event.
    - ``log_likelihood``: mean of a row, with the hazard constant between `likelihood_times` and the follow-up cut at
      the last of them. It is −inf where a curve says that what happened is impossible.

    Curves that rise are replaced by their running minimum, which `reasons` then says.

    Parameters
    ----------
    split, survival_at_times, times, risk
        As in `paper_scores`; `times` must hold `our_times` too. Curves with NaN have no scores.
    """
    reasons: dict[str, str] = {}
    scores = OurScores(
        c_index=np.nan,
        ibs=np.nan,
        d_calibration_p=np.nan,
        d_calibration_histogram=[],
        km_calibration=np.nan,
        log_likelihood=np.nan,
        reasons=reasons,
    )
    of_curves = ("ibs", "d_calibration_p", "d_calibration_histogram", "km_calibration", "log_likelihood")
    time, event, train = split.test.time, split.test.event, split.train

    def or_nan(name: str, score: Callable[[], float]) -> float:
        try:
            return float(score())
        except InputError as error:
            reasons[name] = str(error)
            return np.nan

    if survival_at_times is None:
        reasons |= dict.fromkeys(of_curves, NO_CURVES)
        known_risk = _checked_risk(split, risk)
        if _missing(known_risk, "risk"):
            reasons["c_index"] = _missing(known_risk, "risk")
        else:
            scores["c_index"] = or_nan("c_index", lambda: metrics.harrell_concordance(time, event, known_risk))
        return scores
    curves = _checked_curves(split, survival_at_times, times)
    brier_times = our_times(split)
    if not np.isin(brier_times, times).all():
        raise InputError("times do not hold all of our_times(split); ask the method for its survival at grid(split).")
    missing = _missing(curves, "survival")
    if missing:
        reasons |= dict.fromkeys(("c_index", *of_curves), missing)
        return scores

    falling = _falling(curves, ("c_index", *of_curves), reasons)
    scores["c_index"] = or_nan("c_index", lambda: metrics.antolini_concordance(time, event, falling, times))
    at_brier_times = falling[:, np.searchsorted(times, brier_times)]
    scores["ibs"] = or_nan(
        "ibs",
        lambda: metrics.integrated_brier_score(
            time, event, at_brier_times, brier_times, train_time=train.time, train_event=train.event
        ),
    )
    calibration = metrics.d_calibration(event, metrics.survival_at(time, falling, times))
    scores["d_calibration_p"] = float(calibration.p_value)
    scores["d_calibration_histogram"] = [float(count) for count in calibration.histogram]
    scores["km_calibration"] = or_nan("km_calibration", lambda: metrics.km_calibration(time, event, falling, times))
    knots = likelihood_times(split)
    scores["log_likelihood"] = or_nan(
        "log_likelihood",
        lambda: metrics.log_likelihood(
            np.minimum(time, knots[-1]),
            event & (time <= knots[-1]),
            falling[:, np.searchsorted(times, knots)],
            knots,
        ),
    )
    return scores


@contextmanager
def _quiet_import() -> Iterator[None]:
    """Hide that torchsurv, when it is imported, uses a part of torch that is going away: no user can change it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*torch.jit", category=DeprecationWarning)
        yield


def _torchsurv_concordance(test: Rows, risk: Floats, reasons: dict[str, str]) -> float:
    """Return the C-index of risk scores (n,), or of risk (n, n) whose column j is that at the time of row j."""
    import torch

    with _quiet_import():
        from torchsurv.metrics.cindex import ConcordanceIndex

    if test.time[test.event].min(initial=np.inf) >= test.time.max():
        reasons["c_index"] = f"none of the {len(test)} test rows has an event before the time of another"
        return np.nan
    return float(ConcordanceIndex()(torch.tensor(risk), torch.tensor(test.event), torch.tensor(test.time)))


def _torchsurv_integrated_brier(split: Split, survival: Floats, times: Floats, *, nan_counts_as_zero: bool) -> float:
    import torch

    with _quiet_import():
        from torchsurv.metrics.brier_score import BrierScore
        from torchsurv.stats.ipcw import get_ipcw

    train_event, train_time = torch.tensor(split.train.event), torch.tensor(split.train.time)
    time, new_time = torch.tensor(split.test.time), torch.tensor(times)
    weight, weight_new_time = (get_ipcw(train_event, train_time, at) for at in (time, new_time))
    brier = BrierScore()
    brier(torch.tensor(survival), torch.tensor(split.test.event), time, new_time, weight, weight_new_time)
    if nan_counts_as_zero:
        brier.brier_score = torch.nan_to_num(brier.brier_score, nan=0.0)
    return float(brier.integral())


def _survivaleval_calibration(
    split: Split, survival: Floats, times: Floats, reasons: dict[str, str]
) -> tuple[float, float]:
    from SurvivalEVAL import SurvivalEvaluator

    test, train = split.test, split.train
    evaluator = SurvivalEvaluator(survival, times, test.time, test.event, train.time, train.event)
    try:
        distribution = float(evaluator.d_calibration()[0])
    except (ValueError, IndexError) as error:
        # A censored row whose survival is exactly 0 makes it lose count of its bins.
        reasons["d_calibration_p"] = f"SurvivalEVAL fails: {error}"
        distribution = np.nan
    return distribution, float(evaluator.km_calibration())


def _checked_risk(split: Split, risk: Floats | None) -> Floats:
    n = len(split.test)
    if risk is None:
        raise InputError(f"there are neither curves nor risk scores for the {n} test rows: nothing can be scored.")
    if risk.shape != (n,):
        raise InputError(f"risk has shape {risk.shape}; {n} test rows need ({n},).")
    return np.asarray(risk, dtype=np.float64)


def _checked_curves(split: Split, survival: Floats, times: Floats) -> Floats:
    """Return curves of the right shape within [0, 1], NaN left as it is."""
    shape = (len(split.test), len(times))
    if survival.shape != shape:
        raise InputError(f"survival has shape {survival.shape}; {shape[0]} test rows at {shape[1]} times need {shape}.")
    if not np.isin(split.test.time, times).all():
        absent = int((~np.isin(split.test.time, times)).sum())
        raise InputError(
            f"times do not hold the times of {absent} of the {shape[0]} test rows; ask the method for its survival at "
            "grid(split)."
        )
    outside = int(((survival < -_ROUNDING) | (survival > 1 + _ROUNDING)).sum())
    if outside:
        raise InputError(f"{outside} of the {survival.size} survival probabilities are outside [0, 1].")
    return np.clip(np.asarray(survival, dtype=np.float64), 0.0, 1.0)


def _missing(predicted: Floats, what: str) -> str:
    """Return why predictions cannot be scored, or an empty text if they can."""
    holes = np.isnan(predicted).reshape(len(predicted), -1)
    if not holes.any():
        return ""
    rows = int(holes.any(axis=1).sum())
    return f"{what} is NaN at {int(holes.sum())} of {holes.size} places, in {rows} of {len(holes)} rows"


def _falling(curves: Floats, names: Sequence[str], reasons: dict[str, str]) -> Floats:
    """Return the running minimum of curves; where one rises by more than rounding, `reasons` says so for `names`."""
    falling = np.minimum.accumulate(curves, axis=1)
    rise = float((curves - falling).max())
    if rise > _ROUNDING:
        rows = int(((curves - falling).max(axis=1) > _ROUNDING).sum())
        note = f"of the running minimum: {rows} of {len(curves)} curves rise, by up to {rise:.2g}"
        reasons |= dict.fromkeys(names, note)
    return falling
