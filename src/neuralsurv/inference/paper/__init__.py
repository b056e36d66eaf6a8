"""The method of the paper: mode, linearisation, coordinate ascent."""
