"""Data sets. Each module reads the real files, the shipped sample or synthetic data."""
