"""Baselines: figures that jobs are compared with."""
