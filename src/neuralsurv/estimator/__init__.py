"""The scikit-learn interface: the estimators, what they share, summary, diagnostics, plots."""
