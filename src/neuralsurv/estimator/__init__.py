"""The scikit-learn face: the estimators, what they share, summary, diagnostics, plots."""
