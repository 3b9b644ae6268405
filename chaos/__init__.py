"""Chaos tests: run a whole Dyno on a rig, inject seeded faults, and check the promises from the event streams."""
