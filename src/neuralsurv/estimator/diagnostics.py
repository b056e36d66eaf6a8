"""What a user should know about a fit before trusting it."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import torch

from neuralsurv.inference.check.importance import WeighedDraws
from neuralsurv.inference.check.pareto import HIGHEST_K_HAT
from neuralsurv.inference.default.fit import AdditiveFit
from neuralsurv.inference.exact.chains import GibbsResult
from neuralsurv.inference.paper.fit import Fit, latent_share
from neuralsurv.posterior.concerns import WARNINGS, Concern, concern_fields, few_events, near_ceiling

# With fewer latent points than this share, sigma(g) is so close to 1 everywhere that hazards can hardly differ.
COLLAPSE_SHARE = 0.05
# The trapezoid cuts every row at the last grid point; more than this share of the time at risk lost is reported.
EXPOSURE_SHARE = 0.05
# A hazard above this share of its ceiling can hardly rise any further.
CEILING_SHARE = 0.5
# Information that the low-rank solver may give up without a word, in nats.
LOST_INFORMATION = 0.5
# Importance weights whose tail has a shape above 1 have not even a mean: q misses where the posterior is.
HOPELESS_K_HAT = 1.0


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
        Number of sweeps; with the default preset, settings that were tried in the search for the scales.
    mode_converged : bool
        Whether the search for the mode ended by itself and not at its limit; the default preset needs none.
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
        What the directions that were cut off would have told, in nats; they keep their prior.
    scales : dict of str to float
        With the default preset, the best scale of each group of weights; else empty.
    settings : int
        How many settings of these scales the posterior averages over; 1 with the paper preset.
    sampling : dict of str to float
        With ``inference="gibbs"``, how the chains went: their number, draws kept of each, the worst R-hat and the
        lowest effective sample sizes (bulk and tail) over log phi, log scales, weights and g at the events. Else empty.
    importance : dict of str to float
        How the posterior compares with the exact one of the same linearised model: ``k_hat``, the shape of the tail of
        importance weights (good below 0.5, of use up to 0.7, hopeless above 1), and ``effective``, the share of draws
        that they are worth. Of the draws that were kept with ``inference="importance"``, else of the variational
        posterior; empty for exact draws and for more than 1,000 rows.
    trust : str
        Why the posterior should not be trusted, in words, where k-hat is above 0.7; empty if nothing speaks against it.
        With the paper preset this is the rule, so there is no Python warning of it.
    jitter : float
        What was added to a matrix to factorise it: always 0, since a failure is an error here.
    messages : tuple of str
        The warnings, in words.
    kinds : tuple of str
        The kind of each; `concerns` has both side by side.
    epochs : int
        With the default preset and a network of the user's, epochs of training after which it was linearised; 0 where
        training did not help to predict the rows that were kept aside.
    modes : int
        How many modes the posterior lies around; more than 1 only where a streamed fit was asked for them.
    """

    converged: bool
    interrupted: bool
    sweeps: int
    mode_converged: bool
    mode_objectives: tuple[float, ...]
    latent_points: float
    latent_share: float
    collapsed: bool
    missing_exposure: float
    coarse_sweeps: int
    solver: str
    solver_reason: str
    rank: int
    lost_information: float
    scales: dict[str, float]
    settings: int
    jitter: float
    messages: tuple[str, ...]
    # Newer than the first files, which lack them.
    sampling: dict[str, float] = field(default_factory=dict)
    importance: dict[str, float] = field(default_factory=dict)
    trust: str = ""
    epochs: int = 0
    modes: int = 1
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


def diagnose(
    fit: Fit | AdditiveFit,
    drawn: GibbsResult | WeighedDraws | None = None,
    checked: Mapping[str, float] = MappingProxyType({}),
) -> Diagnostics:
    """Read the diagnostics off a fit, and off the draws that replace it, and put what is wrong into words.

    Parameters
    ----------
    fit : Fit or AdditiveFit
        The variational fit.
    drawn : GibbsResult or WeighedDraws, optional
        Draws that are predicted from in its place.
    checked : mapping
        How the variational posterior compares with the exact one; see :func:`check_posterior`.
    """
    exact = drawn if isinstance(drawn, GibbsResult) else None
    found = _diagnose_paper(fit, exact) if isinstance(fit, Fit) else _diagnose_default(fit)
    if exact is not None:
        return _with_chains(found, exact)
    if isinstance(drawn, WeighedDraws):
        checked = {"k_hat": drawn.k_hat, "effective": drawn.effective}
    k_hat, concerns, trust = checked.get("k_hat", 0.0), found.concerns, ""
    if k_hat > HIGHEST_K_HAT:
        trust = _too_far(k_hat, corrected=drawn is not None, paper=isinstance(fit, Fit))
        # Of the paper's own posterior it is nearly always true, and whoever reproduces the paper knows.
        if drawn is not None or (isinstance(fit, AdditiveFit) and k_hat > HOPELESS_K_HAT):
            concerns += (Concern("approximation", trust),)
    return replace(found, importance=dict(checked), trust=trust, **concern_fields(concerns))


def _too_far(k_hat: float, *, corrected: bool, paper: bool) -> str:
    """Say that a posterior should not be trusted, and what to do."""
    if corrected:
        return (
            f"the importance weights cannot be trusted: the shape of their tail, k-hat, is {k_hat:.2f}, above "
            f"{HIGHEST_K_HAT}, so a few draws stand for all. Use inference='gibbs', or a smaller network (hidden)."
        )
    remedy = "inference='importance' or inference='gibbs'" if paper else "inference='gibbs'"
    return (
        f"the variational posterior is far from the exact one of the same linearised model (k-hat {k_hat:.2f}, above "
        f"{HIGHEST_K_HAT}): do not trust its bands, which are likely too narrow. Use {remedy}."
    )


def _with_chains(found: Diagnostics, drawn: GibbsResult) -> Diagnostics:
    chains = drawn.diagnostics
    sampling = {
        "chains": float(drawn.phi.shape[0]),
        "draws": float(drawn.phi.shape[1]),
        "r_hat": chains.r_hat,
        "ess_bulk": chains.ess_bulk,
        "ess_tail": chains.ess_tail,
    }
    return replace(
        found,
        converged=not chains.messages,
        interrupted=found.interrupted or chains.interrupted,
        sampling=sampling,
        **concern_fields([*found.concerns, *(Concern("chains", text) for text in chains.messages)]),
    )


def _diagnose_paper(fit: Fit, drawn: GibbsResult | None) -> Diagnostics:
    latent, share = fit.info.latent_points, latent_share(fit)
    if drawn is not None:
        # The chains know better than the sweeps how many latent points there are.
        latent = drawn.diagnostics.latent_points
        share = latent / (float(drawn.phi.mean()) * float(fit.problem.baseline.sum()))
    collapsed = share < COLLAPSE_SHARE
    concerns = []
    if collapsed:
        text = (
            f"the posterior has collapsed: only {latent:.2f} latent points ({share:.1%} of all points) "
            "are left, so sigma(g) is close to 1 for everybody and covariates have next to no effect. Try other starts "
            "(random_state, starts) or a smaller network (hidden)."
        )
        concerns.append(Concern("collapse", text))
    if not fit.mode.converged:
        text = (
            f"the search for the mode stopped at its limit of {len(fit.mode.trace) - 1} iterations; the network is "
            "linearised at the best point found."
        )
        concerns.append(Concern("mode", text))
    if drawn is None:
        concerns += _about_sweeps(fit)
    return Diagnostics(
        converged=fit.info.converged,
        interrupted=fit.info.interrupted,
        sweeps=fit.info.sweeps,
        mode_converged=fit.mode.converged,
        mode_objectives=fit.objectives,
        latent_points=latent,
        latent_share=share,
        collapsed=collapsed,
        missing_exposure=fit.missing_exposure,
        coarse_sweeps=fit.coarse_sweeps,
        solver=fit.solver.name,
        solver_reason=fit.solver.reason,
        rank=fit.solver.rank,
        lost_information=fit.solver.lost_information,
        scales={},
        settings=1,
        sampling={},
        importance={},
        trust="",
        jitter=0.0,
        **concern_fields(concerns),
    )


def _about_sweeps(fit: Fit) -> list[Concern]:
    """Return what is wrong with the variational sweeps; exact draws need neither them nor a quadrature rule."""
    concerns = []
    if fit.info.interrupted and not fit.info.converged:
        text = (
            f"the variational sweeps were interrupted after {fit.info.sweeps}; the model can be used, but has not "
            "converged. Fit again with warm_start=True to sweep on without a new search for the mode."
        )
        concerns.append(Concern("interrupted", text))
    elif not fit.info.converged:
        change = f"; the last relative change was {fit.info.change[-1]:.2g}" if fit.info.change else ""
        text = (
            f"the variational sweeps stopped after {fit.info.sweeps} before reaching their tolerance{change}. "
            "Raise max_sweeps, or tolerance if that is close enough."
        )
        concerns.append(Concern("sweeps", text))
    if fit.missing_exposure > EXPOSURE_SHARE:
        text = (
            f"the trapezoid grid leaves out {fit.missing_exposure:.0%} of the time at risk, because many rows end "
            "between two grid points. Use quadrature='gauss-legendre', or more quadrature_points."
        )
        concerns.append(Concern("quadrature", text))
    return concerns


def _diagnose_default(fit: AdditiveFit) -> Diagnostics:
    events = fit.likelihood.points.events
    share_of_ceiling = torch.sigmoid(fit.offset[events:] + fit.top.state.mean[events:])
    exposure = fit.likelihood.baseline
    latent = float(exposure @ (1 - share_of_ceiling))
    converged = fit.top.info.converged and not fit.interrupted
    concerns = []
    if fit.interrupted:
        text = (
            f"the search for the scales of the prior was interrupted after {len(fit.elbo)} settings; the model can be "
            "used, but its scales are not the best and it does not average over them."
        )
        concerns.append(Concern("interrupted", text))
    elif not fit.top.info.converged:
        text = (
            f"the ascent for the best scales stopped after {fit.top.info.steps} steps before reaching its tolerance. "
            "Raise max_sweeps, or tolerance if that is close enough."
        )
        concerns.append(Concern("sweeps", text))
    concerns += few_events(fit.likelihood.event_count)
    concerns += near_ceiling(float(exposure @ (share_of_ceiling > CEILING_SHARE).double() / exposure.sum()))
    if fit.solver.lost_information > LOST_INFORMATION:
        text = (
            f"the {fit.solver.rank} directions that were kept leave out {fit.solver.lost_information:.1f} nats of "
            "information of the network, so bands are somewhat wider than they need be; use a smaller network."
        )
        concerns.append(Concern("approximation", text))
    return Diagnostics(
        converged=converged,
        interrupted=fit.interrupted,
        sweeps=len(fit.elbo),
        mode_converged=True,
        mode_objectives=(),
        latent_points=fit.phi.mean * latent,
        latent_share=latent / float(exposure.sum()),
        collapsed=False,
        missing_exposure=0.0,
        coarse_sweeps=0,
        solver=fit.solver.name,
        solver_reason=fit.solver.reason,
        rank=fit.solver.rank,
        lost_information=fit.solver.lost_information,
        scales=fit.scales,
        settings=fit.settings,
        sampling={},
        importance={},
        trust="",
        epochs=fit.epochs,
        jitter=0.0,
        **concern_fields(concerns),
    )
