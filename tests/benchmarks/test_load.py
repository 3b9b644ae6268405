from __future__ import annotations

import asyncio
from collections import Counter
from math import isnan

import pytest

from benchmarks.load import page
from benchmarks.load.abuses import ABUSES
from benchmarks.load.callers import Noted, percentile
from benchmarks.load.fanout import Told, tell
from benchmarks.load.measured import Measured, measure
from benchmarks.load.rig import api
from benchmarks.load.steady import Steady


def noted(*seconds: float) -> Noted:
    one = Noted({"job": list(seconds)})
    for _ in seconds:
        one.note(200, retry_after=False)
    return one


def test_a_percentile_is_one_of_the_values() -> None:
    values = [float(value) for value in range(1, 101)]
    assert [percentile(values, share) for share in (0.0, 0.5, 0.99, 1.0)] == [1, 50, 99, 100]
    assert percentile([3.0], 0.99) == 3.0
    assert isnan(percentile([], 0.5))


@pytest.mark.parametrize(
    ("status", "retry_after", "broken"),
    [(500, True, 1), (502, False, 1), (503, False, 1), (503, True, 0), (431, False, 0)],
)
def test_a_5xx_breaks_the_promise_unless_it_says_when_to_come_back(status: int, retry_after: bool, broken: int) -> None:
    one = Noted()
    one.note(status, retry_after)
    assert one.broken == broken


def test_each_round_is_held_against_the_quiet_on_either_side() -> None:
    found = Measured(quiet=[noted(1.0, 2.0), noted(1.0), noted(4.0)], abused=[noted(3.0), noted(6.0, 1.0)])
    assert found.ratios() == [1.5, 1.5]
    assert found.ratio == 1.5
    assert found.asked == (4, 3)
    assert found.failed == 0
    found.abused[0].note(404, retry_after=False)
    found.quiet[1].cut += 2
    assert found.failed == 3


def test_what_misses_an_aim_is_named() -> None:
    good = Measured([noted(1.0), noted(1.0)], [noted(1.9)], peak_bytes=299 * 2**20)
    bad = Measured([noted(1.0), noted(1.0)], [noted(2.5)], Counter({"500": 3}), cut=7, broke=3, peak_bytes=301 * 2**20)
    text = "\n".join(page.lines({"idle": good, "deep": bad, page.ALL_KEPT: good}, 1, 5.0))
    for aim in ("Retry-After: deep (3)", "resident: deep (301)", "more: deep (2.50)"):
        assert aim in " ".join(text.split())
    assert "500 x 3; hung up 7 times" in text
    assert "10,000 connections, 2,500 a second" in text


def test_who_has_not_heard_of_a_submit_is_counted() -> None:
    told = Told(readers=2, sent_s={"a": 1.0, "b": 2.0}, heard_s={"a": [1.1, 1.2], "b": [2.3], "c": [9.0]})
    assert told.delays_s == pytest.approx([0.1, 0.2, 0.3])
    assert told.missed == 1


@pytest.mark.verify
def test_readers_of_a_real_api_hear_of_every_submit() -> None:
    async def run() -> Told:
        with api() as one:
            return await tell(one, 0.5, readers=5)

    told = asyncio.run(run())
    assert (told.readers, told.missed) == (5, 0)
    assert len(told.sent_s) >= 1


def test_one_abuse_is_measured_on_a_real_api() -> None:
    async def run() -> Measured:
        with api() as one:
            return await measure(one, "rubbish", rounds=1, stretch_s=0.3, scale=0.1)

    found = asyncio.run(run())
    assert found.failed == found.broken == 0
    assert min(found.asked) > 0
    assert sum(found.theirs.values()) > 0
    assert found.peak_bytes > found.first_bytes / 2 > 0


def test_submits_and_polls_are_told_apart_and_held_against_their_aims() -> None:
    told = Noted({"submit 0": [0.01, 0.02], "submit 1": [0.03], "poll 0": [0.004]})
    text = "\n".join(page.ordinary(Steady(told, for_s=2.0, core_share=0.5), Told()))
    assert "| submit | 300 | 2 | 20.00 | 30.00 | 50 | 3 |" in text
    assert "| poll | 500 | 0 | 4.00 | 4.00 | 30 | 1 |" in text
    assert "50% of a core" in text


def test_all_that_is_asked_of_the_edge_is_tried() -> None:
    assert {"idle", "slow heads", "200 MB", "deep", "streams"} <= ABUSES.keys()
    assert ABUSES["idle"].count == 10_000
    assert ABUSES["slow heads"].count == 1000
