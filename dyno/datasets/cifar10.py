"""CIFAR-10, 32 x 32 colour photographs of ten classes. A. Krizhevsky, 2009; no licence stated, so no sample ships.

Real files are looked for in `<data_dir>/cifar10/`, then in Keras' cache; `cifar10_batches.py` and `cifar10_folders.py`
say in which forms. Not all five training batches need be here, nor all of the test batch: `origin.note` says which are.
What is there but damaged is an error. Without real files `auto` is a synthetic twin.
"""

from __future__ import annotations

from pathlib import Path

from dyno.datasets import cifar10_batches, cifar10_folders, patterns
from dyno.datasets.choice import Forms, choose, folders, keras_cache, looked_in
from dyno.datasets.fetch import Remote
from dyno.datasets.images import Images
from dyno.datasets.kinds import DataKind
from dyno.settings import Settings

CLASS_NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
CLASSES = len(CLASS_NAMES)
SIDE = 32
CHANNELS = 3
TRAIN_SAMPLES = 50_000
TEST_SAMPLES = 10_000
NAME = "cifar10"
ARCHIVE = Remote(
    "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
    "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
    170_052_171,
)


def load(settings: Settings, kind: DataKind = "auto") -> Images:
    """Images uint8 (n, 32, 32, 3), red, green, blue, of that kind; `auto` is real, else the synthetic twin.

    Raises DatasetDamaged, naming the file, and RunFailed (unsupported, dataset_missing) where `real` is not here.
    """
    forms = Forms(
        NAME,
        real=lambda: _real(settings),
        sample=None,
        synthetic=lambda: patterns.synthetic(NAME, CLASS_NAMES, SIDE, CHANNELS, TRAIN_SAMPLES, TEST_SAMPLES),
        absent=f"no CIFAR-10 here: looked for its batches, its archives and its image folders in "
        f"{looked_in(settings, NAME)}",
        remotes=[ARCHIVE],
    )
    return choose(settings, kind, forms)


def _real(settings: Settings) -> Images | None:
    """The first place that has it in any form counts."""
    batches, pictures = cifar10_batches.from_folder, cifar10_folders.from_folder
    places = [(read, folder) for folder in folders(settings, NAME) for read in (batches, pictures)]
    places += [(batches, folder) for folder in _kerass_own()]
    return next((found for read, folder in places if (found := read(folder, CLASS_NAMES)) is not None), None)


def _kerass_own() -> list[Path]:
    """Where Keras 3, and Keras before it, unpack the archive; its batches lie in a folder inside."""
    return [keras_cache() / "cifar-10-batches-py-target", keras_cache()]
