"""Read Fashion-MNIST, 28 x 28 pictures of clothes: the real data set if available, else the shipped sample.

Search order: the original four files in `<data_dir>/fashion-mnist/`, the same files in Keras' cache, the shipped
sample. A damaged, incomplete or different data set is an error. H. Xiao, K. Rasul, R. Vollgraf, arXiv 1708.07747; MIT.
"""

from pathlib import Path

from dyno.bench.datasets import image_sets, loading
from dyno.settings import Settings

CLASSES = 10
SAMPLE_FOLDER = Path(__file__).parent / "samples" / "fashion-mnist"
SET = image_sets.IdxSet(
    name="fashion-mnist",
    title="Fashion-MNIST",
    classes=("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
    address="https://storage.googleapis.com/tensorflow/tf-keras-datasets/",
    sizes_bytes=(26_421_880, 29_515, 4_422_102, 5_148),
    published={
        "train-images-idx3-ubyte.gz": "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
        "train-labels-idx1-ubyte.gz": "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
        "t10k-images-idx3-ubyte.gz": "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
        "t10k-labels-idx1-ubyte.gz": "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
    },
)


def load(settings: Settings, kind: loading.DataKind = "auto") -> image_sets.Images:
    """See `IdxSet.load`."""
    return SET.load(settings, kind, SAMPLE_FOLDER)
