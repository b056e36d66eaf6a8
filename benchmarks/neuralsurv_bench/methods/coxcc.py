"""CoxCC: Cox's partial likelihood with one sampled control an event (Kvamme et al. 2019), by pycox."""

from __future__ import annotations

from neuralsurv_bench.methods.interface import Method
from neuralsurv_bench.methods.pycox_cox import VARIANTS, CoxType

METHODS: tuple[Method, ...] = (Method("CoxCC", "deep", CoxType("CoxCC"), VARIANTS),)
