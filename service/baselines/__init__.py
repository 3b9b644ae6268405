"""Baselines: figures that jobs are held against."""
