"""Read MNIST, 28 x 28 handwritten digits: the real data set if available, else the shipped sample.

Search order: the four original files in `<data_dir>/mnist/`, the same files in Keras' cache, Keras' single-file copy in
its cache, the shipped sample. A damaged or incomplete data set is an error and never skipped. Another data set with the
same names and shapes (Fashion-MNIST) is an error too. Dyno uses synthetic data only on request.
"""

from pathlib import Path

from dyno.bench.datasets import image_sets, loading
from dyno.settings import Settings

CLASSES = 10
SAMPLE_FOLDER = Path(__file__).parent / "samples" / "mnist"
# SHA-256 of the four published files, and of Keras' copy (keras.datasets.mnist verifies the same sum)
SET = image_sets.IdxSet(
    name="mnist",
    title="MNIST",
    classes=tuple(str(digit) for digit in range(CLASSES)),
    address="https://ossci-datasets.s3.amazonaws.com/mnist/",
    sizes_bytes=(9_912_422, 28_881, 1_648_877, 4_542),
    published={
        "train-images-idx3-ubyte.gz": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        "train-labels-idx1-ubyte.gz": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        "t10k-images-idx3-ubyte.gz": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        "t10k-labels-idx1-ubyte.gz": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        "mnist.npz": "731c5ac602752760c8e48fbffcf8c3b850d9dc2a2aedcf2cc48468fc17b673d1",
    },
)


def load(settings: Settings, kind: loading.DataKind = "auto") -> image_sets.Images:
    """See `IdxSet.load`."""
    return SET.load(settings, kind, SAMPLE_FOLDER)
