"""Rows that are read in batches."""
