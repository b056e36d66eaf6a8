"""The cohorts of the paper, from packages on the index, each verified by a checksum."""

from neuralsurv_bench.cohorts.cohort import Cohort
from neuralsurv_bench.cohorts.registry import NAMES, load

__all__ = ["NAMES", "Cohort", "load"]
