"""Sampling, statistics, checks and warnings: how a figure is measured and checked."""
