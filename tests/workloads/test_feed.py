"""What a pipeline hands out, in which order, and that its threads and its faults stay nobody's secret."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np
import pytest

from dyno.workloads._feed import Feed, Float32, Rows
from tests.waiting import eventually

SAMPLES, BATCH = 12, 4


def _numbers(rows: Rows, into: Float32) -> None:
    into[:, 0] = rows


def _feed(fill: Any = _numbers, seed: int = 1, threads: int = 1, ahead: int = 0, samples: int = SAMPLES) -> Feed:
    return Feed(fill, 10 * np.arange(samples), (1,), BATCH, seed, threads, ahead)


def _taken(feed: Feed, batches: int) -> list[list[int]]:
    """The numbers of the samples of each batch, whose targets are ten times those."""
    found = []
    with feed:
        for _ in range(batches):
            inputs, targets = feed.take()
            assert (10 * inputs[:, 0] == targets).all()
            found.append(inputs[:, 0].astype(int).tolist())
        feed.settle()
    return found


def _threads() -> Iterator[str]:
    return (thread.name for thread in threading.enumerate() if thread.name.startswith("feed"))


@pytest.mark.parametrize("threads", [1, 3, 64])
@pytest.mark.parametrize("ahead", [0, 1, 5])
def test_every_sample_comes_once_an_epoch_in_an_order_of_the_seed_alone(threads: int, ahead: int) -> None:
    found = _taken(_feed(threads=threads, ahead=ahead), 6)
    first, second = list(chain(*found[:3])), list(chain(*found[3:]))
    assert sorted(first) == sorted(second) == list(range(SAMPLES))
    assert first != second
    assert found == _taken(_feed(), 6)
    assert found != _taken(_feed(seed=2), 6)


def test_samples_that_make_no_full_batch_are_left_out_of_their_epoch() -> None:
    found = _taken(_feed(samples=BATCH + 3), 20)
    assert all(len(set(batch)) == BATCH for batch in found)
    assert set(chain(*found)) == set(range(BATCH + 3))


def test_what_was_made_ahead_is_taken_after_a_pause_and_nothing_is_lost() -> None:
    feed = _feed(threads=2, ahead=2)
    assert _taken(feed, 1) + _taken(feed, 4) + _taken(feed, 1) == _taken(_feed(), 6)


def test_as_many_batches_lie_ready_after_a_call_as_were_asked_for_ahead() -> None:
    filled = []

    def counting(rows: Rows, into: Float32) -> None:
        filled.append(len(rows))
        _numbers(rows, into)

    feed = _feed(counting, ahead=3)
    for calls in (1, 2, 3):
        _taken(feed, 1)
        assert len(filled) == calls + 3


def test_the_processor_time_of_the_threads_is_that_of_the_batches_taken() -> None:
    spent_s: list[float] = []

    def busy(rows: Rows, into: Float32) -> None:
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


def test_its_threads_end_with_it() -> None:
    feed = _feed(threads=3, ahead=2)
    with feed:
        feed.take()
        assert len(list(_threads())) == 3
        feed.settle()
    assert list(_threads()) == []


@pytest.mark.parametrize("ahead", [0, 3])
def test_what_is_raised_in_a_thread_reaches_who_takes_the_batch(ahead: int) -> None:
    def broken(rows: Rows, into: Float32) -> None:
        raise ValueError("no image")

    feed = _feed(broken, threads=2, ahead=ahead)
    with pytest.raises(ValueError, match="no image"), feed:
        feed.take()
    assert list(_threads()) == []


def test_what_is_raised_while_batches_are_made_ahead_is_not_lost() -> None:
    calls = []

    def breaking(rows: Rows, into: Float32) -> None:
        calls.append(rows)
        if len(calls) > 1:
            raise ValueError("no image")

    with _feed(breaking, ahead=1) as feed:
        feed.take()
        with pytest.raises(ValueError, match="no image"):
            feed.settle()


def test_a_fault_gives_up_what_was_to_be_made_ahead() -> None:
    gate, calls = threading.Event(), []

    def once(rows: Rows, into: Float32) -> None:
        calls.append(rows)
        if len(calls) == 1:
            raise ValueError("no image")
        gate.wait(60)

    feed = _feed(once, ahead=50)

    def take() -> None:
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
