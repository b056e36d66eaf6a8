"""DeepSurv: Cox's partial likelihood with a network for the log risk (Katzman et al. 2018), by pycox."""

from __future__ import annotations

from neuralsurv_bench.methods.interface import Method
from neuralsurv_bench.methods.pycox_cox import VARIANTS, CoxType

METHODS: tuple[Method, ...] = (Method("DeepSurv", "deep", CoxType("CoxPH"), VARIANTS),)
