"""Data and model become a posterior: one algorithm a file."""
