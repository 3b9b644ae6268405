"""Advice: the best devices for a spec."""
