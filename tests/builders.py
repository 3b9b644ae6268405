"""The body of the smallest job."""

MEASURE = {"processes": 1, "min_samples": 1, "min_s": 0, "max_s": 0.02}
TINY = {"workload": "matmul", "params": {"n": 64, "repeats": 1}, "device": "cpu", "measure": MEASURE}
