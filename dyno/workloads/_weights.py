"""Weights that one job leaves behind and another starts from, whatever framework each runs on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dyno.errors import RunFailed

WEIGHTS = "model.weights.h5"


def save_weights(model: Any, folder: Path | None) -> None:
    """Leave `model.weights.h5` in `folder`; nothing where no artifacts are kept."""
    if folder is not None:
        model.save_weights(folder / WEIGHTS)


def load_weights(model: Any, path: Path) -> None:
    """Raises RunFailed (benchmark, weights_mismatch) for weights of another model, or a file that holds none."""
    try:
        model.load_weights(path)
    except Exception as error:  # Keras and h5py raise ValueError, KeyError, OSError and more for a file that is none
        detail = f"{path.name} doesn't fit {model.name}: {type(error).__name__}: {error}"
        raise RunFailed("benchmark", "weights_mismatch", detail) from error
