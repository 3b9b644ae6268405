"""Every training workload's own steps against plain Keras' `model.fit` on the same work, in turns in one process."""
