"""Dyno's own workloads, one file each."""
