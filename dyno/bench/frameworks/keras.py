"""Shared code for Keras on every framework: the common base class, and loading Keras with a backend."""

import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dyno.bench.frameworks.interface import ServedModel
from dyno.errors import FrameworkMissing


class KerasFramework:
    """The parts of a `Framework` that all frameworks share, or all except one. `name` is also the package name."""

    name: str

    def __init__(self) -> None:
        self._keras: Any = None

    def scope(self) -> AbstractContextManager[object]:
        """An empty context: `start` sets the replicas for the whole process."""
        return nullcontext()

    def versions(self) -> dict[str, str]:
        return {self.name: str(sys.modules[self.name].__version__), "keras": str(self._keras.__version__)}

    @property
    def keras(self) -> Any:
        return self._keras

    def seed(self, seed: int) -> None:
        self._keras.utils.set_random_seed(seed)

    def served(self, model: Any, cores: int, int8_examples: NDArray[np.float32] | None = None) -> ServedModel | None:
        """None: JAX has no int8 format for the host, and PyTorch's format can't execute Keras' layers."""
        return None


def load_keras(backend: str) -> Any:
    """Import Keras with `backend` (also the name of its package), but without importing TensorFlow.

    Call it before keras' first import. Raises FrameworkMissing.
    """
    os.environ["KERAS_BACKEND"] = backend  # Keras reads it once, at its first import
    try:
        import keras
    except ImportError as error:
        raise FrameworkMissing(f"can't import {backend}: {error}") from error
    if keras.backend.backend() != backend:
        raise FrameworkMissing(f"keras is already imported with the backend {keras.backend.backend()}")
    _without_tensorflow(keras)
    return keras


def _without_tensorflow(keras: Any) -> None:
    """Prevent Keras from importing an installed TensorFlow (3 s, 300 MB) in order to seed it.

    Keras looks for TensorFlow once, at its first seeding. This function seeds Keras while TensorFlow is None in
    sys.modules, which prevents the import.
    """
    if "tensorflow" in sys.modules:
        return
    sys.modules["tensorflow"] = None  # type: ignore[assignment]
    try:
        keras.utils.set_random_seed(0)
    finally:
        del sys.modules["tensorflow"]


@contextmanager
def dtype_policy(keras: Any, name: str) -> Iterator[None]:
    """Set Keras' dtype policy while layers are made."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(name)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)
