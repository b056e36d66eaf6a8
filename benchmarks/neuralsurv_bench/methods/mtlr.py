"""MTLR: a probability mass function whose logits are summed over time (Yu et al. 2011), by pycox."""

from __future__ import annotations

from neuralsurv_bench.methods.interface import Method
from neuralsurv_bench.methods.pycox_discrete import VARIANTS, DiscreteTime

METHODS: tuple[Method, ...] = (Method("MTLR", "deep", DiscreteTime("MTLR"), VARIANTS),)
