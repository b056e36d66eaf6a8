"""Model files and checkpoints: data, never code; written whole or not at all."""
