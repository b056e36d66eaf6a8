"""A table becomes numbers: outcomes, covariates, simulated cohorts."""
