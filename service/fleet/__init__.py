"""The fleet: devices, workers, cordons."""
