"""Timing and the statistics of paired comparisons."""
