"""Sweeps: one spec over a grid of params, devices or precisions."""
