"""A fit of packed rows, from features to posterior, around one mode or several."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from neuralsurv.data.stream.survey import Survey
from neuralsurv.inference.default.settings import DefaultSettings
from neuralsurv.inference.default.structure import build_network, build_prior
from neuralsurv.inference.stream.ascent import sweep_all_rows, take_steps
from neuralsurv.inference.stream.batch_terms import BatchTerms
from neuralsurv.inference.stream.feature_learning import FeatureTraining, Objective, learn_features
from neuralsurv.inference.stream.kept_directions import KeptDirections, choose_directions
from neuralsurv.inference.stream.packed_rows import BLOCK_ROWS, PackedRows, block_order
from neuralsurv.inference.stream.plan import StreamPlan
from neuralsurv.inference.stream.processes import ProcessGroup
from neuralsurv.inference.stream.snapshots import SnapshotStore
from neuralsurv.inference.stream.streamed_problem import StreamedProblem, StreamedResult
from neuralsurv.inference.threads import threads_for
from neuralsurv.model.additive import Additive
from neuralsurv.model.hazard import Constant
from neuralsurv.model.linearise import linearise_network
from neuralsurv.model.points import build_points
from neuralsurv.model.prior import GroupedPrior, PointMass
from neuralsurv.model.quadrature import RandomLog, Rule, ShiftedLog
from neuralsurv.posterior.concerns import Concern, concern_fields, few_events, near_ceiling
from neuralsurv.posterior.diagnostics import Diagnostics
from neuralsurv.posterior.gaussian import Posterior
from neuralsurv.posterior.mixture import MixedPosterior
from neuralsurv.progress import bar

# Random quadrature nodes per row and step of feature learning.
_TRAINING_NODES = 4
# Blocks of rows from which the directions are chosen.
_BLOCKS_TO_CHOOSE_BY = 8
# The network is free to move about as far from its random draw as the draw itself is from nothing.
_TRAINING_SCALE = 1.0
# With more encoded covariates than this, the model has no products of two of them.
_MOST_FOR_PAIRS = 12


@dataclass(frozen=True)
class StreamFit:
    """A streamed fit around one mode."""

    posterior: Posterior  # φ is fixed
    elbo: tuple[float, ...]  # as the inference went on
    diagnostics: Diagnostics


@dataclass(frozen=True)
class _Model:
    """The model before any row but the times of the events is used."""

    network: Additive
    normaliser: Constant
    phi: float
    rule: ShiftedLog
    prior: GroupedPrior
    log_scales: Tensor


@dataclass(frozen=True)
class StreamFitter:
    """Fits packed rows."""

    rows: PackedRows  # the rows of all processes
    survey: Survey
    covariates: int  # encoded covariates
    plan: StreamPlan
    seed: int
    processes: ProcessGroup
    checkpoint: SnapshotStore  # where the state is saved
    verbose: bool | str | int
    label: str = ""  # appended to the titles of the progress bars

    def fit(self, settings: DefaultSettings) -> StreamFit:
        """Learn features, linearise there, and infer the posterior."""
        model = self._build(settings)
        size, points = model.network.size, BLOCK_ROWS * (settings.quadrature_points + 1)
        # The rows of one block are in memory at a time.
        with threads_for(max(size, BLOCK_ROWS * (_TRAINING_NODES + 1) * max(self.covariates + 1, *settings.hidden, 1))):
            mode = self._mode(model)
        # The sample is read in a few products; the rest is algebra of the weights' m×m matrix.
        with threads_for(size**2):
            directions = self._directions(model, mode)
        with threads_for(max(points, size) * directions.rank):
            terms = BatchTerms(
                model.network,
                model.normaliser,
                model.rule,
                mode,
                directions,
                model.phi,
                settings.ablation.curvature,
                settings.ablation.hyper_priors,
            )
            return self._fit(model, terms, self._infer(terms, model.log_scales, settings))

    def _build(self, settings: DefaultSettings) -> _Model:
        scale = self.survey.last_time
        times = self.survey.event_times
        event_time, event_weight = torch.from_numpy(times.time / scale), torch.from_numpy(times.weight)
        # Many products of two covariates would cost more than the network, which learns them from this many rows.
        pairs = settings.ablation.pairs and self.covariates <= _MOST_FOR_PAIRS
        settings = replace(settings, ablation=replace(settings.ablation, pairs=pairs))
        network = build_network(event_time, event_weight, self.covariates, settings, self.seed)
        prior = build_prior(network, settings)
        log_scales = prior.medians.clone()
        for place, group in enumerate(prior.groups):
            if group.name == "network" and self.plan.training_passes:
                log_scales[place] = math.log(_TRAINING_SCALE)
        return _Model(
            network=network,
            normaliser=Constant(1 / settings.headroom),
            # The crude rate of events.
            phi=self.survey.weighted_events / (self.survey.exposure / scale),
            rule=ShiftedLog(settings.quadrature_points, network.basis.shift),
            prior=prior,
            log_scales=log_scales,
        )

    def _mode(self, model: _Model) -> Tensor:
        found = self.checkpoint.constants.get("mode")
        if found is not None:
            return found
        start = torch.zeros(model.network.size, dtype=torch.float64)
        if not self.plan.training_passes:
            return start
        precision = model.prior.at(model.log_scales).precision

        def rule(number: int, block: int) -> Rule:
            return RandomLog(_TRAINING_NODES, model.rule.shift, (self.seed, 2, number, block))

        objective = Objective(model.network, model.normaliser, rule, precision, model.phi)
        plan = self.plan
        training = FeatureTraining(plan.training_passes, plan.training_blocks, plan.rate, self.seed)
        with bar("learning features" + self.label, training.steps(self.rows.blocks), self._shown) as advance:
            return learn_features(
                objective,
                self.rows,
                self.processes,
                start,
                self.survey.rows,
                training,
                self.checkpoint,
                lambda step, total, value: advance(step, f"step {step} of {total}, objective per row {value:.5f}"),
            )

    @property
    def _shown(self) -> bool | str | int:
        return self.verbose if self.processes.rank == 0 else False

    def _directions(self, model: _Model, mode: Tensor) -> KeptDirections:
        constants = self.checkpoint.constants
        if "basis" not in constants:
            found = self._choose_directions(model, mode)
            # Process 0 decides: another processor may round the last digit differently.
            basis, shape = self.processes.broadcast(found.basis), self.processes.broadcast(found.shape)
            constants |= {"mode": mode, "basis": basis, "shape": shape}
        size = model.network.size
        leading = size if size <= self.plan.keep_all else model.network.linear_size
        return KeptDirections(model.prior, constants["basis"], leading, constants["shape"])

    def _choose_directions(self, model: _Model, mode: Tensor) -> KeptDirections:
        first = block_order(self.rows.blocks, self.seed, 0)[:_BLOCKS_TO_CHOOSE_BY]
        sample = self.rows.gather(first, self.processes)
        points = build_points(sample, model.rule, 1.0)
        x = sample.x[points.row]
        linearised = linearise_network(model.network, mode, points.time, x)
        share = torch.sigmoid(linearised.offset + linearised.rows.times(mode))
        # The information of the point process at the mode, as if the sample were all rows.
        weight = points.weight * (self.survey.rows / max(1, len(sample)))
        weight[: points.events] = 0
        level = self.survey.weighted_events / max(float(weight @ share), 1e-300)
        importance = level * weight * share * (1 - share)
        plan, leading = self.plan, model.network.linear_size
        return choose_directions(
            model.prior, leading, linearised.rows, importance, mode, plan.directions, plan.keep_all
        )

    def _infer(self, terms: BatchTerms, log_scales: Tensor, settings: DefaultSettings) -> StreamedResult:
        plan = self.plan
        title = "sweeps over all rows" if plan.exact else "natural-gradient steps"
        with bar(title + self.label, None, self._shown) as advance:
            problem = StreamedProblem(
                terms,
                self.rows,
                self.processes,
                log_scales,
                self.checkpoint,
                lambda done, total, elbo: advance(done, f"{done} ({total} per pass), ELBO {elbo:.3f}"),
            )
            if plan.exact:
                return sweep_all_rows(problem, tolerance=settings.tolerance, most=settings.max_sweeps)
            return take_steps(problem, blocks=plan.blocks, passes=plan.passes, seed=self.seed)

    def _fit(self, model: _Model, terms: BatchTerms, result: StreamedResult) -> StreamFit:
        directions, log_scales = terms.directions, result.log_scales
        exposure = self.survey.exposure / self.survey.last_time
        headroom = 1 / model.normaliser.value
        # The time at risk without hazard, and with one that is close to its ceiling.
        latent, crowded = result.last[1:3].tolist()
        information = terms.information(result.sums)
        theta = directions.weight_posterior(information, log_scales)
        reason, lost = "all directions of the weights are kept", 0.0
        if not directions.complete:
            reason = f"the {directions.rank} directions of {model.network.size} that carry most information"
            lost = information.across * directions.posterior(information, log_scales).across
        names = [group.name for group in model.prior.groups]
        diagnostics = Diagnostics(
            converged=result.converged,
            sweeps=len(result.elbo),
            latent_points=model.phi * latent,
            latent_share=latent / (headroom * exposure),
            scales=dict(zip(names, log_scales.exp().tolist(), strict=True)),
            solver="streamed",
            solver_reason=reason,
            rank=directions.rank,
            lost_information=lost,
            **concern_fields([*_about_convergence(result), *near_ceiling(crowded / (headroom * exposure))]),
        )
        posterior = Posterior(PointMass(model.phi), theta, terms.theta_star, model.network, model.normaliser, 1.0)
        return StreamFit(posterior, result.elbo, diagnostics)


@dataclass(frozen=True)
class StreamedModes:
    """The fits around all modes."""

    fits: tuple[StreamFit, ...]  # the fit around each mode
    event_weight: float  # sum of the weights of the events

    @property
    def posterior(self) -> Posterior:
        """The posterior, or the mixture of all with equal weights."""
        first, *others = [fit.posterior for fit in self.fits]
        return MixedPosterior.of((first, *others)) if others else first

    @property
    def trace(self) -> np.ndarray:
        """The ELBO as the fits went on, on average over the modes, which is a bound for the mixture as well."""
        longest = max(len(fit.elbo) for fit in self.fits)
        # A fit that ended before the others stays at its last value.
        traces = [np.pad(fit.elbo, (0, longest - len(fit.elbo)), mode="edge") for fit in self.fits]
        return np.asarray(np.mean(traces, axis=0))

    def diagnose(self) -> Diagnostics:
        """Return the diagnostics of all modes as one: averages, and the concerns about any of them."""
        found = [fit.diagnostics for fit in self.fits]
        first = found[0]
        # Few events concern all modes alike.
        shared = few_events(self.event_weight)
        if len(found) == 1:
            return replace(first, **concern_fields([*shared, *first.concerns]))
        concerns = [
            replace(concern, text=f"mode {k}: {concern.text}")
            for k, each in enumerate(found, 1)
            for concern in each.concerns
        ]
        names = first.scales
        return replace(
            first,
            converged=all(each.converged for each in found),
            sweeps=sum(each.sweeps for each in found),
            latent_points=float(np.mean([each.latent_points for each in found])),
            latent_share=float(np.mean([each.latent_share for each in found])),
            lost_information=max(each.lost_information for each in found),
            scales={name: float(np.exp(np.mean([np.log(each.scales[name]) for each in found]))) for name in names},
            modes=len(found),
            **concern_fields([*shared, *concerns]),
        )


def _about_convergence(result: StreamedResult) -> list[Concern]:
    if result.converged:
        return []
    if result.moved:
        text = (
            f"the natural-gradient steps still moved the mean by {result.moved:.1f} posterior standard deviations in "
            "the last half pass; raise passes."
        )
    else:
        text = (
            f"the sweeps stopped after {len(result.elbo)} before reaching their tolerance. Raise max_sweeps, or "
            "tolerance if that is close enough."
        )
    return [Concern("sweeps", text)]
