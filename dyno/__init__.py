"""Dyno: a dynamometer for CPUs, GPUs and TPUs."""
