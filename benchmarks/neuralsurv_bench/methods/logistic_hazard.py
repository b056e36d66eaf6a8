"""Logistic Hazard: one logit of the hazard an interval (Gensheimer and Narasimhan 2019), by pycox."""

from __future__ import annotations

from neuralsurv_bench.methods.interface import Method
from neuralsurv_bench.methods.pycox_discrete import VARIANTS, DiscreteTime

METHODS: tuple[Method, ...] = (Method("Logistic Hazard", "deep", DiscreteTime("LogisticHazard"), VARIANTS),)
