"""From a posterior and rows to quantities with bands."""
