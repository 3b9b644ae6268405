"""For tests that start processes in which XLA compiles a training, to see what comes of it and not how fast it is."""

from __future__ import annotations

# LLVM takes half of the time of a small training on JAX; XLA's own passes stay as they are.
QUICK_XLA = {"XLA_FLAGS": "--xla_backend_optimization_level=0"}
