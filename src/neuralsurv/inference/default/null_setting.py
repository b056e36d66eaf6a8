"""The setting in which no covariate matters, and its share of the posterior.

The hyper-priors of the scales hardly reach down to 0, so an average over the scales follows noise where nothing
predicts. A part of the prior therefore lies where all scales but those of time are 0. What it has of the posterior is
a matter of Bayes' rule: the ratio of the evidences, each integrated over its scales.
"""

from __future__ import annotations

import math

import torch

from neuralsurv.inference.default.scales import Evidence, Setting, find_top, log_evidence

# The share of the prior in which no covariate matters.
PRIOR_SHARE = 0.2
# The logarithm of a scale that is as good as 0.
_NOTHING = math.log(1e-4)


def null_setting(evidence: Evidence, of_time: Evidence) -> tuple[Setting, float]:
    """Return the best setting without covariates, and the log of its evidence, integrated over the scales of time.

    Parameters
    ----------
    evidence : Evidence
        Of the whole model.
    of_time : Evidence
        Of the same rows and points without covariates.
    """
    search = find_top(of_time, of_time.prior.medians)
    if search.interrupted:
        raise KeyboardInterrupt
    names = [group.name for group in of_time.prior.groups]
    scales = dict(zip(names, search.top.log_scales.tolist(), strict=True))
    log_scales = [scales.get(group.name, _NOTHING) for group in evidence.prior.groups]
    setting = evidence.beside(torch.tensor(log_scales, dtype=torch.float64), search.top.state)
    return setting, log_evidence(of_time, search.top)
