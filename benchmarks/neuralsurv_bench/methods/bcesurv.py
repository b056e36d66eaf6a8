"""BCESurv: one classifier a cut, from the rows not censored by then (Kvamme and Borgan 2023), by pycox.

Nothing ties the classifiers together, so that a curve may rise. `as-published` leaves it so; `fair` takes the running
minimum over the cuts.
"""

from __future__ import annotations

from neuralsurv_bench.methods.interface import Method
from neuralsurv_bench.methods.pycox_discrete import VARIANTS, DiscreteTime

METHODS: tuple[Method, ...] = (
    Method(
        "BCESurv",
        "deep",
        DiscreteTime("BCESurv"),
        {
            "as-published": VARIANTS["as-published"] + "; curves may rise",
            "fair": VARIANTS["fair"] + "; the running minimum of curves that rise",
        },
    ),
)
