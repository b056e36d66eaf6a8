"""Draws of the true network, not linearised, by NUTS (NumPyro): the yardstick of the linearisation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from neuralsurv.model.additive import Additive
from neuralsurv.model.network import MLP
from neuralsurv.model.prior import Gamma

# Gauss-Legendre nodes of a row in the likelihood, and of each panel of a predicted curve.
ROW_NODES = 24
PANEL_NODES = 12
_DRAWS_AT_ONCE = 250


@dataclass(frozen=True)
class NetworkData:
    """Rows in scaled time, with everything the likelihood needs; all arrays are float64.

    Attributes
    ----------
    time, event, entry, x : ndarray
        The rows.
    network : MLP or Additive
        g.
    precision : ndarray of shape (m,)
        Diagonal of the prior precision.
    phi_prior : Gamma or float
        Prior of phi, or the value at which it is held.
    z : float
        The normaliser, the same everywhere.
    rho : float
        Exponent of the baseline hazard.
    """

    time: np.ndarray
    event: np.ndarray
    entry: np.ndarray
    x: np.ndarray
    network: MLP | Additive
    precision: np.ndarray
    phi_prior: Gamma | float
    z: float
    rho: float

    def nodes(self, low: np.ndarray, high: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Return nodes and weights, divided by Z, for integrals of the hazard over intervals, each (n, count)."""
        if isinstance(self.network, Additive):
            time, weight = shifted_log(low, high, self.network.basis.shift, count)
        else:
            time, weight = legendre(low, high, self.rho, count)
        return time, weight / self.z


def legendre(low: np.ndarray, high: np.ndarray, rho: float, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return nodes and weights for the integral of t^(rho-1) f(t) over intervals, each of shape (n, count)."""
    position, weight = np.polynomial.legendre.leggauss(count)
    half = (high**rho - low**rho)[:, None] / 2
    u = (low**rho)[:, None] + half * (1 + position)
    return u ** (1 / rho), half * weight / rho


def shifted_log(low: np.ndarray, high: np.ndarray, shift: float, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return nodes and weights for the integral of f(t), dense where time is short, each of shape (n, count)."""
    log_time, weight = legendre(np.log(low + shift), np.log(high + shift), 1.0, count)
    return np.exp(log_time) - shift, weight * np.exp(log_time)


def layers_function(network: MLP) -> Callable[[Any, Any], Any]:
    """Return an MLP in JAX: from theta (m,) and inputs (P, 1 + d), time first, to (P,)."""
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


def network_function(network: MLP | Additive) -> Callable[[Any, Any], Any]:
    """Return g in JAX: from theta (m,) and inputs (P, 1 + d), time first, to (P,)."""
    import jax.numpy as jnp

    if isinstance(network, MLP):
        return layers_function(network)
    basis, inner, origin = network.basis, network.inner, np.asarray(network.origin)
    if inner is None or not (network.linear and network.varying and network.pairs):
        raise SystemExit("the twin is written for a network with a linear path, changing effects and products.")
    f, first = layers_function(inner), network.linear_size
    one, other = np.triu_indices(network.covariates, 1)

    def g(theta: Any, inputs: Any) -> Any:
        time, x = inputs[:, 0], inputs[:, 1:]
        clock = (jnp.log(time + basis.shift) - basis.center) / basis.spread
        bumps = jnp.exp(-0.5 * ((clock[:, None] - jnp.asarray(basis.bumps)) / basis.width) ** 2)
        products, bias = x[:, one] * x[:, other], jnp.ones((len(x), 1))
        columns = jnp.concatenate([x, clock[:, None], bumps, x * clock[:, None], products, bias], axis=1)
        seen = jnp.concatenate([clock[:, None], x], axis=1)
        deviation = f(origin + theta[first:], seen) - f(origin, seen)
        return network.offset + columns @ theta[:first] + deviation

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
    node_time, node_weight = data.nodes(data.entry, data.time, ROW_NODES)
    node_x = np.repeat(data.x, ROW_NODES, axis=0)
    nodes = jnp.asarray(np.column_stack([node_time.reshape(-1), node_x]))
    mass = jnp.asarray(node_weight.reshape(-1))
    deviation = jnp.asarray(1 / np.sqrt(data.precision))
    events = jnp.asarray(np.column_stack([data.time, data.x])[data.event])
    count = int(data.event.sum())

    def model() -> None:
        # Whitened, so that weights of different scales are steps of one size.
        white = numpyro.sample("white", distributions.Normal(0, 1).expand([data.network.size]).to_event(1))
        theta = deviation * white
        if isinstance(data.phi_prior, Gamma):
            phi = numpyro.sample("phi", distributions.Gamma(data.phi_prior.shape, data.phi_prior.rate))
        else:
            phi = data.phi_prior
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
    theta = np.asarray(found["white"]) * np.asarray(deviation)
    phi = np.asarray(found["phi"]) if "phi" in found else np.full(theta.shape[:2], data.phi_prior)
    return {"theta": theta, "phi": phi, "divergences": diverging}


def network_survival(data: NetworkData, theta: np.ndarray, phi: np.ndarray, x: np.ndarray, times: np.ndarray) -> Any:
    """Return S of draws (S, m), (S,) for people x (n, d) at increasing scaled times (T,), shape (S, n, T)."""
    import jax
    import jax.numpy as jnp

    g = network_function(data.network)
    edges = np.concatenate([[0.0], times])
    node_time, node_weight = data.nodes(edges[:-1], edges[1:], PANEL_NODES)
    people, panels = len(x), len(times)
    inputs = jnp.asarray(
        np.column_stack([np.tile(node_time.reshape(-1), people), np.repeat(x, panels * PANEL_NODES, axis=0)])
    )
    mass = jnp.asarray(node_weight)

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
