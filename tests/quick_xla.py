"""Settings that make XLA compile faster, for tests that check the outcome of a training and not its speed."""

# LLVM takes half of the time of a small training on JAX. This doesn't change XLA's own passes.
QUICK_XLA = {"XLA_FLAGS": "--xla_backend_optimization_level=0"}
