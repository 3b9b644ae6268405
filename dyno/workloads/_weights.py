"""Models that one job leaves behind and another starts from, whatever framework each runs on."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any, Literal

from dyno.errors import RunFailed

WEIGHTS = "model.weights.h5"
MODEL = "model.keras"
SAVED_MODEL = "model.saved_model.zip"
Export = Literal["saved_model"]


def can_export(framework: str, export: Export | None) -> None:
    """Raises RunFailed (unsupported, export_unsupported), before anything is trained in vain."""
    if export is not None and framework != "tensorflow":
        raise RunFailed("unsupported", "export_unsupported", f"a SavedModel is made by TensorFlow, not by {framework}")


def leave_model(model: Any, folder: Path | None, export: Export | None = None) -> None:
    """Leave `model.weights.h5` and `model.keras` in `folder`, and what is to be exported; nothing without artifacts.

    The `.keras` file holds the layers and the optimiser's state too; a SavedModel, zipped, inference alone.
    """
    if folder is None:
        return
    model.save_weights(folder / WEIGHTS)
    model.save(folder / MODEL)
    if export == "saved_model":
        with tempfile.TemporaryDirectory(prefix="dyno-export-") as exported:
            model.export(exported, verbose=False)
            shutil.make_archive(str(folder / SAVED_MODEL.removesuffix(".zip")), "zip", exported)


def load_weights(model: Any, path: Path) -> None:
    """Raises RunFailed (benchmark, weights_mismatch) for weights of another model, or a file that holds none."""
    try:
        model.load_weights(path)
    except Exception as error:  # Keras and h5py raise ValueError, KeyError, OSError and more for a file that is none
        detail = f"{path.name} doesn't fit {model.name}: {type(error).__name__}: {error}"
        raise RunFailed("benchmark", "weights_mismatch", detail) from error
