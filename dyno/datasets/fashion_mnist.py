"""Fashion-MNIST, 28 x 28 pictures of clothes: the real set if it is here, else the sample that ships.

Looked for in this order: the four original files in `<data_dir>/fashion-mnist/`, in Keras' cache, the shipped sample.
What is there but damaged, incomplete or another set is an error. H. Xiao, K. Rasul, R. Vollgraf, arXiv 1708.07747; MIT.
"""

from __future__ import annotations

from pathlib import Path

from dyno.datasets import patterns
from dyno.datasets.choice import Forms, choose, folders, looked_in
from dyno.datasets.idx_images import SAMPLE_TEST, SAMPLE_TRAIN, SIDE, TEST_SAMPLES, TRAIN_SAMPLES, IdxSet
from dyno.datasets.images import Images
from dyno.datasets.kinds import DataKind
from dyno.settings import Settings

__all__ = ["CLASSES", "SAMPLE_TEST", "SAMPLE_TRAIN", "TEST_SAMPLES", "TRAIN_SAMPLES", "DataKind", "load"]

CLASSES = 10
SAMPLE_FOLDER = Path(__file__).parent / "samples" / "fashion-mnist"
SET = IdxSet(
    name="fashion-mnist",
    title="Fashion-MNIST",
    classes=(
        "T-shirt/top",
        "Trouser",
        "Pullover",
        "Dress",
        "Coat",
        "Sandal",
        "Shirt",
        "Sneaker",
        "Bag",
        "Ankle boot",
    ),
    address="https://storage.googleapis.com/tensorflow/tf-keras-datasets/",
    sizes_bytes=(26_421_880, 29_515, 4_422_102, 5_148),
    published={
        "train-images-idx3-ubyte.gz": "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
        "train-labels-idx1-ubyte.gz": "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
        "t10k-images-idx3-ubyte.gz": "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
        "t10k-labels-idx1-ubyte.gz": "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
    },
)


def load(settings: Settings, kind: DataKind = "auto") -> Images:
    """Images uint8 (n, 28, 28, 1) of that kind; `auto` is real, else the sample.

    Raises DatasetDamaged, naming the file, and RunFailed (unsupported, dataset_missing) where `real` is not here.
    """
    forms = Forms(
        SET.name,
        real=lambda: _real(settings),
        sample=lambda: SET.sample(SAMPLE_FOLDER),
        synthetic=lambda: patterns.synthetic(SET.name, SET.classes, SIDE, 1, TRAIN_SAMPLES, TEST_SAMPLES),
        absent=f"no Fashion-MNIST here: looked for its four files in {looked_in(settings, SET.name)}",
        remotes=SET.remotes,
    )
    return choose(settings, kind, forms)


def _real(settings: Settings) -> Images | None:
    return next(filter(None, map(SET.from_folder, folders(settings, SET.name))), None)
