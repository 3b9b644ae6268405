"""What every framework must do alike, as cases that a process of its own runs on one framework: see test_contract.py.

The framework and the number of replicas come in the environment, because a process can load but one.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from dyno.frameworks import framework as framework_named
from dyno.frameworks.contract import Framework

CLASSES = 3


@pytest.fixture(scope="session")
def replicas() -> int:
    return int(os.environ["CASES_REPLICAS"])


@pytest.fixture(scope="session")
def framework(replicas: int) -> Framework:
    one = framework_named(os.environ["CASES_FRAMEWORK"])
    one.load()
    one.start("cpu", len(os.sched_getaffinity(0)), replicas)
    return one


@pytest.fixture
def model_of(framework: Framework) -> Callable[..., Any]:
    """A classifier of four numbers into three classes, always with the same first weights."""

    def made(rate: float, dropout: float = 0.0, shape: tuple[int, ...] = (4,)) -> Any:
        framework.seed(7)
        keras = framework.keras
        with framework.scope():
            layers = [keras.layers.Dropout(dropout), keras.layers.Dense(CLASSES, activation="softmax")]
            model = keras.Sequential([keras.Input(shape), *layers])
            model.compile(keras.optimizers.SGD(rate), "categorical_crossentropy", metrics=["accuracy"])
        return model

    return made
