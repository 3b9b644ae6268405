"""Keras on each of the frameworks: their common base class, and how to load Keras on a backend."""

from __future__ import annotations

import os
import sys
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from dyno.errors import FrameworkMissing

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from dyno.frameworks.contract import ServedModel


class KerasFramework:
    """The parts of a `Framework` that are the same on all, or on all but one. Its package is the one of its name."""

    name: str

    def __init__(self) -> None:
        self._keras: Any = None

    def scope(self) -> AbstractContextManager[object]:
        """Nothing to enter: replicas, where there are any, were set for the whole process at the start."""
        return nullcontext()

    def versions(self) -> dict[str, str]:
        return {self.name: str(sys.modules[self.name].__version__), "keras": str(self._keras.__version__)}

    @property
    def keras(self) -> Any:
        return self._keras

    def seed(self, seed: int) -> None:
        self._keras.utils.set_random_seed(seed)

    def served(self, model: Any, cores: int, int8_examples: NDArray[np.float32] | None = None) -> ServedModel | None:
        """None: JAX has no format that a host executes in int8, and PyTorch's doesn't execute Keras' layers."""
        return None


def number_gpus_like_nvml() -> None:
    """A device is named by NVML's number; CUDA's own order is the fastest first. Before CUDA starts."""
    os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")


def load_keras(backend: str) -> Any:
    """The keras module on `backend`, whose package is the one of that name, and not TensorFlow.

    Call it before keras' first import. Raises FrameworkMissing.
    """
    os.environ["KERAS_BACKEND"] = backend  # read once, at the first import
    try:
        import keras
    except ImportError as error:
        raise FrameworkMissing(f"{backend} can't be imported here: {error}") from error
    if keras.backend.backend() != backend:
        raise FrameworkMissing(f"keras was imported before, on the backend {keras.backend.backend()}")
    _without_tensorflow(keras)
    return keras


def _without_tensorflow(keras: Any) -> None:
    """Where TensorFlow is installed too, Keras imports it (3 s, 300 MB) to seed it as well.

    It looks for it once, at its first seeding. So that happens here, with TensorFlow out of sight: a module that is
    None in sys.modules can't be imported.
    """
    if "tensorflow" in sys.modules:
        return
    sys.modules["tensorflow"] = None  # type: ignore[assignment]
    try:
        keras.utils.set_random_seed(0)
    finally:
        del sys.modules["tensorflow"]
