"""What a user should know about a fit before trusting it."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from neuralsurv.posterior.concerns import WARNINGS, Concern, concern_fields

# Importance weights are of use up to this shape of their tail (Vehtari et al. 2024).
HIGHEST_K_HAT = 0.7


@dataclass(frozen=True)
class Diagnostics:
    """How a fit went.

    Attributes
    ----------
    converged : bool
        Whether the variational sweeps met their tolerance; of exact draws, whether nothing is wrong with the chains.
    interrupted : bool
        Whether the user stopped them.
    sweeps : int
        Number of sweeps; of the default model, settings that were tried in the search for the scales.
    mode_converged : bool
        Whether the search for the mode ended by itself and not at its limit; the default model needs none.
    mode_objectives : tuple of float
        The objective U at the end of every start, in nats; the lowest was kept.
    latent_points : float
        Expected number of latent points. None left means that the posterior has collapsed.
    latent_share : float
        The average of 1 − σ(g) over the time at risk: latent points among all that phi gives.
    collapsed : bool
        Whether that share is below 5 %: the shape of q(phi) is then the prior's plus the number of events, σ(g) is
        close to 1 for everybody, and covariates have next to no effect.
    missing_exposure : float
        Part of the time at risk that the quadrature rule leaves out.
    coarse_sweeps : int
        Sweeps on a coarser quadrature rule, or in single precision, before them.
    solver, solver_reason : str
        The linear algebra that was used, and why.
    rank : int
        Directions of the weights that it kept; all of them if it cuts nothing off.
    lost_information : float
        Information in the directions that were cut off, in nats; they keep their prior.
    scales : dict of str to float
        Of the default model, the best scale of each group of weights; else empty.
    settings : int
        How many settings of these scales the posterior averages over; 1 for the paper's method.
    null_share : float
        Of the default model, the probability that no covariate matters, given that it was 0.2 before the data; 0 where
        the posterior does not average over settings, which is the case with more than 4,000 rows.
    sampling : dict of str to float
        Of exact draws, how the chains went: their number, draws kept of each, the worst R-hat and the
        lowest effective sample sizes (bulk and tail) over log phi, log scales, weights and g at the events. Else empty.
    importance : dict of str to float
        How the posterior compares with the exact one of the same linearised model: ``k_hat``, the shape of the tail of
        importance weights (good below 0.5, of use up to 0.7, hopeless above 1), and ``effective``, the share of draws
        that they are worth. Empty for exact draws and for more than 1,000 rows.
    trust : str
        Why the posterior should not be trusted, in words, where k-hat is above 0.7; else empty.
        For the paper's method this is the rule, so there is no Python warning of it.
    messages : tuple of str
        The warnings, in words.
    kinds : tuple of str
        The kind of each; `concerns` has both side by side.
    epochs : int
        With a user-supplied network, epochs of training after which it was linearised; 0 where
        training did not help to predict the rows that were kept aside.
    modes : int
        How many modes the posterior lies around; more than 1 only where a streamed fit was asked for them.
    """

    converged: bool
    sweeps: int
    latent_points: float
    latent_share: float
    solver: str
    solver_reason: str
    rank: int
    lost_information: float
    # What only some kinds of fit know; older files lack some of them.
    interrupted: bool = False
    mode_converged: bool = True
    mode_objectives: tuple[float, ...] = ()
    collapsed: bool = False
    missing_exposure: float = 0.0
    coarse_sweeps: int = 0
    scales: dict[str, float] = field(default_factory=dict)
    settings: int = 1
    null_share: float = 0.0
    sampling: dict[str, float] = field(default_factory=dict)
    importance: dict[str, float] = field(default_factory=dict)
    trust: str = ""
    epochs: int = 0
    modes: int = 1
    messages: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Let messages without a kind be of no particular one."""
        if not self.kinds:
            object.__setattr__(self, "kinds", ("other",) * len(self.messages))

    @property
    def concerns(self) -> tuple[Concern, ...]:
        """The warnings, each with its kind."""
        return tuple(Concern(kind, text) for kind, text in zip(self.kinds, self.messages, strict=True))

    def warn(self, stacklevel: int) -> None:
        """Raise a Python warning for each concern, of the class of its kind, `stacklevel` frames up from the caller."""
        for concern in self.concerns:
            warnings.warn(concern.text, WARNINGS[concern.kind], stacklevel=stacklevel + 1)

    def with_check(self, checked: Mapping[str, float], *, worst: float) -> Diagnostics:
        """Return the diagnostics with what importance weights say of the posterior, as in `importance`, if anything.

        A Python warning is raised as well where k-hat is above `worst`.
        """
        k_hat = checked.get("k_hat", 0.0)
        if k_hat <= HIGHEST_K_HAT:
            return replace(self, importance=dict(checked))
        trust = (
            f"the variational posterior is far from the exact one of the same linearised model (k-hat {k_hat:.2f}, "
            f"above {HIGHEST_K_HAT}): do not trust its bands, which are likely too narrow. Use fit_exact."
        )
        concerns = [*self.concerns, *([Concern("approximation", trust)] if k_hat > worst else [])]
        return replace(self, importance=dict(checked), trust=trust, **concern_fields(concerns))
