"""Scores of predicted survival curves.

Every function takes plain arrays, so that predictions of any software can be scored. Curves come as a table of survival
probabilities, one row for each person, one column for each time of a strictly increasing grid. What is not defined is
refused with an :class:`~neuralsurv.errors.InputError`; nothing is filled in.
"""

from neuralsurv.metrics.aalen_johansen import AalenJohansen, aalen_johansen
from neuralsurv.metrics.brier import brier_score, integrated_brier_score
from neuralsurv.metrics.calibration import DCalibration, OneCalibration, d_calibration, km_calibration, one_calibration
from neuralsurv.metrics.competing import (
    CauseCalibration,
    cause_brier_score,
    cause_calibration,
    cause_concordance,
    integrated_cause_brier_score,
)
from neuralsurv.metrics.coverage import band_coverage, band_coverage_by_time, simultaneous_band_coverage
from neuralsurv.metrics.curves import survival_at
from neuralsurv.metrics.discrimination import antolini_concordance, harrell_concordance, uno_concordance
from neuralsurv.metrics.kaplan_meier import censoring_horizon
from neuralsurv.metrics.predictive_likelihood import log_likelihood

__all__ = [
    "AalenJohansen",
    "CauseCalibration",
    "DCalibration",
    "OneCalibration",
    "aalen_johansen",
    "antolini_concordance",
    "band_coverage",
    "band_coverage_by_time",
    "brier_score",
    "cause_brier_score",
    "cause_calibration",
    "cause_concordance",
    "censoring_horizon",
    "d_calibration",
    "harrell_concordance",
    "integrated_brier_score",
    "integrated_cause_brier_score",
    "km_calibration",
    "log_likelihood",
    "one_calibration",
    "simultaneous_band_coverage",
    "survival_at",
    "uno_concordance",
]
