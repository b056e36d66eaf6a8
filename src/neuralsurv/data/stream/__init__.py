"""Rows that come in batches: read, surveyed, encoded, packed."""
