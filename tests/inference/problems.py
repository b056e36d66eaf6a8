"""Small inference problems: simulated rows, networks whose g is known, a normaliser that varies; and their sweeps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from neuralsurv.data.cohort import Cohort
from neuralsurv.inference.default.settings import Ablation, DefaultSettings
from neuralsurv.inference.paper import cavi
from neuralsurv.inference.paper.problem import PaperProblem
from neuralsurv.model.hazard import Constant, Normaliser
from neuralsurv.model.linearise import Linearised, linearise
from neuralsurv.model.network import MLP, Network, Pullback
from neuralsurv.model.points import build_points
from neuralsurv.model.prior import Gamma, WeightPrior
from neuralsurv.model.quadrature import GaussLegendre, Rule
from neuralsurv.solvers.interface import Description
from neuralsurv.solvers.primal import PrimalSolver
from neuralsurv.solvers.rows import DenseRows


def double(values: object) -> Tensor:
    return torch.as_tensor(values, dtype=torch.float64)


def changed(settings: DefaultSettings, **changes: object) -> DefaultSettings:
    """Return settings of the default model with some changed, those of an ablation among them."""
    research = {name: changes.pop(name) for name in [field.name for field in fields(Ablation)] if name in changes}
    return replace(settings, **changes, ablation=replace(settings.ablation, **research))  # type: ignore[arg-type]


def event_weight(cohort: Cohort) -> float:
    return float(cohort.weight[cohort.event].sum())


def baseline_exposure(cohort: Cohort, rho: float) -> float:
    """The baseline exposure, by the closed form of its integral."""
    return float((cohort.weight * (cohort.time**rho - cohort.entry**rho)).sum()) / rho


def simulated(
    n: int, *, covariates: int = 2, censoring: float = 0.3, entry: bool = False, weight: bool = False, seed: int = 0
) -> Cohort:
    """Exponential times that the first covariate shortens; an exact share of rows censored, at least one event."""
    generator = torch.Generator().manual_seed(seed)

    def uniform() -> Tensor:
        return torch.rand(n, generator=generator, dtype=torch.float64)

    x = torch.randn(n, covariates, generator=generator, dtype=torch.float64)
    time = -torch.log(uniform())
    if covariates:
        time = time * torch.exp(-x[:, 0])
    event = torch.ones(n, dtype=torch.bool)
    event[torch.randperm(n, generator=generator)[: min(round(censoring * n), n - 1)]] = False
    time = torch.where(event, time, time * (0.1 + 0.9 * uniform()))
    time = time / time.max()
    entries = 0.7 * time * uniform() if entry else torch.zeros(n, dtype=torch.float64)
    weights = 0.5 + 2 * uniform() if weight else torch.ones(n, dtype=torch.float64)
    return Cohort(time, event, entries, weights, x)


def problem_of(
    rows: Cohort,
    network: Network | None = None,
    *,
    hidden: tuple[int, ...] = (4,),
    activation: str = "tanh",
    rho: float = 1.0,
    rule: Rule | None = None,
    normaliser: Normaliser | None = None,
    phi_prior: tuple[float, float] = (1.0, 1.0),
    precision: Tensor | None = None,
) -> PaperProblem:
    network = MLP(rows.x.shape[1], hidden, activation) if network is None else network
    return PaperProblem(
        points=build_points(rows, rule or GaussLegendre(8), rho),
        x=rows.x,
        network=network,
        weight_prior=WeightPrior.isotropic(network.size) if precision is None else WeightPrior(precision),
        phi_prior=Gamma(*phi_prior),
        normaliser=normaliser or Constant(0.5),
        rho=rho,
    )


def intricate(activation: str = "tanh", hidden: tuple[int, ...] = (4,), rho: float = 1.4, n: int = 15) -> PaperProblem:
    """A problem in which nothing is 1 or one half, so that no factor can go missing unseen."""
    rows = simulated(n, entry=True, weight=True, seed=3)
    size = MLP(2, hidden, activation).size
    return problem_of(
        rows,
        hidden=hidden,
        activation=activation,
        rho=rho,
        normaliser=Tilted(),
        phi_prior=(1.7, 0.6),
        precision=torch.linspace(0.5, 3, size, dtype=torch.float64),
    )


@dataclass(frozen=True)
class Tilted:
    """A normaliser that differs between times and people."""

    def __call__(self, time: Tensor, x: Tensor) -> Tensor:
        return torch.sigmoid(0.4 - time + 0.3 * x[:, 0])


@dataclass(frozen=True)
class Level:
    """A normaliser that is the same everywhere."""

    level: float

    def __call__(self, time: Tensor, x: Tensor) -> Tensor:
        return torch.full_like(time, self.level)


@dataclass(frozen=True)
class FrozenNetwork(Network):
    """g is a step function of time, constant between `breaks`, whatever its one weight is: J = 0."""

    levels: tuple[float, ...]
    breaks: tuple[float, ...] = ()

    @property
    def size(self) -> int:
        return 1

    @property
    def symmetric(self) -> bool:
        return False

    def initial(self, generator: torch.Generator) -> Tensor:
        return torch.randn(1, generator=generator, dtype=torch.float64)

    def value(self, theta: Tensor, time: Tensor, x: Tensor) -> Tensor:
        return double(self.levels)[torch.bucketize(time, double(self.breaks))]

    def bind(self, time: Tensor, x: Tensor) -> Callable[[Tensor], tuple[Tensor, Pullback]]:
        return lambda theta: (self.value(theta, time, x), lambda u: torch.zeros_like(theta))

    def value_and_rows(self, theta: Tensor, time: Tensor, x: Tensor) -> tuple[Tensor, DenseRows]:
        return self.value(theta, time, x), DenseRows(self.jacobian(theta, time, x))

    def jacobian(self, theta: Tensor, time: Tensor, x: Tensor) -> Tensor:
        return torch.zeros(len(time), 1, dtype=torch.float64)

    @property
    def architecture(self) -> str:
        return "steps"

    def describe(self) -> Description:
        raise AssertionError("no test saves it")


def constant(rows: Cohort, level: float, **options: object) -> PaperProblem:
    """g frozen at one level and Z = σ(level), so that the model is the exponential (or Weibull) one with hazard φ."""
    network = FrozenNetwork((level,))
    normaliser = Level(float(torch.sigmoid(double(level))))
    return problem_of(rows, network, normaliser=normaliser, **options)  # type: ignore[arg-type]


def setting(
    problem: PaperProblem, theta: Tensor, phi: float = 1.0, spread: str = "mode"
) -> tuple[Linearised, PrimalSolver, cavi.CaviState]:
    """Return what a sweep takes: linearised points, solver, first state."""
    linearised = linearise(problem, theta)
    solver = PrimalSolver(linearised.rows, problem.weight_prior.precision)
    return linearised, solver, cavi.start(problem, linearised, theta, phi, spread)


def fitted(
    problem: PaperProblem, theta: Tensor, phi: float = 1.0, spread: str = "mode", **options: object
) -> tuple[Linearised, cavi.CaviState, cavi.CaviInfo]:
    """Sweep from (theta, phi); return the linearised points, the last state and the info."""
    linearised, solver, state = setting(problem, theta, phi, spread)
    return linearised, *cavi.sweep_until_converged(problem, linearised, solver, state, **options)  # type: ignore[arg-type]
