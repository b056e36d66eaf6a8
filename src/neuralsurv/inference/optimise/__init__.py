"""Descent and extrapolation; nothing here knows of survival."""
