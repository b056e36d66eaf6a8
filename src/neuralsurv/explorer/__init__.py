"""A page to explore a model with: choose a person, see the curves with their bands, compare."""
