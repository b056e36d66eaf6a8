"""Cross-validation for ``neuralsurv evaluate``: folds, scores, and the models to compare with."""
