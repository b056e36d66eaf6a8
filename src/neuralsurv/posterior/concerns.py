"""Concerns about a fit: their kinds, the Python warning class of each, and checks that several fits share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypedDict

from neuralsurv.errors import (
    ApproximationWarning,
    CeilingWarning,
    CollapseWarning,
    ConvergenceWarning,
    FewEventsWarning,
    NeuralSurvWarning,
    QuadratureWarning,
)

# With fewer events than this, the curves are essentially the prior's.
FEW_EVENTS = 5
# A hazard near its ceiling is reported only above this share of the time at risk.
CROWDED_SHARE = 0.01
# A hazard above this share of its ceiling can hardly rise any further.
CEILING_SHARE = 0.5

# The Python warning of each kind of concern.
WARNINGS: dict[str, type[NeuralSurvWarning]] = {
    "collapse": CollapseWarning,
    "interrupted": ConvergenceWarning,
    "sweeps": ConvergenceWarning,
    "mode": ConvergenceWarning,
    "chains": ConvergenceWarning,
    "quadrature": QuadratureWarning,
    "few events": FewEventsWarning,
    "ceiling": CeilingWarning,
    "approximation": ApproximationWarning,
    # From model files written before kinds were stored.
    "other": NeuralSurvWarning,
}


@dataclass(frozen=True)
class Concern:
    """Something to know before trusting a fit.

    Attributes
    ----------
    kind : str
        What it is about: "collapse", "interrupted", "sweeps", "mode", "chains", "quadrature", "few events", "ceiling",
        "approximation"; or "other".
    text : str
        The concern, as a sentence.
    """

    kind: str
    text: str


class ConcernFields(TypedDict):
    """Concerns as the fields of `Diagnostics` that hold them."""

    messages: tuple[str, ...]
    kinds: tuple[str, ...]


def concern_fields(concerns: Iterable[Concern]) -> ConcernFields:
    """Return concerns as keyword arguments of `Diagnostics`."""
    every = tuple(concerns)
    return {"messages": tuple(one.text for one in every), "kinds": tuple(one.kind for one in every)}


def few_events(count: float, *, causes: int = 1) -> list[Concern]:
    """Return a concern if the events, of total weight `count`, are few; with several causes, those of the rarest."""
    if count >= FEW_EVENTS:
        return []
    of_rarest = " of the rarest cause" if causes > 1 else ""
    text = (
        f"the training rows hold events{of_rarest} of total weight {count:g}; with so few events, "
        "curves and bands are little more than the prior's."
    )
    return [Concern("few events", text)]


def near_ceiling(share: float) -> list[Concern]:
    """Return a concern if the hazard is close to its ceiling for too large a `share` of the time at risk."""
    if share <= CROWDED_SHARE:
        return []
    text = (
        f"the hazard comes close to its ceiling in {share:.1%} of the time at risk and can hardly rise there; raise "
        "headroom."
    )
    return [Concern("ceiling", text)]
