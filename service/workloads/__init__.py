"""Workloads: the catalogue, and the form of a job."""
