"""Cohorts, methods, scores and the runner of the benchmarks; see `benchmarks/README.md`."""
