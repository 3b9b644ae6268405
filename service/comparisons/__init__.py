"""Comparisons: ratios of results, with intervals."""
