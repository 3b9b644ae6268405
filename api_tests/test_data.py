"""Missing or incomplete data is a clear error, and the device takes the next job."""

import pytest

from tests.cores import THERE, two_cores
from tests.numpy_runners import ON_NUMPY

FILES = [
    f"{part}-ubyte.gz" for part in ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
]
REAL = {
    "workload": "mnist_cnn",
    "params": {"data": "real", "epochs": 1, "train_samples": 32, "test_samples": 8, "jit_compile": False},
    "measure": {"processes": 1, "min_samples": 1, "min_s": 0},
    "device": THERE,
}


@pytest.fixture
def data_dir(house, tmp_path):
    """The data folder of a second worker."""
    with house.another_worker(DYNO_DATA_DIR=str(tmp_path), **ON_NUMPY):
        yield tmp_path


@two_cores
def test_missing_or_damaged_data_is_named_and_the_next_job_runs(api, data_dir, tiny):
    missing = api.finished(api.submit(REAL))["failure"]
    assert (missing["class"], missing["reason"]) == ("unsupported", "dataset_missing")
    assert str(data_dir) in missing["message"]
    (data_dir / "mnist").mkdir()
    (data_dir / "mnist" / FILES[0]).write_bytes(b"half a file")
    partial = api.finished(api.submit(REAL))["failure"]
    assert (partial["class"], partial["reason"]) == ("benchmark", "dataset_damaged")
    assert all(name in partial["message"] for name in FILES[1:])
    for name in FILES[1:]:
        (data_dir / "mnist" / name).write_bytes(b"half a file")
    damaged = api.finished(api.submit(REAL))["failure"]
    assert (damaged["class"], damaged["reason"]) == ("benchmark", "dataset_damaged")
    assert "-ubyte.gz" in damaged["message"]
    never_synthetic = api.finished(api.submit(REAL | {"params": REAL["params"] | {"data": "auto"}}))
    assert never_synthetic["failure"]["reason"] == "dataset_damaged"
    assert api.finished(api.submit(tiny | {"device": THERE}))["status"] == "succeeded"
