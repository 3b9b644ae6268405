"""Advice: which device for a spec."""
