"""Predictions of a model over HTTP, for batches of people."""
