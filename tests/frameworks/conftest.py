from __future__ import annotations

import os

import pytest

from dyno.frameworks.tensorflow import TensorFlow


@pytest.fixture(scope="session")
def tensorflow() -> TensorFlow:
    """The real one, started once for the whole process: its threads can't be set twice."""
    framework = TensorFlow()
    framework.load()
    framework.start("cpu", len(os.sched_getaffinity(0)))
    return framework
