"""Gaussian linear algebra behind one small interface. Nothing here knows of survival."""
