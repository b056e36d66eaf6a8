"""DeepHit: a probability mass function trained by likelihood and ranking (Lee et al. 2018), by pycox."""

from __future__ import annotations

from neuralsurv_bench.methods.interface import Method
from neuralsurv_bench.methods.pycox_discrete import VARIANTS, DiscreteTime

LIKELIHOOD_SHARE = 0.2
"""`alpha`: the loss is this share of the likelihood and the rest of the ranking loss; the paper's value."""
RANKING_SCALE = 0.1
"""`sigma` of the ranking loss; the paper's value."""

METHODS: tuple[Method, ...] = (
    Method(
        "DeepHit",
        "deep",
        DiscreteTime("DeepHitSingle", options={"alpha": LIKELIHOOD_SHARE, "sigma": RANKING_SCALE}),
        VARIANTS,
    ),
)
