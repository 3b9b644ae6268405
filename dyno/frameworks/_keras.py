"""Keras on a backend other than TensorFlow."""

from __future__ import annotations

import os
import sys
from typing import Any

from dyno.errors import FrameworkMissing


def keras_on(backend: str) -> Any:
    """The keras module on `backend`, whose package is the one of that name; call it before keras' first import.

    TensorFlow is hidden from this process: where it is installed, Keras would import it (2 s, 300 MB) to seed it too.
    Raises FrameworkMissing.
    """
    os.environ["KERAS_BACKEND"] = backend  # read once, at the first import
    try:
        import keras
    except ImportError as error:
        raise FrameworkMissing(f"{backend} can't be imported here: {error}") from error
    if keras.backend.backend() != backend:
        raise FrameworkMissing(f"keras was imported before, on the backend {keras.backend.backend()}")
    sys.modules.setdefault("tensorflow", None)  # type: ignore[arg-type] # documented: its import raises ImportError
    return keras
