"""Tables on disk: read, checked for common mistakes, and turned into covariates and an outcome."""
