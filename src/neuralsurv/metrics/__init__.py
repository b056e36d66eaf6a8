"""Measures of how good predicted survival curves are."""
