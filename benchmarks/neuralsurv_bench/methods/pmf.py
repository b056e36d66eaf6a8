"""PMF: a probability mass function over the cuts, by likelihood (Kvamme and Borgan 2021), by pycox."""

from __future__ import annotations

from neuralsurv_bench.methods.interface import Method
from neuralsurv_bench.methods.pycox_discrete import VARIANTS, DiscreteTime

METHODS: tuple[Method, ...] = (Method("PMF", "deep", DiscreteTime("PMF"), VARIANTS),)
