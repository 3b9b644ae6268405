"""Shared code of the training workloads."""
