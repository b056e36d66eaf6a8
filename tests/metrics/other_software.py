"""The same metrics by other software, each behind a function of plain arrays."""

import warnings

import numpy as np
import pandas as pd
import scipy.integrate
import torch
from sksurv.util import Surv

# pycox was written for a scipy that called it so.
scipy.integrate.simps = scipy.integrate.simpson

with warnings.catch_warnings():
    # torchsurv calls torch.jit when it is imported, which torch has deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from pycox.evaluation import EvalSurv
    from SurvivalEVAL import SurvivalEvaluator
    from torchsurv.metrics.brier_score import BrierScore
    from torchsurv.metrics.cindex import ConcordanceIndex
    from torchsurv.stats.ipcw import get_ipcw


def structured(time, event):
    return Surv.from_arrays(np.asarray(event, dtype=bool), np.asarray(time, dtype=float))


def interpolated(survival, times, at):
    """Read every curve at every one of `at`, with time 0 added: (n, len(at))."""
    knots = np.concatenate([[0.0], times]) if times[0] > 0 else times
    table = np.column_stack([np.ones(len(survival)), survival]) if times[0] > 0 else survival
    return np.stack([np.interp(at, knots, row) for row in table])


def torchsurv_antolini(time, event, survival, times, ipcw=None):
    """`survival` is read at everybody's time first: torchsurv wants the (n, n) table."""
    at = np.minimum(time, times[-1])
    table = torch.tensor(-interpolated(survival, times, at))
    weight = None if ipcw is None else torch.tensor(ipcw, dtype=torch.float64)
    return float(ConcordanceIndex()(table, torch.tensor(event), torch.tensor(time), weight=weight))


def torchsurv_weights(train_time, train_event, at):
    return get_ipcw(torch.tensor(train_event), torch.tensor(train_time), torch.tensor(at)).numpy()


def torchsurv_brier(time, event, survival, times, train_time, train_event):
    """Return the scores and their integral."""
    score = BrierScore()
    values = score(
        torch.tensor(survival),
        torch.tensor(event),
        torch.tensor(time),
        torch.tensor(times),
        torch.tensor(torchsurv_weights(train_time, train_event, time)),
        torch.tensor(torchsurv_weights(train_time, train_event, times)),
    )
    return values.numpy(), float(score.integral())


def pycox_evaluation(time, event, survival, times, **options):
    frame = pd.DataFrame(np.asarray(survival).T, index=np.asarray(times))
    return EvalSurv(frame, np.asarray(time, dtype=float), np.asarray(event).astype("int64"), **options)


def survivaleval(time, event, survival, times, train_time=None, train_event=None):
    return SurvivalEvaluator(
        np.asarray(survival), np.asarray(times), np.asarray(time), np.asarray(event), train_time, train_event
    )
