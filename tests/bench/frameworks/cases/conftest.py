"""Cases that every framework must pass. These run on TensorFlow; `make verify` runs them on the others.

A process can hold only one Keras backend, so the others come in processes of their own (test_interface.py), named by
the environment.
"""

import os

import pytest

from dyno.bench.frameworks import framework as framework_named
from dyno.bench.frameworks.interface import Framework

CLASSES = 3


@pytest.fixture(scope="session")
def replicas():
    return int(os.environ.get("CASES_REPLICAS", "1"))


@pytest.fixture(scope="session")
def framework(replicas, request, tmp_path_factory):
    name = os.environ.get("CASES_FRAMEWORK")
    if name is None:
        shared: Framework = request.getfixturevalue("tensorflow")
        return shared
    one = framework_named(name)
    one.load()
    if name == "jax":
        _compile_once(tmp_path_factory.mktemp("compiled"))
    one.start("cpu", len(os.sched_getaffinity(0)), replicas)
    return one


def _compile_once(folder):
    """Reuses what earlier cases compiled, which saves 0.6 s for each of these small steps."""
    import jax

    jax.config.update("jax_enable_compilation_cache", True)
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


@pytest.fixture
def model_of(framework):
    """A classifier of four numbers into three classes, always with the same first weights."""

    def made(rate, dropout=0.0, shape=(4,)):
        framework.seed(7)
        keras = framework.keras
        with framework.scope():
            layers = [keras.layers.Dropout(dropout), keras.layers.Dense(CLASSES, activation="softmax")]
            model = keras.Sequential([keras.Input(shape), *layers])
            model.compile(keras.optimizers.SGD(rate), "categorical_crossentropy", metrics=["accuracy"])
        return model

    return made
