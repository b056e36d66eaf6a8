"""A report on a model and a cohort: one HTML file that needs no network and no JavaScript to be read."""
