import json
import math
from pathlib import Path

import pytest
import torch

from inference.problems import FrozenNetwork, Level, Tilted, double, problem_of, simulated
from neuralsurv.data.cohort import Cohort
from neuralsurv.inference.paper.problem import build_problem
from neuralsurv.inference.paper.settings import PaperSettings
from neuralsurv.model.prior import Gamma
from neuralsurv.model.quadrature import GaussLegendre
from neuralsurv.posterior.gaussian import Draws, Posterior
from neuralsurv.solvers.primal import PrimalGaussian

FIXTURES = Path(__file__).parents[1] / "fixtures"
THREE_ROWS = Cohort(
    time=double([0.5, 1.0, 0.8]),
    event=torch.tensor([True, False, True]),
    entry=double([0.0, 0.3, 0.2]),
    weight=double([1.0, 2.0, 3.0]),
    x=double([[1.0], [-1.0], [0.5]]),
)


def test_events_come_with_their_weights_and_covariates():
    problem = problem_of(THREE_ROWS, hidden=())
    assert problem.event_weight.tolist() == [1.0, 3.0]
    assert problem.event_count == 4.0
    assert problem.point_x[:2].tolist() == [[1.0], [0.5]]
    assert problem.point_x[2:].tolist() == [[value] for value in (1.0, -1.0, 0.5) for _ in range(8)]


@pytest.mark.parametrize("rho", [0.6, 1.0, 1.5])
def test_event_constant_by_hand(rho):
    problem = problem_of(THREE_ROWS, hidden=(), rho=rho, normaliser=Tilted())

    def z(time, x):
        return 1 / (1 + math.exp(-(0.4 - time + 0.3 * x)))

    by_hand = (rho - 1) * math.log(0.5) - math.log(z(0.5, 1.0))
    by_hand += 3 * ((rho - 1) * math.log(0.8) - math.log(z(0.8, 0.5)))
    assert problem.event_constant == pytest.approx(by_hand, rel=1e-14)


@pytest.mark.parametrize("rho", [0.6, 1.0, 1.5])
def test_rate_of_phi_is_the_exact_baseline_exposure(rho):
    exposure = sum(w * (y**rho - e**rho) / rho for w, y, e in [(1, 0.5, 0), (2, 1, 0.3), (3, 0.8, 0.2)])
    problem = problem_of(THREE_ROWS, hidden=(), rho=rho, normaliser=Level(0.25), phi_prior=(1.0, 0.7))
    assert problem.phi_rate == pytest.approx(0.7 + exposure / 0.25, rel=1e-14)


def test_baseline_divides_by_the_normaliser_at_each_node():
    plain = problem_of(THREE_ROWS, hidden=(), normaliser=Level(1.0))
    tilted = problem_of(THREE_ROWS, hidden=(), normaliser=Tilted())
    events = plain.points.events
    z = Tilted()(plain.points.time, plain.point_x)[events:]
    assert torch.allclose(tilted.baseline, plain.baseline / z, rtol=1e-15)


PUBLISHED = {"colon": (78.789, 79.169), "metabric": (70.176, 70.524), "gbsg": (85.462, 85.804)}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_rates_come_from_the_cut_trapezoid(name):
    # The published posterior rates are those of the trapezoid, to all their decimals; exact exposure gives others.
    rows = json.loads((FIXTURES / "paper_fold0_times.json").read_text(encoding="utf-8"))[name]
    time = double(rows["time"])
    event = torch.tensor(rows["event"]).bool()
    assert len(time) == 80

    def rate(quadrature, points):
        settings = PaperSettings(hidden=(), quadrature=quadrature, quadrature_points=points)
        cohort = Cohort.of(time, event, torch.zeros(80), torch.ones(80), torch.zeros(80, 1))
        return build_problem(cohort, settings, 0).phi_rate

    published, exact = PUBLISHED[name]
    assert round(rate("trapezoid", 200), 3) == published
    assert round(rate("gauss-legendre", 32), 3) == exact


# g of a network with steps, so that hazard, likelihood and survival can be written down by hand.
BREAK, LEVELS, PHI = 0.4, (-1.2, 0.7), 1.9


def stepped_exposure(start, stop, rho):
    """∫ t^(ρ−1) σ(g(t)) dt over (start, stop], by hand."""
    before, after = (1 / (1 + math.exp(-level)) for level in LEVELS)
    early = max(0.0, min(stop, BREAK) ** rho - min(start, BREAK) ** rho)
    late = max(0.0, max(stop, BREAK) ** rho - max(start, BREAK) ** rho)
    return (before * early + after * late) / rho


@pytest.mark.parametrize("rho", [0.6, 1.0, 1.5])
def test_likelihood_of_a_stepped_hazard_by_hand(rho):
    # A rule is exact on each side of the step, so rows that span it are cut there.
    cut = Cohort(
        time=double([0.4, 0.9, 0.3, 0.4, 1.0]),
        event=torch.tensor([False, True, True, False, False]),
        entry=double([0.0, 0.4, 0.1, 0.2, 0.4]),
        weight=double([2.0, 2.0, 1.0, 0.5, 0.5]),
        x=torch.zeros(5, 0, dtype=torch.float64),
    )
    problem = problem_of(cut, FrozenNetwork(LEVELS, (BREAK,)), rho=rho, normaliser=Level(0.3), rule=GaussLegendre(4))
    events = problem.points.events
    g = problem.network.value(torch.zeros(1), problem.points.time, problem.point_x)
    likelihood = (
        problem.event_count * math.log(PHI)
        + problem.event_constant
        + float((problem.event_weight * torch.log(torch.sigmoid(g[:events]))).sum())
        - PHI * float((problem.baseline * torch.sigmoid(g[events:])).sum())
    )

    def log_hazard(time, level):
        return math.log(PHI * time ** (rho - 1) / (1 + math.exp(-level)) / 0.3)

    by_hand = 2 * (log_hazard(0.9, LEVELS[1]) - PHI * stepped_exposure(0, 0.9, rho) / 0.3)
    by_hand += log_hazard(0.3, LEVELS[0]) - PHI * stepped_exposure(0.1, 0.3, rho) / 0.3
    by_hand += 0.5 * -PHI * stepped_exposure(0.2, 1.0, rho) / 0.3
    assert likelihood == pytest.approx(by_hand, rel=1e-13)


@pytest.mark.parametrize("rho", [0.6, 1.0, 1.5])
def test_survival_of_a_stepped_hazard_by_hand(rho):
    certain = PrimalGaussian(torch.zeros(1, dtype=torch.float64), torch.full((1, 1), 1e6, dtype=torch.float64))
    network = FrozenNetwork(LEVELS, (BREAK,))
    posterior = Posterior(Gamma(1.0, 1.0), certain, torch.zeros(1, dtype=torch.float64), network, Level(0.3), rho)
    draws = Draws(torch.zeros(2, 1, dtype=torch.float64), double([PHI, 2 * PHI]))
    times = [0.0, 0.1, BREAK, 0.55, 1.0, 1.3]
    found = posterior.cumulative_hazard_draws(draws, double(times), torch.zeros(3, 0, dtype=torch.float64))
    by_hand = double([PHI * stepped_exposure(0, time, rho) / 0.3 for time in times])
    assert found.shape == (2, 3, 6)
    for person in range(3):
        assert torch.allclose(torch.exp(-found[0, person]), torch.exp(-by_hand), rtol=1e-13, atol=0)
        assert torch.allclose(found[1, person], 2 * by_hand, rtol=1e-13, atol=0)


def test_rows_of_the_simulation_are_as_asked():
    rows = simulated(40, censoring=0.95, entry=True, weight=True)
    assert int(rows.event.sum()) == 2
    assert float(rows.time.max()) == 1.0
    assert bool((rows.entry < rows.time).all())
