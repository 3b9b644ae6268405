"""The smallest job over HTTP, and a submit that must be accepted."""

MEASURE = {"processes": 1, "min_samples": 1, "min_s": 0, "max_s": 0.02}
TINY = {"workload": "matmul", "params": {"n": 64, "repeats": 1}, "device": "cpu", "measure": MEASURE}


def submit(http, body=TINY, **changes):
    """The job's id. `changes`: fields of the body that replace its own."""
    answer = http.post("/v1/jobs", json=body | changes)
    assert answer.status_code == 202, answer.text
    return str(answer.json()["id"])
