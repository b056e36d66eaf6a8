"""From data and model to a posterior: one package for each method."""
