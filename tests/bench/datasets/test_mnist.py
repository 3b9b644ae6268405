import gzip
import hashlib
import shutil
import struct
from dataclasses import replace

import numpy as np
import pytest

from dyno.bench.datasets import mnist
from dyno.errors import DatasetDamaged, RunFailed
from dyno.settings import Settings

SHAPES = {"train": 60_000, "t10k": 10_000}
IMAGES, LABELS = "{}-images-idx3-ubyte.gz", "{}-labels-idx1-ubyte.gz"


def _idx(values):
    header = struct.pack(f">{1 + values.ndim}I", 8 << 8 | values.ndim, *values.shape)
    return gzip.compress(header + values.tobytes(), compresslevel=1, mtime=0)


@pytest.fixture(scope="module")
def blank(tmp_path_factory):
    """A data folder with the right shapes; every image is black, every label is 3."""
    folder = tmp_path_factory.mktemp("blank") / "mnist"
    folder.mkdir()
    for part, samples in SHAPES.items():
        (folder / IMAGES.format(part)).write_bytes(_idx(np.zeros((samples, 28, 28), np.uint8)))
        (folder / LABELS.format(part)).write_bytes(_idx(np.full(samples, 3, np.uint8)))
    return folder.parent


@pytest.fixture
def spoil(blank, tmp_path):
    """A copy of the blank folder with one file replaced, or removed."""

    def change(name, content):
        copy = tmp_path / "data"
        shutil.copytree(blank, copy)
        file = copy / "mnist" / name
        file.unlink()
        if content is not None:
            file.write_bytes(content)
        return Settings(data_dir=copy)

    return change


def _publish(monkeypatch, *files):
    """Treats these files as published: the real ones are too large for the repository."""
    sums = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
    monkeypatch.setattr(mnist, "SET", replace(mnist.SET, published={**mnist.SET.published, **sums}))


@pytest.mark.parametrize("kind", ["auto", "real"])
def test_another_set_of_the_same_names_and_shapes_is_not_mnist(blank, kind):
    with pytest.raises(DatasetDamaged, match="not the published MNIST file") as damaged:
        mnist.load(Settings(data_dir=blank), kind)
    assert IMAGES.format("train") in damaged.value.detail
    assert mnist.SET.published[IMAGES.format("train")] in damaged.value.detail


def test_four_files_are_the_real_set_with_their_sums(blank, monkeypatch):
    _publish(monkeypatch, *(blank / "mnist").iterdir())
    data = mnist.load(Settings(data_dir=blank))
    assert data.origin.kind == "real"
    assert (data.origin.train_samples, data.origin.test_samples) == (60_000, 10_000)
    assert data.origin.sha256 == {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in (blank / "mnist").iterdir()
    }


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        (IMAGES.format("train"), None, "incomplete"),
        (LABELS.format("t10k"), None, "incomplete"),
        (LABELS.format("train"), b"", "too few"),
        (LABELS.format("t10k"), _idx(np.full(10_000, 10, np.uint8)), "MNIST has no class 10"),
        (LABELS.format("t10k"), _idx(np.zeros(9_999, np.uint8)), "(9999,)"),
        (IMAGES.format("t10k"), _idx(np.zeros((10_000, 28, 27), np.uint8)), "(10000, 28, 27)"),
    ],
)
@pytest.mark.parametrize("kind", ["auto", "real"])
def test_a_damaged_or_missing_file_is_named_and_nothing_else_is_taken(
    spoil, name, content, complaint, kind, blank, monkeypatch
):
    _publish(monkeypatch, *(blank / "mnist").iterdir())
    with pytest.raises(DatasetDamaged) as damaged:
        mnist.load(spoil(name, content), kind)
    assert name in damaged.value.detail
    assert complaint in damaged.value.detail


def test_the_real_set_is_the_one_that_everybody_knows(real_data):
    data = mnist.load(real_data, "real")
    assert data.train_images.mean() / 255 == pytest.approx(0.1307, abs=1e-4)
    assert np.bincount(data.train_labels)[:3].tolist() == [5923, 6742, 5958]


def test_keras_cache_comes_next(keras_home, monkeypatch):
    cache = keras_home / "datasets" / "mnist.npz"
    cache.parent.mkdir(parents=True)
    arrays = {
        f"{axis}_{part}": np.zeros(shape, np.uint8)
        for part, samples in (("train", 60_000), ("test", 10_000))
        for axis, shape in (("x", (samples, 28, 28)), ("y", (samples,)))
    }
    np.savez_compressed(cache, **arrays)
    with pytest.raises(DatasetDamaged, match=r"not the published mnist\.npz"):
        mnist.load(Settings())
    _publish(monkeypatch, cache)
    assert mnist.load(Settings()).origin.kind == "real"
    assert list(mnist.load(Settings(), "real").origin.sha256) == ["mnist.npz"]
    cache.write_bytes(cache.read_bytes()[:-100])
    with pytest.raises(DatasetDamaged, match=r"mnist\.npz"):
        mnist.load(Settings())


def test_auto_falls_back_to_the_sample():
    data = mnist.load(Settings())
    assert data.origin.kind == "sample"
    assert data.train_images.shape == (8000, 28, 28, 1)
    assert data.classes == ("0", "1", "2", "3", "4", "5", "6", "7", "8", "9")
    assert (data.origin.train_samples, data.origin.test_samples) == (8000, 2000)
    assert data.origin.sha256 == {
        "t10k-images-idx3-ubyte.gz": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        "t10k-labels-idx1-ubyte.gz": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
    }
    assert np.bincount(data.test_labels, minlength=10).min() > 150
    assert data.train_images.mean() / 255 == pytest.approx(0.1325, abs=0.003)


def test_an_explicitly_requested_sample_is_used_despite_real_files(blank):
    assert mnist.load(Settings(data_dir=blank), "sample").origin.kind == "sample"


def test_the_error_for_a_missing_real_set_lists_the_searched_folders(tmp_path):
    with pytest.raises(RunFailed, match="looked for its four files in") as failed:
        mnist.load(Settings(data_dir=tmp_path), "real")
    assert (failed.value.failure_class, failed.value.reason) == ("unsupported", "dataset_missing")
    assert str(tmp_path) in failed.value.detail


def test_the_synthetic_twin_has_the_shape_of_mnist_is_always_the_same_and_can_be_learned():
    data, again = mnist.load(Settings(), "synthetic"), mnist.load(Settings(), "synthetic")
    assert data.origin.kind == "synthetic"
    assert data.train_images.shape == (60_000, 28, 28, 1)
    assert data.test_images.shape == (10_000, 28, 28, 1)
    assert (data.train_images[:100] == again.train_images[:100]).all()
    centres = np.stack([data.train_images[data.train_labels == digit][:500].mean(axis=0) for digit in range(10)])
    distances = ((data.test_images[:300, None].astype(float) - centres) ** 2).sum(axis=(2, 3, 4))
    assert (distances.argmin(axis=1) == data.test_labels[:300]).mean() > 0.9


def test_a_limit_keeps_the_first_samples_and_the_origin_counts_them():
    data = mnist.load(Settings())
    few = data.limited(7, 3)
    assert (few.train_images == data.train_images[:7]).all()
    assert (few.test_labels == data.test_labels[:3]).all()
    assert (few.origin.train_samples, few.origin.test_samples) == (7, 3)
    assert data.limited(None, 10**6).origin == data.origin
