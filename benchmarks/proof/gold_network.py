"""Draws of the true network, not linearised, by NUTS (NumPyro): the yardstick of the linearisation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from neuralsurv.model.network import MLP
from neuralsurv.model.prior import Gamma

# Gauss-Legendre nodes of a row in the likelihood, and of each panel of a predicted curve.
ROW_NODES = 24
PANEL_NODES = 6
_DRAWS_AT_ONCE = 250


@dataclass(frozen=True)
class NetworkData:
    """Rows in scaled time, with everything the likelihood needs; all arrays are float64."""

    time: np.ndarray
    event: np.ndarray
    entry: np.ndarray
    x: np.ndarray
    network: MLP
    phi_prior: Gamma
    rho: float


def legendre(low: np.ndarray, high: np.ndarray, rho: float, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return nodes and weights for the integral of t^(rho-1) f(t) over intervals, each of shape (n, count)."""
    position, weight = np.polynomial.legendre.leggauss(count)
    half = (high**rho - low**rho)[:, None] / 2
    u = (low**rho)[:, None] + half * (1 + position)
    return u ** (1 / rho), half * weight / rho


def network_function(network: MLP) -> Callable[[Any, Any], Any]:
    """Return g in JAX: from theta (m,) and inputs (P, 1 + d), time first, to (P,)."""
    import jax
    import jax.numpy as jnp

    activation = {"relu": jax.nn.relu, "tanh": jnp.tanh, "silu": jax.nn.silu}[network.activation]
    widths = (network.covariates + 1, *network.hidden, 1)

    def g(theta: Any, inputs: Any) -> Any:
        start, current = 0, inputs
        for layer, (columns, rows) in enumerate(pairwise(widths)):
            stop = start + rows * columns
            current = current @ theta[start:stop].reshape(rows, columns).T + theta[stop : stop + rows]
            current = activation(current) if layer < len(network.hidden) else current
            start = stop + rows
        return current[:, 0]

    return g


def sample_network(data: NetworkData, *, chains: int, draws: int, warmup: int, thin: int, seed: int) -> dict[str, Any]:
    """Run NUTS; return theta (chains, draws, m), phi (chains, draws), and the number of divergences.

    The posterior of the weights has many modes that are the same function (units change places or signs), so chains
    are to be compared by what they predict, never by single weights.
    """
    import jax
    import jax.numpy as jnp
    import numpyro
    from numpyro import distributions
    from numpyro.infer import MCMC, NUTS

    numpyro.enable_x64()
    g = network_function(data.network)
    node_time, node_weight = legendre(data.entry, data.time, data.rho, ROW_NODES)
    node_x = np.repeat(data.x, ROW_NODES, axis=0)
    nodes = jnp.asarray(np.column_stack([node_time.reshape(-1), node_x]))
    # Z is 1/2: the prior of an MLP with a linear last layer is symmetric about 0.
    mass = jnp.asarray(2 * node_weight.reshape(-1))
    events = jnp.asarray(np.column_stack([data.time, data.x])[data.event])
    count = int(data.event.sum())

    def model() -> None:
        theta = numpyro.sample("theta", distributions.Normal(0, 1).expand([data.network.size]).to_event(1))
        phi = numpyro.sample("phi", distributions.Gamma(data.phi_prior.shape, data.phi_prior.rate))
        exposure = phi * jnp.sum(mass * jax.nn.sigmoid(g(theta, nodes)))
        numpyro.factor("rows", count * jnp.log(phi) + jnp.sum(jax.nn.log_sigmoid(g(theta, events))) - exposure)

    kernel = NUTS(model, target_accept_prob=0.85, max_tree_depth=7)
    mcmc = MCMC(
        kernel,
        num_warmup=warmup,
        num_samples=draws * thin,
        thinning=thin,
        num_chains=chains,
        chain_method="sequential",
        progress_bar=False,
    )
    mcmc.run(jax.random.PRNGKey(seed), extra_fields=("diverging",))
    found = mcmc.get_samples(group_by_chain=True)
    diverging = int(np.asarray(mcmc.get_extra_fields()["diverging"]).sum())
    return {"theta": np.asarray(found["theta"]), "phi": np.asarray(found["phi"]), "divergences": diverging}


def network_survival(data: NetworkData, theta: np.ndarray, phi: np.ndarray, x: np.ndarray, times: np.ndarray) -> Any:
    """Return S of draws (S, m), (S,) for people x (n, d) at increasing scaled times (T,), shape (S, n, T)."""
    import jax
    import jax.numpy as jnp

    g = network_function(data.network)
    edges = np.concatenate([[0.0], times])
    node_time, node_weight = legendre(edges[:-1], edges[1:], data.rho, PANEL_NODES)
    people, panels = len(x), len(times)
    inputs = jnp.asarray(
        np.column_stack([np.tile(node_time.reshape(-1), people), np.repeat(x, panels * PANEL_NODES, axis=0)])
    )
    mass = jnp.asarray(2 * node_weight)

    @jax.jit
    def curves(weights: Any, scale: Any) -> Any:
        share = jax.vmap(lambda one: jax.nn.sigmoid(g(one, inputs)))(weights)
        pieces = (share.reshape(-1, people, panels, PANEL_NODES) * mass).sum(3)
        return jnp.exp(-scale[:, None, None] * jnp.cumsum(pieces, axis=2))

    parts = [
        np.asarray(curves(theta[first : first + _DRAWS_AT_ONCE], phi[first : first + _DRAWS_AT_ONCE]))
        for first in range(0, len(phi), _DRAWS_AT_ONCE)
    ]
    return np.concatenate(parts)
