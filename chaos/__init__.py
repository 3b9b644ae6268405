"""A chaos run: a whole Dyno in a house of its own, faults by a seed, and a proof from the event streams afterwards."""
