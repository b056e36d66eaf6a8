"""A page to explore a model: choose a person, see the curves with their bands, compare."""
