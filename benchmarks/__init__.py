"""Benchmarks of Dyno's own speed and of its method. Each benchmark writes a page in docs/results/."""
