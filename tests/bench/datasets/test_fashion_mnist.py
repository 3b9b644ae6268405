import shutil

import numpy as np
import pytest

from dyno.bench.datasets import fashion_mnist, mnist
from dyno.errors import DatasetDamaged, RunFailed
from dyno.settings import Settings


def test_a_clone_has_the_sample():
    data = fashion_mnist.load(Settings())
    assert (data.origin.name, data.origin.kind) == ("fashion-mnist", "sample")
    assert data.train_images.shape == (8000, 28, 28, 1)
    assert data.test_images.shape == (2000, 28, 28, 1)
    assert np.bincount(data.train_labels).sum() + np.bincount(data.test_labels).sum() == 10_000
    assert set(data.origin.sha256) == {"t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"}


def test_the_classes_are_in_the_order_of_the_labels():
    data = fashion_mnist.load(Settings())
    widths = [(data.train_images[data.train_labels == label] > 0).mean() for label in range(10)]
    assert data.classes[int(np.argmin(widths))] == "Sandal"
    assert data.classes[1] == "Trouser"
    assert data.classes[9] == "Ankle boot"


def test_the_real_set_is_read_from_the_data_folder_and_from_keras_cache(real_data, keras_home):
    data = fashion_mnist.load(real_data, "real")
    assert data.train_images.mean() / 255 == pytest.approx(0.2860, abs=1e-4)
    assert np.bincount(data.train_labels).tolist() == [6000] * 10
    shutil.copytree(real_data.data_dir / "fashion-mnist", keras_home / "datasets" / "fashion-mnist")
    assert fashion_mnist.load(Settings(), "auto").origin == data.origin


def test_some_of_the_files_are_not_the_set(tmp_path):
    shutil.copytree(fashion_mnist.SAMPLE_FOLDER, tmp_path / "fashion-mnist")
    with pytest.raises(DatasetDamaged, match="incomplete; missing: train-images"):
        fashion_mnist.load(Settings(data_dir=tmp_path))


def test_mnist_under_its_names_is_not_fashion_mnist(tmp_path):
    with pytest.raises(DatasetDamaged, match="not the published Fashion-MNIST file"):
        fashion_mnist.SET.sample(mnist.SAMPLE_FOLDER)


def test_the_error_for_a_missing_real_set_lists_the_searched_folders():
    with pytest.raises(RunFailed, match=r"DYNO_DATA_DIR is unset\); set DYNO_DOWNLOAD=1 to download it") as failed:
        fashion_mnist.load(Settings(), "real")
    assert failed.value.reason == "dataset_missing"


def test_the_twin_is_as_large_as_the_real_set():
    data = fashion_mnist.load(Settings(), "synthetic")
    assert data.train_images.shape == (60_000, 28, 28, 1)
    assert data.classes == fashion_mnist.SET.classes
    assert data.origin.kind == "synthetic"
