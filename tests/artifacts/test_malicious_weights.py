"""Weights from a malicious archive: Keras reads numbers from it and runs none of its code."""

from pathlib import Path

import numpy as np
import pytest

from dyno.bench.training.checkpoints import load_weights
from dyno.errors import RunFailed


def test_the_code_in_a_hostile_archive_does_not_run_when_its_weights_are_loaded(tmp_path, tensorflow):
    keras = tensorflow.keras

    ran, path = str(tmp_path / "ran"), tmp_path / "model.keras"
    dense = keras.layers.Dense(2)
    hostile = keras.layers.Lambda(lambda x: (open(ran, "w").close(), x)[1])  # noqa: PTH123 - a builtin
    keras.Sequential([keras.Input((3,)), dense, hostile]).save(path)
    Path(ran).unlink()
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2), keras.layers.ReLU()])
    load_weights(model, path)
    np.testing.assert_array_equal(model.get_weights()[0], dense.get_weights()[0])
    assert not Path(ran).exists()
    keras.saving.load_model(path, safe_mode=False)
    assert Path(ran).exists()  # without the protection the code runs


def test_weights_that_lie_in_another_file_are_not_read(tmp_path, tensorflow):
    import h5py

    keras = tensorflow.keras
    secret = tmp_path / "secret"
    secret.write_bytes(np.arange(6, dtype="float32").tobytes())
    path = tmp_path / "model.weights.h5"
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2, use_bias=False)])
    model.save_weights(path)
    before = model.get_weights()[0]
    with h5py.File(path, "r+") as file:
        at = "layers/dense/vars/0" if "layers/dense" in file else next(iter(_variables(file)))
        del file[at]
        file.create_dataset(at, shape=(3, 2), dtype="float32", external=[(str(secret), 0, 24)])
    with pytest.raises(RunFailed, match="external"):
        load_weights(model, path)
    np.testing.assert_array_equal(model.get_weights()[0], before)


def _variables(file):
    found = []
    file.visit(lambda name: found.append(name) if name.endswith("vars/0") else None)
    return found
