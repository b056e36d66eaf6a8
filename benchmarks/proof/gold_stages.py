"""The stages of the gold posteriors: a fit with the Gibbs chains of its linearised model, and NUTS of the network."""

from __future__ import annotations

import json
import os
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gold_network import NetworkData, network_survival, sample_network
from gold_problems import HIDDEN, GoldProblem

from neuralsurv import NeuralSurv, PaperNeuralSurv
from neuralsurv.data.cohort import Cohort
from neuralsurv.errors import NeuralSurvWarning
from neuralsurv.inference.exact.chains import TAIL
from neuralsurv.inference.exact.sampler import LinearModel, sample
from neuralsurv.model.additive import Additive
from neuralsurv.model.network import MLP
from neuralsurv.model.prior import Gamma, WeightPrior
from neuralsurv.posterior.gaussian import Draws, Posterior
from neuralsurv.posterior.samples import sampled_posterior
from neuralsurv.solvers.subspace import SubspaceGaussian

Estimator = NeuralSurv | PaperNeuralSurv
SEED = 20
HIGHEST_R_HAT = 1.01
# S is stored in steps of 1/65535, a hundred times finer than the Monte Carlo error of 10,000 draws.
_STEPS = 65535
# Fewer draws than this are a trial of the command.
_GOLD = 1000


@dataclass(frozen=True)
class Chains:
    """How long the chains are: `draws` of all of them together are kept.

    Gibbs chains run side by side, and where a sweep has few points many short ones cost little more than a few; NUTS
    has to tune each of its own.
    """

    draws: int
    preset: str = "paper"
    nuts: int = 4

    @property
    def gibbs(self) -> int:
        """Gibbs chains; the default model's headroom gives each of them thousands of points a sweep."""
        return 8 if self.preset == "paper" else 4

    @property
    def thinning(self) -> tuple[int, ...]:
        """Steps for each draw that is kept: longer chains are tried until R-hat is low enough, but not in a trial."""
        return (2, 5, 20) if self.draws >= _GOLD else (1,)

    @property
    def warmup(self) -> int:
        """Steps thrown away first."""
        return min(1000, self.draws)


def fitted(problem: GoldProblem, preset: str) -> Estimator:
    """Fit the estimator, the default model at its best scales; its warnings are part of what is compared, not news."""
    model: Estimator = NeuralSurv(hidden=HIDDEN, average=False, random_state=SEED, verbose=False)
    if preset == "paper":
        model = PaperNeuralSurv(hidden=HIDDEN, random_state=SEED, verbose=False, **problem.options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NeuralSurvWarning)
        return model.fit(problem.x, (problem.entry, problem.time, problem.event))


def scaled_rows(model: Estimator, problem: GoldProblem) -> dict[str, np.ndarray]:
    """Return the rows as the model sees them: scaled times, encoded covariates."""
    return {
        "time": problem.time / model.time_scale_,
        "event": problem.event,
        "entry": problem.entry / model.time_scale_,
        "x": np.ascontiguousarray(model.encoding_.transform(problem.x)),
    }


def prior_precision(model: Estimator) -> torch.Tensor:
    """Return the prior precision of the weights; with the default model, that of its best scales."""
    theta = model.posterior_.theta
    if isinstance(model, PaperNeuralSurv):
        return WeightPrior.isotropic(model.posterior_.network.size).precision
    assert isinstance(theta, SubspaceGaussian)
    return theta.precision


def phi_prior(model: Estimator) -> Gamma | float:
    """Return the prior of phi, or the value at which it is held."""
    prior = model.phi_prior_
    return prior if isinstance(prior, Gamma) else prior.mean


def linear_model(model: Estimator, problem: GoldProblem) -> LinearModel:
    """Return the linearised model that a fitted estimator approximates, for the exact sampler."""
    posterior, rows = model.posterior_, scaled_rows(model, problem)
    return LinearModel.from_network(
        Cohort.of(rows["time"], rows["event"], rows["entry"], np.ones(len(problem.time)), rows["x"]),
        network=posterior.network,
        theta_star=posterior.theta_star,
        weight_prior=WeightPrior(prior_precision(model)),
        phi_prior=model.phi_prior_,
        normaliser=posterior.normaliser,
        rho=posterior.rho,
    )


def curves(posterior: Posterior, draws: Draws, model: Estimator, problem: GoldProblem, times: np.ndarray) -> np.ndarray:
    """Return S of every draw for the people of a problem at times in the user's unit, shape (S, n, T)."""
    people = torch.from_numpy(np.ascontiguousarray(model.encoding_.transform(problem.people)))
    scaled = torch.from_numpy(times / model.time_scale_)
    parts = [
        torch.exp(-posterior.cumulative_hazard_draws(Draws(theta, phi), scaled, people)).numpy()
        for theta, phi in zip(torch.split(draws.theta, 500), torch.split(draws.phi, 500), strict=True)
    ]
    return np.concatenate(parts)


def compared(name: str, at_times: np.ndarray, along: np.ndarray) -> dict[str, np.ndarray]:
    """Return what is kept of draws of S: all of them at few times (S, n, 3), mean and sd along the curve (S, n, T)."""
    return {
        f"{name}_draws": np.round(at_times * _STEPS).astype(np.uint16),
        f"{name}_mean": along.mean(0).astype(np.float32),
        f"{name}_sd": along.std(0).astype(np.float32),
    }


def draws_of(stored: Mapping[str, Any], name: str) -> np.ndarray:
    """Return stored draws of S, shape (S, n, 3)."""
    return np.asarray(stored[f"{name}_draws"], dtype=np.float64) / _STEPS


def convergence(survival: np.ndarray, phi: np.ndarray) -> dict[str, float]:
    """Return the worst R-hat and effective sample sizes over S (chains, draws, n, 3) and log phi (chains, draws)."""
    from arviz_stats.base import array_stats

    columns = [*np.moveaxis(survival.reshape(*phi.shape, -1), 2, 0)]
    if np.ptp(phi) > 0:
        columns.append(np.log(phi))
    values = np.stack(columns)
    return {
        "r_hat": float(array_stats.rhat(values).max()),
        "ess_bulk": float(array_stats.ess(values, method="bulk").min()),
        "ess_tail": float(array_stats.ess(values, method="tail", prob=TAIL).min()),
    }


def store(file: Path, arrays: dict[str, np.ndarray], facts: dict[str, Any]) -> None:
    """Write one stage next to its place and move it there, so that a file is whole or not there."""
    facts = {"date": datetime.now(UTC).strftime("%Y-%m-%d"), **facts}
    partial = file.with_name(file.name + ".partial")
    with partial.open("wb") as handle:
        np.savez_compressed(handle, facts=np.array(json.dumps(facts)), **arrays)
    os.replace(partial, file)


def facts_of(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts of a stored stage."""
    return dict(json.loads(str(stored["facts"])))


def run_linear(problem: GoldProblem, preset: str, chains: Chains, file: Path) -> str:
    """Fit the model, sample the same linearised model exactly, store both; return a line on how it went."""
    model = fitted(problem, preset)
    posterior = model.posterior_
    start = time.perf_counter()
    for thin in chains.thinning:
        result = sample(
            linear_model(model, problem),
            chains=chains.gibbs,
            draws=chains.draws // chains.gibbs,
            warmup=chains.warmup // 2,
            thin=thin,
            seed=SEED,
        )
        theta, phi = result.flat()
        exact = sampled_posterior(
            theta,
            phi,
            theta_star=posterior.theta_star,
            network=posterior.network,
            normaliser=posterior.normaliser,
            rho=posterior.rho,
        )
        joint = Draws(theta, phi)
        at_times = curves(exact, joint, model, problem, problem.times)
        found = convergence(at_times.reshape(*result.phi.shape, *at_times.shape[1:]), result.phi.numpy())
        if found["r_hat"] < HIGHEST_R_HAT:
            break
    variational = posterior.draw(chains.draws, SEED)
    arrays = {
        **compared("exact", at_times, curves(exact, joint, model, problem, problem.curve_times)),
        **compared(
            "variational",
            curves(posterior, variational, model, problem, problem.times),
            curves(posterior, variational, model, problem, problem.curve_times),
        ),
        "exact_phi": phi.numpy().astype(np.float32),
        "variational_phi": variational.phi.numpy().astype(np.float32),
        "theta_star": posterior.theta_star.numpy(),
    }
    facts = {
        "draws": chains.draws,
        "thin": thin,
        "seconds": time.perf_counter() - start,
        "all_r_hat": result.diagnostics.r_hat,
        "collapsed": bool(model.diagnostics_.collapsed),
        "events": int(problem.event.sum()),
        "rows": len(problem.time),
        "weights": posterior.network.size,
        **found,
    }
    store(file, arrays, facts)
    return f"R-hat {found['r_hat']:.4f}, ESS {found['ess_bulk']:.0f}, {facts['seconds']:.0f} s, thin {thin}"


def run_check(problem: GoldProblem, preset: str, chains: Chains, file: Path) -> str:
    """Store k-hat of the variational posterior."""
    start = time.perf_counter()
    model = fitted(problem, preset)
    facts: dict[str, Any] = {"draws": chains.draws, "k_hat": model.diagnostics_.importance["k_hat"]}
    facts["seconds"] = time.perf_counter() - start
    store(file, {}, facts)
    return f"k-hat {facts['k_hat']:.2f}"


def run_network(problem: GoldProblem, preset: str, chains: Chains, file: Path) -> str:
    """Sample the network itself, store the draws; return a line on how it went."""
    model = fitted(problem, preset)
    network = model.posterior_.network
    if not isinstance(network, MLP | Additive):
        raise SystemExit(f"NUTS is not written for a {type(network).__name__}.")
    anywhere = torch.ones(1, dtype=torch.float64)
    data = NetworkData(
        **scaled_rows(model, problem),
        network=network,
        precision=prior_precision(model).numpy(),
        phi_prior=phi_prior(model),
        # One number in both models: 1/2 for a prior that is symmetric about 0, else one over the headroom.
        z=float(model.posterior_.normaliser(anywhere, anywhere[:, None])),
        rho=model.posterior_.rho,
    )
    people = np.ascontiguousarray(model.encoding_.transform(problem.people))
    start = time.perf_counter()
    for thin in chains.thinning:
        drawn = sample_network(
            data,
            chains=chains.nuts,
            draws=chains.draws // chains.nuts,
            warmup=chains.warmup,
            thin=max(1, thin // 2),
            seed=SEED,
        )
        theta, phi = drawn["theta"].reshape(-1, network.size), drawn["phi"].reshape(-1)
        at_times = network_survival(data, theta, phi, people, problem.times / model.time_scale_)
        found = convergence(at_times.reshape(*drawn["phi"].shape, *at_times.shape[1:]), drawn["phi"])
        if found["r_hat"] < HIGHEST_R_HAT:
            break
    along = network_survival(data, theta, phi, people, problem.curve_times / model.time_scale_)
    facts = {
        "draws": chains.draws,
        "thin": max(1, thin // 2),
        "divergences": drawn["divergences"],
        "seconds": time.perf_counter() - start,
        **found,
    }
    store(file, {**compared("network", at_times, along), "network_phi": phi.astype(np.float32)}, facts)
    return (
        f"R-hat {found['r_hat']:.4f}, ESS {found['ess_bulk']:.0f}, {facts['seconds']:.0f} s, "
        f"{drawn['divergences']} divergences"
    )
