"""A chaos run: a whole Dyno on a rig of its own, faults by a seed, and a proof from the event streams afterwards."""
