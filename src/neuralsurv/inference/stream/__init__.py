"""Rows that do not fit into memory: minibatch learning, sums over rows and processes."""
