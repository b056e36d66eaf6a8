"""A fit of packed rows, from features to posterior."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from neuralsurv.data.cohort import Cohort
from neuralsurv.data.stream.survey import Survey
from neuralsurv.inference.default.settings import DefaultSettings
from neuralsurv.inference.default.structure import build_network, build_prior
from neuralsurv.inference.linearised_fit import SolverReport
from neuralsurv.inference.stream.batch_terms import BatchTerms, Linear
from neuralsurv.inference.stream.feature_learning import Objective, Training, learn_features
from neuralsurv.inference.stream.kept_directions import Directions, choose_directions
from neuralsurv.inference.stream.natural_gradient import Inference, Settled
from neuralsurv.inference.stream.packed_rows import BLOCK_ROWS, PackedRows, permutation
from neuralsurv.inference.stream.plan import StreamPlan
from neuralsurv.inference.stream.processes import Team
from neuralsurv.inference.stream.snapshots import Keeper
from neuralsurv.inference.threads import threads_for
from neuralsurv.model.additive import Additive
from neuralsurv.model.hazard import Constant
from neuralsurv.model.linearise import linearise_network
from neuralsurv.model.points import build_points
from neuralsurv.model.prior import GroupedPrior, PointMass
from neuralsurv.model.quadrature import RandomLog, Rule, ShiftedLog
from neuralsurv.progress import bar
from neuralsurv.solvers.subspace import SubspaceGaussian

# Random nodes a row and step while features are learned.
_TRAINING_NODES = 4
# Blocks of rows that the directions are chosen by.
_BLOCKS_TO_CHOOSE_BY = 8
# The network is free to move about as far from its random draw as the draw itself is from nothing.
_TRAINING_SCALE = 1.0
# With more encoded covariates than this there are no products of two of them.
_MOST_FOR_PAIRS = 12


@dataclass(frozen=True)
class StreamFit:
    """What a streamed fit leaves behind.

    Attributes
    ----------
    phi : PointMass
        The hazard scale, which is held.
    theta : SubspaceGaussian
        q(theta).
    theta_star : Tensor of shape (m,)
        Where the network was linearised.
    network, normaliser
        The hazard.
    settled : Settled
        How the inference ended.
    scales : dict of str to float
        Scales of the prior by group.
    latent_share, crowded_share : float
        Averages over the time at risk: of 1 − σ(g), and of whether the hazard is close to its ceiling.
    latent_points : float
        φ times the exposure without hazard.
    solver : SolverReport
        What was kept of the weights.
    """

    phi: PointMass
    theta: SubspaceGaussian
    theta_star: Tensor
    network: Additive
    normaliser: Constant
    settled: Settled
    scales: dict[str, float]
    latent_share: float
    crowded_share: float
    latent_points: float
    solver: SolverReport


@dataclass(frozen=True)
class _Model:
    """The model before it has seen a row but for the times of the events."""

    network: Additive
    normaliser: Constant
    phi: float
    rule: ShiftedLog
    training_rule: Callable[[int, int], Rule]
    prior: GroupedPrior
    log_scales: Tensor
    training_scales: Tensor


@dataclass(frozen=True)
class StreamFitter:
    """Everything a streamed fit starts from.

    Attributes
    ----------
    rows : PackedRows
        The rows of all processes.
    survey : Survey
        What is known of them.
    covariates : int
        Encoded covariates.
    plan : StreamPlan
        How to go through the rows.
    seed : int
        Of everything that is random.
    team : Team
        The processes.
    keeper : Keeper
        Where snapshots go.
    verbose : bool or "auto"
        Whether to show progress.
    told : str
        What the progress says after its title.
    """

    rows: PackedRows
    survey: Survey
    covariates: int
    plan: StreamPlan
    seed: int
    team: Team
    keeper: Keeper
    verbose: bool | str | int
    told: str = ""

    def fit(self, settings: DefaultSettings) -> StreamFit:
        """Learn features, linearise there, and infer the posterior."""
        model = self._build(settings)
        size, points = model.network.size, BLOCK_ROWS * (settings.quadrature_points + 1)
        # The rows of one block are in memory at a time.
        with threads_for(max(size, BLOCK_ROWS * (_TRAINING_NODES + 1) * max(self.covariates + 1, *settings.hidden, 1))):
            mode = self._mode(model)
        with threads_for(_BLOCKS_TO_CHOOSE_BY * points * size):
            directions = self._directions(model, mode)
        with threads_for(max(points, size) * directions.rank):
            return self._posterior(settings, model, mode, directions)

    def _posterior(self, settings: DefaultSettings, model: _Model, mode: Tensor, directions: Directions) -> StreamFit:
        linear = Linear(model.network, model.normaliser, model.rule, mode, directions)
        terms = BatchTerms(linear, model.phi, settings.ablation.curvature, settings.ablation.hyper_priors)
        settled = self._settle(terms, mode, model.log_scales, settings.tolerance, settings.max_sweeps)
        return self._result(model, mode, directions, terms, settled)

    def _build(self, settings: DefaultSettings) -> _Model:
        scale = self.survey.last_time
        times = self.survey.event_times
        event_time, event_weight = torch.from_numpy(times.time / scale), torch.from_numpy(times.weight)
        # Many products of two covariates would cost more than the network, which learns them from so many rows.
        pairs = settings.ablation.pairs and self.covariates <= _MOST_FOR_PAIRS
        settings = replace(settings, ablation=replace(settings.ablation, pairs=pairs))
        network = build_network(event_time, event_weight, self.covariates, settings, self.seed)
        prior = build_prior(network, settings)
        training = prior.medians.clone()
        for place, group in enumerate(prior.groups):
            if group.name == "network":
                training[place] = math.log(_TRAINING_SCALE)
        shift, seed = network.basis.shift, self.seed
        return _Model(
            network=network,
            normaliser=Constant(1 / settings.headroom),
            # The crude rate of events.
            phi=self.survey.weighted_events / (self.survey.exposure / scale),
            rule=ShiftedLog(settings.quadrature_points, shift),
            training_rule=lambda number, block: RandomLog(_TRAINING_NODES, shift, (seed, 2, number, block)),
            prior=prior,
            log_scales=training if self.plan.training_passes else prior.medians,
            training_scales=training,
        )

    def _mode(self, model: _Model) -> Tensor:
        kept = self.keeper.constants.get("mode")
        if kept is not None:
            return kept
        start = torch.zeros(model.network.size, dtype=torch.float64)
        if not self.plan.training_passes:
            return start
        precision = model.prior.at(model.training_scales).precision
        objective = Objective(model.network, model.normaliser, model.training_rule, precision, model.phi)
        plan = self.plan
        training = Training(plan.training_passes, plan.training_blocks, plan.rate, self.seed)
        with bar("learning features" + self.told, training.steps(self.rows.blocks), self._shown) as advance:
            return learn_features(
                objective,
                self.rows,
                self.team,
                start,
                self.survey.rows,
                training,
                self.keeper,
                lambda step, total, value: advance(step, f"step {step} of {total}, objective a row {value:.5f}"),
            )

    @property
    def _shown(self) -> bool | str | int:
        return self.verbose if self.team.rank == 0 else False

    def _directions(self, model: _Model, mode: Tensor) -> Directions:
        kept = self.keeper.constants.get("basis")
        if kept is not None:
            whole = kept.numel() == 0
            leading = model.network.size if whole else model.network.linear_size
            # A checkpoint from before there were shapes has none, and goes on as it began.
            return Directions(model.prior, None if whole else kept, leading, self.keeper.constants.get("shape"))
        sample = self._sample()
        points = build_points(sample, model.rule, 1.0)
        x = sample.x[points.row]
        linearised = linearise_network(model.network, mode, points.time, x)
        share = torch.sigmoid(linearised.offset + linearised.rows.times(mode))
        # The information of the point process at the mode, as if the sample were all rows.
        weight = points.weight * (self.survey.rows / max(1, len(sample)))
        weight[: points.events] = 0
        level = self.survey.weighted_events / max(float(weight @ share), 1e-300)
        importance = level * weight * share * (1 - share)
        found = choose_directions(
            model.prior,
            model.network.linear_size,
            linearised.rows,
            importance,
            mode,
            self.plan.directions,
            self.plan.keep_all,
        )
        if found.basis is None or found.shape is None:
            self.keeper.constants |= {"mode": mode, "basis": torch.zeros(0, dtype=torch.float64)}
            return found
        # Process 0 decides: another processor may round the last digit differently.
        basis, shape = self.team.share(found.basis), self.team.share(found.shape)
        self.keeper.constants |= {"mode": mode, "basis": basis, "shape": shape}
        return Directions(found.prior, basis, found.leading, shape)

    def _sample(self) -> Cohort:
        return self.rows.everybodys(permutation(self.rows.blocks, self.seed, 0)[:_BLOCKS_TO_CHOOSE_BY], self.team)

    def _settle(self, terms: BatchTerms, mode: Tensor, log_scales: Tensor, tolerance: float, most: int) -> Settled:
        plan = self.plan
        title = "sweeps over all rows" if plan.exact else "natural-gradient steps"
        with bar(title + self.told, None, self._shown) as advance:
            problem = Inference(
                terms,
                self.rows,
                self.team,
                mode,
                log_scales,
                self.keeper,
                lambda done, total, elbo: advance(done, f"{done} ({total} a pass), ELBO {elbo:.3f}"),
            )
            if plan.exact:
                return problem.sweep(tolerance=tolerance, most=most)
            return problem.step(blocks=plan.blocks, passes=plan.passes, seed=self.seed)

    def _report(self, directions: Directions, lost: float) -> SolverReport:
        if directions.basis is None:
            return SolverReport("streamed", "all directions of the weights are kept", directions.rank, 0.0)
        reason = f"the {directions.rank} directions of {len(directions.prior.unit)} that tell most"
        return SolverReport("streamed", reason, directions.rank, lost)

    def _result(
        self, model: _Model, mode: Tensor, directions: Directions, terms: BatchTerms, settled: Settled
    ) -> StreamFit:
        names = [group.name for group in model.prior.groups]
        exposure = self.survey.exposure / self.survey.last_time
        headroom = 1 / model.normaliser.value
        latent, crowded = settled.last[1:3].tolist()
        told = terms.told(settled.sums)
        return StreamFit(
            phi=PointMass(model.phi),
            theta=directions.gaussian(told, settled.log_scales),
            theta_star=mode,
            network=model.network,
            normaliser=model.normaliser,
            settled=settled,
            scales=dict(zip(names, settled.log_scales.exp().tolist(), strict=True)),
            latent_share=latent / (headroom * exposure),
            crowded_share=crowded / (headroom * exposure),
            latent_points=model.phi * latent,
            solver=self._report(directions, told.across * directions.believe(told, settled.log_scales).across),
        )
