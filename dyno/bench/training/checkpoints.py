"""Save model files in one job and load them in another job, on any framework."""

import math
import shutil
import tempfile
import zipfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal

from dyno.errors import RunFailed

WEIGHTS = "model.weights.h5"
MODEL = "model.keras"
SAVED_MODEL = "model.saved_model.zip"
Export = Literal["saved_model"]
Shape = tuple[int, ...]
_LISTED = 3  # maximum number of differences in an error message


def save_model(model: Any, folder: Path | None, export: Export | None = None) -> None:
    """Write `model.weights.h5`, `model.keras` and the `export` to `folder`, unless it is None.

    The `.keras` file also holds the layers and the optimiser's state. A zipped SavedModel supports inference only.
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
    """Load weights from `path`. Raises RunFailed (benchmark, weights_mismatch) if they don't fit this model.

    Keras itself would accept a file with more layers than the model has.
    """
    try:
        model.load_weights(path)
        is_complete = sum(map(math.prod, _shapes(path).values())) == model.count_params()
    except Exception as error:  # Keras and h5py raise ValueError, KeyError, OSError and more for invalid files
        raise _mismatch(model, path, error) from error
    if not is_complete:
        raise _mismatch(model, path)


def _mismatch(model: Any, path: Path, error: Exception | None = None) -> RunFailed:
    """An error that lists the differing layers or, for an unreadable file, quotes Keras' own error."""
    try:
        differing = _differing(_shapes(path), _own_shapes(model))
    except (OSError, KeyError, zipfile.BadZipFile):
        differing = []
    more = f"; and {len(differing) - _LISTED} more" if len(differing) > _LISTED else ""
    why = "; ".join(differing[:_LISTED]) + more if differing else f"{type(error).__name__}: {error}"
    return RunFailed("benchmark", "weights_mismatch", f"{path.name} doesn't fit {model.name}: {why}")


def _differing(file_shapes: Mapping[str, Shape], own_shapes: Mapping[str, Shape]) -> list[str]:
    differences = [f"it has no layer {layer}" for layer in _layers(own_shapes) if layer not in _layers(file_shapes)]
    for array, shape in file_shapes.items():
        layer = _layer(array)
        if layer not in _layers(own_shapes):
            differences.append(f"its layer {layer}, {shape}, isn't in the model")
        elif (expected := own_shapes.get(array)) != shape:
            differences.append(f"its layer {layer} has {shape} where the model has {expected or 'nothing'}")
    return differences


def _layers(arrays: Mapping[str, Shape]) -> list[str]:
    return list(dict.fromkeys(map(_layer, arrays)))


def _layer(array: str) -> str:
    """The layer of an array in a file: "lstm/cell" for "layers/lstm/cell/vars/0"."""
    return array.rpartition("/vars/")[0].replace("layers/", "")


def _own_shapes(model: Any) -> dict[str, Shape]:
    """The shapes in a weights file of this model."""
    with tempfile.TemporaryDirectory(prefix="dyno-weights-") as folder:
        path = Path(folder) / WEIGHTS
        model.save_weights(path)
        return _shapes(path)


def _shapes(path: Path) -> dict[str, Shape]:
    """The shapes of all layer arrays by their path in the file, without reading the values."""
    import h5py  # type: ignore[import-untyped] # installed with Keras

    shapes: dict[str, Shape] = {}

    def note(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset) and name.startswith("layers/"):
            shapes[name] = tuple(item.shape)

    with ExitStack() as opened:
        file: Any = path
        if path.suffix == Path(MODEL).suffix:
            file = opened.enter_context(opened.enter_context(zipfile.ZipFile(path)).open(WEIGHTS))
        opened.enter_context(h5py.File(file)).visititems(note)
    return shapes
