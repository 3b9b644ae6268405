"""What is counted of ordinary clients and abusers, on figures made by hand and for a moment on a real API."""

from __future__ import annotations

import asyncio
from collections import Counter
from math import isnan

import pytest

from benchmarks.load import __main__ as page
from benchmarks.load.clients import Recorded
from benchmarks.load.measurements import Fanout, Measured, api, measure, measure_fanout
from benchmarks.pairs import percentile


def recorded(*seconds: float) -> Recorded:
    one = Recorded({"job": list(seconds)})
    for _ in seconds:
        one.add(200, retry_after=False)
    return one


def test_a_percentile_is_one_of_the_values() -> None:
    values = [float(value) for value in range(1, 101)]
    assert [percentile(values, share) for share in (0.0, 0.5, 0.99, 1.0)] == [1, 50, 99, 100]
    assert isnan(percentile([], 0.5))


@pytest.mark.parametrize(
    ("status", "retry_after", "broken"),
    [(500, True, 1), (502, False, 1), (503, False, 1), (503, True, 0), (431, False, 0)],
)
def test_a_5xx_breaks_the_promise_unless_it_is_a_503_with_retry_after(
    status: int, retry_after: bool, broken: int
) -> None:
    one = Recorded()
    one.add(status, retry_after)
    assert one.broken == broken


def test_each_round_is_compared_with_the_quiet_on_either_side() -> None:
    found = Measured([recorded(1.0, 2.0), recorded(1.0), recorded(4.0)], [recorded(3.0), recorded(6.0, 1.0)])
    assert found.ratios() == [1.5, 1.5]
    assert found.ratio == 1.5
    assert found.asked == (4, 3)
    assert found.failed == 0
    found.abused[0].add(404, retry_after=False)
    found.quiet[1].cut += 2
    assert found.failed == 3


def test_the_page_names_each_missed_aim() -> None:
    quiet = [recorded(1.0), recorded(1.0)]
    good = Measured(quiet, [recorded(1.9)], peak_bytes=299 * 2**20)
    abuser = Recorded(statuses=Counter({500: 3}), cut=7, broken=3)
    bad = Measured(quiet, [recorded(2.5)], abuser, peak_bytes=301 * 2**20)
    text = " ".join(" ".join(page.abuse_lines({"idle": good, "deep": bad, page.ALL_KEPT: good}, 1, 5.0)).split())
    for aim in ("Retry-After: deep (3)", "resident: deep (301)", "more: deep (2.50)"):
        assert aim in text
    assert "500 x 3; hung up 7 times" in text


def test_events_that_a_reader_missed_are_counted() -> None:
    found = Fanout(readers=2, sent_s={"a": 1.0, "b": 2.0}, heard_s={"a": [1.1, 1.2], "b": [2.3], "c": [9.0]})
    assert found.delays_s == pytest.approx([0.1, 0.2, 0.3])
    assert found.missed == 1


@pytest.mark.verify
def test_readers_of_a_real_api_hear_of_every_submit() -> None:
    async def run() -> Fanout:
        with api() as one:
            return await measure_fanout(one, 0.5, readers=5)

    found = asyncio.run(run())
    assert (found.readers, found.missed) == (5, 0)
    assert len(found.sent_s) >= 1


def test_one_abuse_is_measured_on_a_real_api() -> None:
    async def run() -> Measured:
        with api() as one:
            return await measure(one, "rubbish", rounds=1, stretch_s=0.3, scale=0.1)

    found = asyncio.run(run())
    assert found.failed == found.broken == 0
    assert min(found.asked) > 0
    assert sum(found.abuser.statuses.values()) > 0
    assert found.peak_bytes > found.first_bytes / 2 > 0
