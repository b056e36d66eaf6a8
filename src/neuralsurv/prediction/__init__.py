"""Predictions with credible bands from a posterior and rows of covariates."""
