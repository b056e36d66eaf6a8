"""Posteriors: moments and joint draws, behind one interface."""
