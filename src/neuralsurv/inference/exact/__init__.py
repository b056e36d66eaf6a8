"""Exact draws of the linearised model: a Gibbs sampler, and what its chains say."""
