"""CoxTime: like CoxCC, with the time as an input of the network (Kvamme et al. 2019), by pycox."""

from __future__ import annotations

from neuralsurv_bench.methods.interface import Method
from neuralsurv_bench.methods.pycox_cox import VARIANTS, CoxType

METHODS: tuple[Method, ...] = (Method("CoxTime", "deep", CoxType("CoxTime", time_in_network=True), VARIANTS),)
