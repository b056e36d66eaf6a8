"""PCHazard: a hazard that is constant between the cuts (Kvamme and Borgan 2021), by pycox.

Its ten intervals have eleven cuts. `as-published` knows the curve at the cuts only (`sub=1`, pycox's default).
"""

from __future__ import annotations

from neuralsurv_bench.methods.interface import Method
from neuralsurv_bench.methods.pycox_discrete import HAZARD_VARIANTS, DiscreteTime

METHODS: tuple[Method, ...] = (Method("PCHazard", "deep", DiscreteTime("PCHazard", between="hazard"), HAZARD_VARIANTS),)
