"""Keras on a backend other than TensorFlow."""

from __future__ import annotations

import os
import sys
from typing import Any

from dyno.errors import FrameworkMissing


def keras_on(backend: str) -> Any:
    """The keras module on `backend`, whose package is the one of that name; call it before keras' first import.

    Raises FrameworkMissing.
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
