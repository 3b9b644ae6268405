"""CIFAR-10, 32 x 32 colour photographs of ten classes. A. Krizhevsky, 2009; no licence stated, so no sample ships.

Real files are looked for in `<data_dir>/cifar10/`, then in Keras' cache; `cifar10_batches.py` and `cifar10_folders.py`
say in which forms. Not all five training batches need be here, nor all of the test batch: `origin.note` says which are.
What is there but damaged is an error. Without real files `auto` is a synthetic twin.
"""

from __future__ import annotations

from pathlib import Path

from dyno.datasets import cifar10_batches, cifar10_folders, patterns
from dyno.datasets.choice import choose, folders, keras_cache, looked_in
from dyno.datasets.images import Images
from dyno.datasets.kinds import DataKind
from dyno.settings import Settings

CLASS_NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
CLASSES = len(CLASS_NAMES)
SIDE, CHANNELS = 32, 3
TRAIN_SAMPLES = 50_000
TEST_SAMPLES = 10_000
NAME = "cifar10"


def load(settings: Settings, kind: DataKind = "auto") -> Images:
    """Images uint8 (n, 32, 32, 3), red, green, blue, of that kind; `auto` is real, else the synthetic twin.

    Raises DatasetDamaged, naming the file, and RunFailed (unsupported, dataset_missing) where `real` is not here.
    """
    return choose(
        kind,
        real=lambda: _real(settings),
        sample=None,
        synthetic=lambda: patterns.synthetic(NAME, CLASS_NAMES, SIDE, CHANNELS, TRAIN_SAMPLES, TEST_SAMPLES),
        absent=f"no CIFAR-10 here: looked for its batches, its archives and its image folders in "
        f"{looked_in(settings, NAME)}",
    )


def _real(settings: Settings) -> Images | None:
    for folder in (*folders(settings, NAME), *_kerass_own()):
        for form in (cifar10_batches.from_folder, cifar10_folders.from_folder):
            found = form(folder, CLASS_NAMES)
            if found is not None:
                return found
    return None


def _kerass_own() -> list[Path]:
    """Where Keras 3, and Keras before it, unpack the archive; its batches lie in a folder inside."""
    return [keras_cache() / "cifar-10-batches-py-target", keras_cache()]
