import gzip
import hashlib
import io
import lzma
import os
import pickle
import tarfile

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from dyno.bench.datasets import cifar10
from dyno.errors import DatasetDamaged, RunFailed
from dyno.settings import Settings

SAMPLES, FIRST = 20, 5
NAMES = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]


def _records(seed):
    table = np.random.default_rng(seed).integers(0, 256, (SAMPLES, 3073), dtype=np.uint8)
    table[:, 0] %= 10
    return table


def _pickle(table):
    return pickle.dumps({b"labels": table[:, 0].tolist(), b"data": table[:, 1:], b"batch_label": b"x"}, 2)


BATCHES = {name: _records(seed) for seed, name in enumerate(NAMES)}
PICKLE = _pickle(BATCHES["data_batch_1"])
FIRST_OF_TEST = BATCHES["test_batch"][:FIRST]


@pytest.fixture(autouse=True)
def published(monkeypatch):
    """Treats these small batches as published: the repository may not contain the real ones."""
    tables = BATCHES | {"test_batch_first1000": FIRST_OF_TEST}
    monkeypatch.setattr(cifar10, "BATCH", SAMPLES)
    monkeypatch.setattr(cifar10, "FIRST", FIRST)
    sums = {name: hashlib.sha256(table.tobytes()).hexdigest() for name, table in tables.items()}
    monkeypatch.setattr(cifar10, "PUBLISHED", sums)
    pickles = {name: hashlib.md5(_pickle(table)).hexdigest() for name, table in BATCHES.items()}
    monkeypatch.setattr(cifar10, "PUBLISHED_PICKLES", pickles)


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "data" / "cifar10"
    path.mkdir(parents=True)
    return path


def _load(folder):
    return cifar10.load(Settings(data_dir=folder.parent))


def _binary(folder, names):
    for name in names:
        (folder / f"{name}.bin").write_bytes(BATCHES[name].tobytes())


def _packed(folder, names):
    for name in names:
        (folder / f"{name}.bin.xz").write_bytes(lzma.compress(BATCHES[name].tobytes()))


def _pickled(folder, names):
    inside = folder / "cifar-10-batches-py"
    inside.mkdir()
    for name in names:
        (inside / name).write_bytes(_pickle(BATCHES[name]))


def _tar(names):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz", compresslevel=1) as archive:
        for name in names:
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}.bin")
            member.size = BATCHES[name].nbytes
            archive.addfile(member, io.BytesIO(BATCHES[name].tobytes()))
    return stream.getvalue()


def _archived(folder, names):
    (folder / "cifar-10-binary.tar.gz").write_bytes(_tar(names))


@pytest.mark.parametrize("written", [_binary, _packed, _pickled, _archived])
def test_each_form_holds_the_same_images(folder, written):
    written(folder, NAMES)
    data = _load(folder)
    assert (data.origin.kind, data.origin.note) == ("real", None)
    assert (data.origin.train_samples, data.origin.test_samples) == (5 * SAMPLES, SAMPLES)
    assert data.classes[0] == "airplane"
    record = BATCHES["data_batch_2"][3]
    assert data.train_labels[SAMPLES + 3] == record[0]
    assert (data.train_images[SAMPLES + 3] == record[1:].reshape(3, 32, 32).transpose(1, 2, 0)).all()
    assert data.origin.sha256 == {f"{name}.bin": cifar10.PUBLISHED[name] for name in NAMES}


def test_keras_unpacked_archive_is_found(keras_home):
    unpacked = keras_home / "datasets" / "cifar-10-batches-py-target"
    unpacked.mkdir(parents=True)
    _pickled(unpacked, NAMES)
    assert cifar10.load(Settings()).origin.kind == "real"


def test_missing_batches_are_noted_in_the_origin(folder):
    _packed(folder, ["data_batch_1", "data_batch_2"])
    (folder / "test_batch_first1000.bin.xz").write_bytes(lzma.compress(FIRST_OF_TEST.tobytes()))
    data = _load(folder)
    assert data.origin.note == "2 of 5 training batches; first 5 test images"
    assert (data.origin.train_samples, data.origin.test_samples) == (2 * SAMPLES, FIRST)


@pytest.mark.parametrize(("names", "absent"), [(["data_batch_1"], "test batch"), (["test_batch"], "training")])
def test_half_of_it_is_not_the_set(folder, names, absent):
    _binary(folder, names)
    with pytest.raises(DatasetDamaged, match=f"incomplete; no {absent}"):
        _load(folder)


WHOLE = BATCHES["data_batch_1"].tobytes()


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("data_batch_1.bin", WHOLE[:-1], "61459 bytes, expected 20 records of 3073"),
        ("data_batch_1.bin", b"", "0 bytes"),
        ("data_batch_1.bin", WHOLE[:-1] + b"\0", "not CIFAR-10's published data_batch_1"),
        ("data_batch_1.bin", BATCHES["data_batch_2"].tobytes(), "not CIFAR-10's published data_batch_1"),
        ("data_batch_1.bin.xz", lzma.compress(WHOLE)[:-20], "can't be unpacked"),
        ("data_batch_1.bin.xz", b"no xz", "can't be unpacked"),
        ("data_batch_1", b"no pickle", "not CIFAR-10's published data_batch_1: md5"),
        ("data_batch_1", PICKLE.replace(b"labels", b"LABELS"), "not CIFAR-10's published data_batch_1: md5"),
        ("data_batch_1", _pickle(BATCHES["data_batch_2"]), "not CIFAR-10's published data_batch_1: md5"),
        ("test_batch_first1000", _pickle(FIRST_OF_TEST), "not CIFAR-10's published test_batch_first1000: md5"),
        ("cifar-10-python.tar.gz", _tar(NAMES)[:-400], "can't be unpacked"),
        ("cifar-10-binary.tar.gz", _tar(NAMES[:-1]), "incomplete; missing: test_batch"),
        ("cifar-10-binary.tar.gz", gzip.compress(b"no tar", mtime=0), "can't be unpacked"),
    ],
)
def test_a_damaged_file_is_named_and_nothing_else_is_taken(folder, name, content, complaint):
    (folder / name).write_bytes(content)
    with pytest.raises(DatasetDamaged) as damaged:
        _load(folder)
    assert name in damaged.value.detail
    assert complaint in damaged.value.detail


class _Evil:
    def __init__(self, trace):
        self._trace = trace

    def __reduce__(self):
        return os.system, (f"touch {self._trace}",)


def test_a_batch_that_would_run_code_is_refused(folder, tmp_path):
    trace = tmp_path / "ran"
    (folder / "data_batch_1").write_bytes(pickle.dumps(_Evil(trace)))
    with pytest.raises(DatasetDamaged, match=r"data_batch_1: not CIFAR-10's published data_batch_1"):
        _load(folder)
    assert not trace.exists()


def test_a_published_pickle_with_other_content_is_no_batch(folder, monkeypatch):
    for batch in (
        [1, 2],
        {b"data": np.zeros((2, 3))},
        {b"data": np.zeros((2, 3)), b"labels": [1, 2]},
        {b"data": np.zeros((2, 3), np.uint8), b"labels": [1]},
    ):
        content = pickle.dumps(batch)
        monkeypatch.setitem(cifar10.PUBLISHED_PICKLES, "data_batch_1", hashlib.md5(content).hexdigest())
        (folder / "data_batch_1").write_bytes(content)
        with pytest.raises(DatasetDamaged, match="data_batch_1: not a batch of labels and data"):
            _load(folder)


@pytest.mark.parametrize("bit", [0, *(pytest.param(bit, marks=pytest.mark.verify) for bit in range(1, 8))])
def test_damage_of_a_pickle_is_found_before_it_is_read(folder, bit):
    """A changed dtype would be NumPy's own from then on, for the whole process, which then crashes."""
    for place in range(0, 400, 7):
        damaged = PICKLE[:place] + bytes([PICKLE[place] ^ 1 << bit]) + PICKLE[place + 1 :]
        (folder / "data_batch_1").write_bytes(damaged)
        with pytest.raises(DatasetDamaged, match="not CIFAR-10's published data_batch_1: md5"):
            _load(folder)


ARCHIVE, XZ = _tar(NAMES), lzma.compress(WHOLE)


@hypothesis_settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.integers(0, 10**6), name=st.sampled_from(["cifar-10-binary.tar.gz", "data_batch_1.bin.xz"]))
def test_no_truncation_passes_unnoticed(folder, place, name):
    whole = XZ if name.endswith("xz") else ARCHIVE
    for other in folder.iterdir():
        other.unlink()
    (folder / name).write_bytes(whole[: place % (len(whole) - 8)])  # gzip's last 8 bytes are its own sum and size
    with pytest.raises(DatasetDamaged, match=name):
        _load(folder)


def test_without_files_auto_is_learnable_synthetic_data():
    data = cifar10.load(Settings())
    assert data.origin.kind == "synthetic"
    assert data.train_images.shape == (50_000, 32, 32, 3)
    assert data.test_images.shape == (10_000, 32, 32, 3)
    centres = np.stack([data.train_images[data.train_labels == label][:50].mean(axis=0) for label in range(10)])
    distances = ((data.test_images[:100, None].astype(float) - centres) ** 2).sum(axis=(2, 3, 4))
    assert (distances.argmin(axis=1) == data.test_labels[:100]).mean() > 0.9


def test_pictures_are_refused_with_the_archive_to_download(folder):
    (folder / "train" / "cat").mkdir(parents=True)
    with pytest.raises(DatasetDamaged, match=r"cifar10 contains train; .* cifar-10-binary\.tar\.gz .*, which https://"):
        _load(folder)


@pytest.mark.parametrize("kind", ["real", "sample"])
def test_requesting_unavailable_data_fails(kind):
    with pytest.raises(RunFailed) as failed:
        cifar10.load(Settings(), kind)
    assert failed.value.reason == "dataset_missing"


def test_the_real_batches_are_the_ones_that_everybody_knows(real_data, monkeypatch):
    monkeypatch.undo()
    data = cifar10.load(real_data, "real")
    assert (data.train_images.mean(axis=(0, 1, 2)) / 255).tolist() == pytest.approx([0.4914, 0.4822, 0.4465], abs=0.01)
    assert set(np.bincount(data.test_labels)) != {0}
    assert data.train_labels[:5].tolist() == [6, 9, 9, 4, 1]
