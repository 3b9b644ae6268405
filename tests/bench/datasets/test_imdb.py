import hashlib
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dyno.bench.datasets import imdb
from dyno.bench.datasets.imdb import ReviewPart
from dyno.errors import DatasetDamaged, RunFailed
from dyno.settings import Settings

REVIEWS, WORDS = 6, 9
TRAIN = [[1, 2, 3, 4], [5], [2, 2, 9], [6, 1, 2], [8], [1, 8, 3, 5, 7]]
TEST = [[4], [5, 5], [3, 4], [1], [9, 9, 9], [2, 1]]


@pytest.fixture
def small(monkeypatch):
    """Treats these few reviews and words as published."""
    monkeypatch.setattr(imdb, "REVIEWS", REVIEWS)
    monkeypatch.setattr(imdb, "VOCABULARY", WORDS)


@pytest.fixture
def folder(tmp_path, small):
    path = tmp_path / "data" / "imdb"
    path.mkdir(parents=True)
    return path


def _load(folder):
    return imdb.load(Settings(data_dir=folder.parent), words=9, length=4)


def _sequences(**changed):
    arrays: dict[str, NDArray[Any]] = {}
    for part, reviews in (("train", TRAIN), ("test", TEST)):
        lengths = [len(review) for review in reviews]
        arrays[f"x_{part}_tokens"] = np.concatenate(reviews).astype(np.uint32)
        arrays[f"x_{part}_offsets"] = np.concatenate([[0], np.cumsum(lengths)]).astype(np.uint32)
        arrays[f"y_{part}"] = (np.arange(len(reviews)) % 2).astype(np.uint8)
    return arrays | changed


def _as_keras(reviews, words, length):
    """The documented behaviour of Keras' load_data and pad_sequences, review by review."""
    rows = []
    for review in reviews:
        numbers = [1] + [rank + 3 if rank + 3 < words else 2 for rank in review]
        kept = numbers[-length:]
        rows.append([0] * (length - len(kept)) + kept)
    return rows


def test_reviews_are_numbered_cut_and_padded_as_keras_does_it(folder):
    np.savez(folder / "imdb_sequences.npz", **_sequences())
    data = _load(folder)
    assert data.train.tolist() == _as_keras(TRAIN, words=9, length=4)
    assert data.train.tolist()[:3] == [[4, 5, 6, 7], [0, 0, 1, 8], [1, 5, 5, 2]]
    assert data.test.tolist() == _as_keras(TEST, words=9, length=4)
    assert (data.train.dtype, data.train_labels.dtype) == (np.int32, np.uint8)
    assert data.train_labels.tolist() == [0, 1] * 3
    assert (data.origin.kind, data.origin.train_samples, data.origin.test_samples) == ("real", 6, 6)
    assert list(data.origin.sha256) == ["imdb_sequences.npz"]


@given(
    reviews=st.lists(st.lists(st.integers(1, 30), max_size=12), min_size=1, max_size=8),
    words=st.integers(4, 40),
    length=st.integers(1, 14),
)
def test_any_reviews_are(reviews, words, length):
    part = ReviewPart.of([np.array(review, np.uint32) for review in reviews], np.zeros(len(reviews), np.uint8))
    assert imdb.padded(part, words, length).tolist() == _as_keras(reviews, words, length)


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"x_train_offsets": np.array([0, 4, 5, 8, 11, 12, 18], np.uint32)}, "don't split 17 words into 6 reviews"),
        ({"x_train_offsets": np.array([0, 5, 4, 8, 11, 12, 17], np.uint32)}, "don't split"),
        ({"x_test_offsets": np.array([0, 11], np.uint32)}, "test: the offsets"),
        ({"y_train": np.zeros(6, np.uint8)}, "3 labels of 0 and as many of 1"),
        ({"y_test": np.array([0, 1, 0, 1, 0, 2], np.uint8)}, "test: expected 3 labels"),
        ({"x_test_tokens": np.full(11, 10, np.uint32)}, "from 10 to 10, expected 1 to 9"),
        ({"x_test_tokens": np.zeros(11, np.uint32)}, "from 0 to 0"),
        ({"x_train_tokens": np.ones(17)}, "must be one-dimensional and unsigned"),
        ({"x_train_tokens": np.ones((17, 1), np.uint32)}, "must be one-dimensional"),
        ({"y_train": np.array([None] * 6)}, "can't be read"),
    ],
)
def test_sequences_that_do_not_fit_together_are_refused(folder, changed, complaint):
    np.savez(folder / "imdb_sequences.npz", **_sequences(**changed))
    with pytest.raises(DatasetDamaged) as damaged:
        _load(folder)
    assert "imdb_sequences.npz" in damaged.value.detail
    assert complaint in damaged.value.detail


@hypothesis_settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.integers(0, 10**6), flip=st.integers(0, 255))
def test_damage_is_named_or_leaves_the_reviews_as_they_were(folder, place, flip):
    path = folder / "imdb_sequences.npz"
    np.savez_compressed(path, **_sequences())
    whole = path.read_bytes()
    damaged = bytearray(whole)
    damaged[place % len(whole)] ^= flip
    for content in (bytes(damaged), whole[: place % len(whole)]):
        path.write_bytes(content)
        try:
            assert _load(folder).train.tolist() == _as_keras(TRAIN, 9, 4)
        except DatasetDamaged as error:
            assert "imdb_sequences.npz" in error.detail  # noqa: PT017 - a flip in a zip's unused fields does no harm


def _kerass(path):
    arrays = {}
    for part, reviews in (("train", TRAIN), ("test", TEST)):
        arrays[f"x_{part}"] = np.array([list(review) for review in reviews], dtype=object)
        arrays[f"y_{part}"] = np.arange(len(reviews)) % 2
    np.savez(path, **arrays)


def _publish(monkeypatch, path):
    monkeypatch.setattr(imdb, "KERAS_PUBLISHED", hashlib.sha256(path.read_bytes()).hexdigest())


def test_keras_file_is_read_in_the_order_in_which_keras_hands_it_out(keras_home, small, monkeypatch):
    path = keras_home / "datasets" / "imdb.npz"
    path.parent.mkdir(parents=True)
    _kerass(path)
    with pytest.raises(DatasetDamaged, match=r"not Keras' published imdb\.npz"):
        imdb.load(Settings())
    _publish(monkeypatch, path)
    data = imdb.load(Settings(), words=9, length=4)
    random = np.random.RandomState(113)  # as keras.datasets.imdb.load_data does: one generator, train first
    for mine, labels, reviews in ((data.train, data.train_labels, TRAIN), (data.test, data.test_labels, TEST)):
        order = np.arange(len(reviews))
        random.shuffle(order)
        assert mine.tolist() == _as_keras([reviews[place] for place in order], 9, 4)
        assert labels.tolist() == (order % 2).tolist()


def test_a_keras_file_that_would_run_code_is_refused(folder, tmp_path, monkeypatch):
    class Evil:
        def __reduce__(self):
            return eval, (f"open({str(tmp_path / 'ran')!r}, 'w')",)

    path = folder / "imdb.npz"
    _kerass(path)
    with np.load(path, allow_pickle=True) as arrays:
        changed = dict(arrays) | {"x_test": np.array([Evil()], dtype=object)}
    np.savez(path, **changed)
    _publish(monkeypatch, path)
    with pytest.raises(DatasetDamaged, match=r"imdb\.npz: not a pickle of plain data: it contains builtins\.eval"):
        _load(folder)
    assert not (tmp_path / "ran").exists()


def test_texts_are_refused_with_the_file_to_download(folder):
    (folder / "aclImdb" / "train" / "pos").mkdir(parents=True)
    with pytest.raises(DatasetDamaged, match=r"imdb contains aclImdb; .* imdb\.npz, which is at https://"):
        _load(folder)


@pytest.mark.parametrize("kind", ["real", "sample"])
def test_requesting_unavailable_data_fails(kind):
    with pytest.raises(RunFailed) as failed:
        imdb.load(Settings(), kind)
    assert failed.value.reason == "dataset_missing"


def test_without_files_auto_is_synthetic_with_leaning_words():
    data = imdb.load(Settings(), length=100)
    assert data.origin.kind == "synthetic"
    assert (data.train.shape, data.test.shape) == ((25_000, 100), (25_000, 100))
    assert np.bincount(data.train_labels).tolist() == [12_500, 12_500]
    assert 1 < data.train.max() < 15_000
    counts = np.ones((2, 15_000))
    for label in (0, 1):
        np.add.at(counts[label], data.train[:5000][data.train_labels[:5000] == label], 1)
    leaning = np.log(counts[1] / counts[0])
    right = (leaning[data.test[:2000]].sum(axis=1) > 0) == data.test_labels[:2000]
    assert 0.75 < right.mean() < 1


def test_the_real_reviews_are_the_ones_that_everybody_knows(real_data):
    data = imdb.load(real_data, "real")
    assert (data.train.shape, data.train.max()) == ((25_000, 250), 14_999)
    assert np.bincount(data.train_labels).tolist() == [12_500, 12_500]
    known = [1, 14, 22, 16, 43, 530, 973, 1622, 1385, 65]  # Keras documents this review as its first
    assert (data.train[:, -218:-208] == known).all(axis=1).sum() == 1
