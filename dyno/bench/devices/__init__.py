"""Devices of this host: discovery, peaks, sensors, locks and environment."""
