"""Data sets: one module each, which reads the real files, the sample that ships or synthetic data."""
