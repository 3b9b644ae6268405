"""The pipeline's batches, their order, its threads and faults; images from memory and files."""

import threading
import time
from itertools import chain

import numpy as np
import pytest

from dyno.bench.datasets import mnist
from dyno.bench.workloads.input_pipeline import BatchFeed, store_images
from dyno.settings import Settings
from tests.waiting import eventually

SAMPLES, BATCH = 12, 4


def _numbers(rows, into):
    into[:, 0] = rows


def _feed(fill=_numbers, seed=1, threads=1, ahead=0, samples=SAMPLES):
    return BatchFeed(fill, 10 * np.arange(samples), (1,), BATCH, seed, threads, ahead)


def _taken(feed, batches):
    """The sample indices of each batch; targets are ten times the indices."""
    found = []
    with feed:
        for _ in range(batches):
            inputs, targets = feed.take()
            assert (10 * inputs[:, 0] == targets).all()
            found.append(inputs[:, 0].astype(int).tolist())
        feed.settle()
    return found


def _threads():
    return (thread.name for thread in threading.enumerate() if thread.name.startswith("feed"))


@pytest.mark.parametrize("threads", [1, 3, 64])
@pytest.mark.parametrize("ahead", [0, 1, 5])
def test_every_sample_comes_once_an_epoch_in_an_order_of_the_seed_alone(threads, ahead):
    found = _taken(_feed(threads=threads, ahead=ahead), 6)
    first, second = list(chain(*found[:3])), list(chain(*found[3:]))
    assert sorted(first) == sorted(second) == list(range(SAMPLES))
    assert first != second
    assert found == _taken(_feed(), 6)
    assert found != _taken(_feed(seed=2), 6)


def test_samples_that_make_no_full_batch_are_left_out_of_their_epoch():
    found = _taken(_feed(samples=BATCH + 3), 20)
    assert all(len(set(batch)) == BATCH for batch in found)
    assert set(chain(*found)) == set(range(BATCH + 3))


def test_batches_made_ahead_are_kept_over_a_pause():
    feed = _feed(threads=2, ahead=2)
    assert _taken(feed, 1) + _taken(feed, 4) + _taken(feed, 1) == _taken(_feed(), 6)


def test_after_a_call_the_requested_number_of_batches_is_ready():
    filled = []

    def counting(rows, into):
        filled.append(len(rows))
        _numbers(rows, into)

    feed = _feed(counting, ahead=3)
    for calls in (1, 2, 3):
        _taken(feed, 1)
        assert len(filled) == calls + 3


def test_the_processor_time_of_the_threads_is_that_of_the_batches_taken():
    spent_s: list[float] = []

    def busy(rows, into):
        began_s = time.thread_time()
        while time.thread_time() < began_s + 0.01:
            pass
        spent_s.append(time.thread_time() - began_s)

    feed = _feed(busy, threads=2, ahead=1)
    with feed:
        feed.take()
        feed.take()
        feed.settle()
    assert len(spent_s) == 6  # two parts each; of the third batch nothing is counted
    assert 0.04 <= feed.made_in_s < sum(spent_s) - 0.01


def test_its_threads_end_with_it():
    feed = _feed(threads=3, ahead=2)
    with feed:
        feed.take()
        assert len(list(_threads())) == 3
        feed.settle()
    assert list(_threads()) == []


@pytest.mark.parametrize("ahead", [0, 3])
def test_take_raises_a_thread_s_exception(ahead):
    def broken(rows, into):
        raise ValueError("no image")

    feed = _feed(broken, threads=2, ahead=ahead)
    with pytest.raises(ValueError, match="no image"), feed:
        feed.take()
    assert list(_threads()) == []


def test_exceptions_while_making_batches_ahead_are_raised():
    calls = []

    def breaking(rows, into):
        calls.append(rows)
        if len(calls) > 1:
            raise ValueError("no image")

    with _feed(breaking, ahead=1) as feed:
        feed.take()
        with pytest.raises(ValueError, match="no image"):
            feed.settle()


def test_an_exception_cancels_batches_made_ahead():
    gate, calls = threading.Event(), []

    def once(rows, into):
        calls.append(rows)
        if len(calls) == 1:
            raise ValueError("no image")
        gate.wait(60)

    feed = _feed(once, ahead=50)

    def take():
        with pytest.raises(ValueError, match="no image"), feed:
            feed.take()

    taking = threading.Thread(target=take)
    taking.start()
    try:
        eventually(lambda: sum(batch.parts[0].cancelled() for batch in feed._batches) >= 49, 20, "they are given up")
    finally:
        gate.set()
        taking.join(60)
    assert len(calls) <= 2


ROWS = np.array([3, 0, 4, 3])


@pytest.fixture(scope="module", params=[1, 3])
def images(request):
    """Smooth images, because JPEG loses noise: brightness rises to one side and from image to image."""
    values = np.add.outer(np.add.outer(10 * np.arange(5), 5 * np.arange(32)), np.zeros(16))[..., np.newaxis]
    smooth: np.ndarray = (values + 10 * np.arange(request.param)).astype(np.uint8)
    return smooth


def _filled(images, source, scale=1):
    into = np.full((len(ROWS), *images.shape[1:]), np.nan, np.float32)
    store_images(images, source, scale).fill(ROWS, into)
    return into


@pytest.mark.parametrize(("source", "scale"), [("memory", 1), ("png", 1), ("png", 3)])
def test_they_are_exact_where_nothing_is_lossy(images, source, scale):
    np.testing.assert_allclose(_filled(images, source, scale), images[ROWS] / 255, atol=1e-6)


@pytest.mark.parametrize("scale", [1, 4])
def test_a_jpeg_is_the_image_about(images, scale):
    difference = np.abs(_filled(images, "jpeg", scale) - images[ROWS] / 255)
    assert 0 < difference.mean() < 0.05


def test_larger_files_take_more_memory_and_their_size_is_reported():
    digits = mnist.load(Settings(), "sample").train_images[:20]
    memory, png = store_images(digits, "memory"), store_images(digits, "png")
    assert memory.held_bytes == 4 * digits.size
    assert 0 < png.held_bytes < digits.size
    assert store_images(digits, "png", 8).held_bytes > png.held_bytes


def test_the_caller_hears_of_each_file_that_is_made():
    heard: list[int] = []
    store_images(np.zeros((3, 4, 4, 1), np.uint8), "png", 2, heard.append)
    assert heard == [0, 1, 2]
