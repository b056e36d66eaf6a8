"""A fit of packed rows, from features to posterior, for both presets."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from neuralsurv.data.survey import Survey
from neuralsurv.errors import InputError
from neuralsurv.inference.additive_model import build_network, build_prior
from neuralsurv.inference.distributed import Team
from neuralsurv.inference.fit import choose_normaliser, quadrature_rule
from neuralsurv.inference.keeping import Keeper
from neuralsurv.inference.kept_directions import Directions, choose_directions
from neuralsurv.inference.learning import Objective, Training, learn_features
from neuralsurv.inference.linearise import linearise_network
from neuralsurv.inference.packed import PackedRows, RowBatch, permutation
from neuralsurv.inference.solving import SolverReport
from neuralsurv.inference.stochastic import Inference, Settled
from neuralsurv.inference.terms import AugmentedTerms, HeldTerms, Linear, Terms
from neuralsurv.model.hazard import Constant, Normaliser
from neuralsurv.model.network import MLP, Network
from neuralsurv.model.points import build_points
from neuralsurv.model.prior import Gamma, GroupedPrior, Held
from neuralsurv.model.quadrature import RandomLog, Rule, ShiftedLog
from neuralsurv.presets import Choices, DefaultChoices
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
# Sweeps of the paper's model gain little each and go on for long; they stop at so many nats.
_PAPER_TOLERANCE = 1e-6


@dataclass(frozen=True)
class StreamPlan:
    """How a streamed fit goes through the rows.

    Attributes
    ----------
    exact : bool
        Whether the posterior comes from sweeps over all rows, or from natural-gradient steps on samples.
    training_passes : int
        Passes of feature learning; 0 leaves the network at its random draw (at its random start, for the paper's).
    passes : int
        Passes of the steps on samples.
    training_blocks, blocks : int
        Blocks of rows in a step of feature learning, and of the posterior.
    rate : float
        Largest step of feature learning.
    directions : int
        Largest number of directions of the network that the posterior keeps.
    """

    exact: bool
    training_passes: int
    passes: int
    training_blocks: int
    blocks: int
    rate: float
    directions: int


@dataclass(frozen=True)
class StreamFit:
    """What a streamed fit leaves behind.

    Attributes
    ----------
    phi, phi_prior : Gamma or Held
        q(phi) and its prior.
    theta : SubspaceGaussian
        q(theta).
    theta_star : Tensor of shape (m,)
        Where the network was linearised.
    network, normaliser, rho
        The hazard.
    settled : Settled
        How the inference ended.
    scales : dict of str to float
        Scales of the prior by group; empty for the paper's.
    latent_share, crowded_share : float
        Averages over the time at risk: of 1 − σ(g), and of whether the hazard is close to its ceiling.
    latent_points : float
        φ times the exposure without hazard.
    solver : SolverReport
        What was kept of the weights.
    training_steps : int
        Steps of feature learning.
    """

    phi: Gamma | Held
    phi_prior: Gamma | Held
    theta: SubspaceGaussian
    theta_star: Tensor
    network: Network
    normaliser: Normaliser
    rho: float
    settled: Settled
    scales: dict[str, float]
    latent_share: float
    crowded_share: float
    latent_points: float
    solver: SolverReport
    training_steps: int


@dataclass(frozen=True)
class _Model:
    """What differs between the presets."""

    network: Network
    normaliser: Normaliser
    rho: float
    rule: Rule
    training_rule: Callable[[int, int], Rule]
    prior: GroupedPrior
    leading: int
    log_scales: Tensor
    training_scales: Tensor
    noisy: bool
    start: Tensor
    phi: Callable[[float], float]
    exposure: float


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

    def fit(self, choices: Choices | DefaultChoices) -> StreamFit:
        """Learn features, linearise there, and infer the posterior."""
        model = self._default(choices) if isinstance(choices, DefaultChoices) else self._paper(choices)
        mode = self._mode(model)
        directions = self._directions(model, mode)
        linear = Linear(model.network, model.normaliser, model.rho, model.rule, mode, directions)
        if isinstance(choices, DefaultChoices):
            phi = model.phi(0.0)
            terms = HeldTerms(linear, phi, choices.curvature, choices.hyper_priors)
            settled = self._settle(terms, mode, model.log_scales, choices.tolerance, choices.max_sweeps)
            return self._default_result(model, mode, directions, terms, settled, phi)
        prior = Gamma(*choices.phi_prior)
        augmented = AugmentedTerms(linear, prior, self.survey.weighted_events, self._baseline(model))
        settled = self._settle(augmented, mode, model.log_scales, _PAPER_TOLERANCE, choices.max_sweeps)
        return self._paper_result(model, mode, directions, augmented, settled)

    def _default(self, choices: DefaultChoices) -> _Model:
        scale = self.survey.last_time
        times = self.survey.event_times
        event_time, event_weight = torch.from_numpy(times.time / scale), torch.from_numpy(times.weight)
        # Many products of two covariates would cost more than the network, which learns them from so many rows.
        choices = replace(choices, pairs=choices.pairs and self.covariates <= _MOST_FOR_PAIRS)
        network = build_network(event_time, event_weight, self.covariates, choices, self.seed)
        prior = build_prior(network, choices)
        crude = self.survey.weighted_events / (self.survey.exposure / scale)
        training = prior.medians.clone()
        for place, group in enumerate(prior.groups):
            if group.name == "network":
                training[place] = math.log(_TRAINING_SCALE)
        shift, seed = network.basis.shift, self.seed
        return _Model(
            network=network,
            normaliser=Constant(1 / choices.headroom),
            rho=1.0,
            rule=ShiftedLog(choices.quadrature_points, shift),
            training_rule=lambda number, block: RandomLog(_TRAINING_NODES, shift, (seed, 2, number, block)),
            prior=prior,
            leading=network.linear_size,
            log_scales=training if self.plan.training_passes else prior.medians,
            training_scales=training,
            noisy=True,
            start=torch.zeros(network.size, dtype=torch.float64),
            phi=lambda exposure: crude,
            exposure=0.0,
        )

    def _paper(self, choices: Choices) -> _Model:
        network = MLP(self.covariates, choices.hidden, choices.activation)
        prior = GroupedPrior(torch.ones(network.size, dtype=torch.float64), ())
        gamma = Gamma(*choices.phi_prior)
        count = gamma.shape - 1 + self.survey.weighted_events
        if count <= 0:
            raise InputError(
                f"the weights of the events add up to {self.survey.weighted_events:g}, too little for phi_prior with "
                f"shape {gamma.shape:g}: their sum must exceed 1 for phi to have a mode. Rescale the weights."
            )
        rule = quadrature_rule(choices)
        none = torch.zeros(0, dtype=torch.float64)
        return _Model(
            network=network,
            normaliser=choose_normaliser(choices, network, prior.at(none), self.seed),
            rho=choices.rho,
            rule=rule,
            training_rule=lambda number, block: rule,
            prior=prior,
            leading=0,
            log_scales=none,
            training_scales=none,
            noisy=False,
            start=network.initial(torch.Generator().manual_seed(self.seed)),
            phi=lambda exposure: count / (gamma.rate + exposure),
            exposure=self.survey.exposure / self.survey.last_time,
        )

    def _baseline(self, model: _Model) -> float:
        """Return Σ c over all rows, by one pass."""
        local = torch.zeros(1, dtype=torch.float64)
        for _, batch in self.rows.read(np.arange(self.rows.blocks)):
            nodes = model.rule.nodes(batch.entry, batch.time, model.rho)
            local += (batch.weight[nodes.row] * nodes.weight / model.normaliser(nodes.time, batch.x[nodes.row])).sum()
        return float(self.team.sum(local))

    def _mode(self, model: _Model) -> Tensor:
        kept = self.keeper.constants.get("mode")
        if kept is not None:
            return kept
        if not self.plan.training_passes:
            return model.start
        objective = Objective(
            model.network,
            model.normaliser,
            model.rho,
            model.training_rule,
            model.prior.at(model.training_scales).precision,
            model.phi,
        )
        plan = self.plan
        training = Training(plan.training_passes, plan.training_blocks, plan.rate, self.seed, noisy=model.noisy)
        with bar("learning features" + self.told, training.steps(self.rows.blocks), self._shown) as advance:
            return learn_features(
                objective,
                self.rows,
                self.team,
                model.start,
                model.exposure,
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
            leading = model.network.size if whole else model.leading
            # A checkpoint from before there were shapes has none, and goes on as it began.
            return Directions(model.prior, None if whole else kept, leading, self.keeper.constants.get("shape"))
        sample = self._sample()
        points = build_points(sample.time, sample.event, sample.entry, sample.weight, model.rule, model.rho)
        x = sample.x[points.row]
        linearised = linearise_network(model.network, mode, points.time, x)
        share = torch.sigmoid(linearised.offset + linearised.rows.times(mode))
        # The information of the point process at the mode, as if the sample were all rows.
        weight = points.weight * (self.survey.rows / max(1, len(sample)))
        weight[: points.events] = 0
        level = self.survey.weighted_events / max(float(weight @ share), 1e-300)
        importance = level * weight * share * (1 - share)
        found = choose_directions(model.prior, model.leading, linearised.rows, importance, mode, self.plan.directions)
        if found.basis is None or found.shape is None:
            self.keeper.constants |= {"mode": mode, "basis": torch.zeros(0, dtype=torch.float64)}
            return found
        # Process 0 decides: another processor may round the last digit differently.
        basis, shape = self.team.share(found.basis), self.team.share(found.shape)
        self.keeper.constants |= {"mode": mode, "basis": basis, "shape": shape}
        return Directions(found.prior, basis, found.leading, shape)

    def _sample(self) -> RowBatch:
        return self.rows.everybodys(permutation(self.rows.blocks, self.seed, 0)[:_BLOCKS_TO_CHOOSE_BY], self.team)

    def _settle(self, terms: Terms, mode: Tensor, log_scales: Tensor, tolerance: float, most: int) -> Settled:
        plan = self.plan
        title = "sweeps over all rows" if plan.exact else "natural-gradient steps"
        with bar(title + self.told, None, self._shown) as advance:
            problem = Inference(
                terms,
                self.rows,
                self.team,
                mode,
                log_scales,
                bool(terms.directions.prior.groups),
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

    def _steps(self) -> int:
        return Training(self.plan.training_passes, self.plan.training_blocks, 1.0, 0).steps(self.rows.blocks)

    def _default_result(
        self, model: _Model, mode: Tensor, directions: Directions, terms: Terms, settled: Settled, phi: float
    ) -> StreamFit:
        names = [group.name for group in model.prior.groups]
        exposure = self.survey.exposure / self.survey.last_time
        headroom = 1 / float(model.normaliser(torch.zeros(1), torch.zeros(1, 0))[0])
        latent, crowded = settled.last[1:3].tolist()
        told = terms.told(settled.sums)
        return StreamFit(
            phi=Held(phi),
            phi_prior=Held(phi),
            theta=directions.gaussian(told, settled.log_scales),
            theta_star=mode,
            network=model.network,
            normaliser=model.normaliser,
            rho=model.rho,
            settled=settled,
            scales=dict(zip(names, settled.log_scales.exp().tolist(), strict=True)),
            latent_share=latent / (headroom * exposure),
            crowded_share=crowded / (headroom * exposure),
            latent_points=phi * latent,
            solver=self._report(directions, told.across * directions.believe(told, settled.log_scales).across),
            training_steps=self._steps(),
        )

    def _paper_result(
        self, model: _Model, mode: Tensor, directions: Directions, terms: AugmentedTerms, settled: Settled
    ) -> StreamFit:
        phi = terms.phi(settled.last)
        latent = phi.shape - terms.phi_prior.shape - terms.event_count
        return StreamFit(
            phi=phi,
            phi_prior=terms.phi_prior,
            theta=directions.gaussian(terms.told(settled.sums), settled.log_scales),
            theta_star=mode,
            network=model.network,
            normaliser=model.normaliser,
            rho=model.rho,
            settled=settled,
            scales={},
            latent_share=latent / (phi.mean * terms.baseline),
            crowded_share=0.0,
            latent_points=latent,
            solver=self._report(directions, 0.0),
            training_steps=self._steps(),
        )
