"""Series of figures: written in the step that writes the result, bounded, and never blocking a result."""

from __future__ import annotations

import pytest

from dyno.models.job import Failure, FailureClass
from dyno.models.result import Headline, Peer, Result
from dyno.store.leases import PEERS_KEPT, PEERS_LIFE_S
from tests.results import a_result

pytestmark = pytest.mark.anyio


@pytest.fixture
def finished(jobs, a_spec, claim, leases):
    """Ends a new job with a headline figure."""

    async def finish(value=1.0, series="s"):
        await jobs.submit(a_spec())
        held = claim()
        assert leases.finish(held, "succeed", result=a_result(held.job_id), headline=the(held, value, series))
        return held

    return finish


def the(claim, value=1.0, series="s"):
    return Headline(series, Peer(job=claim.job_id, value=value, hardware_id="hw_1", context_id="ctx_1", runs=5))


def values(leases, series="s"):
    return [peer.value for peer in leases.peers(series)]


async def test_figures_come_back_newest_first_each_from_its_own_series(finished, leases):
    first = await finished(1.5)
    await finished(2.5)
    await finished(9.0, "another")
    assert values(leases) == [2.5, 1.5]
    assert values(leases, "another") == [9.0]
    assert leases.peers("s")[1] == the(first, 1.5).own
    assert leases.peers("unknown") == []


async def test_a_repeated_ending_adds_its_figure_once(finished, leases):
    held = await finished()
    assert leases.finish(held, "succeed", result=a_result(held.job_id), headline=the(held))
    assert values(leases) == [1.0]


async def test_an_ending_without_a_figure_adds_nothing(jobs, a_spec, claim, leases, client, keys):
    failure = Failure(failure_class=FailureClass.BENCHMARK, reason="r", message="m")
    for result in (None, "a result"):
        await jobs.submit(a_spec())
        held = claim()
        known: Result | None = a_result(held.job_id) if result else None
        assert leases.finish(held, "succeed" if known else "fail", result=known, failure=None if known else failure)
    assert not client.keys(keys.peers("*"))


async def test_a_series_keeps_its_newest_figures_and_goes_when_no_more_come(finished, leases, client, keys):
    client.lpush(
        keys.peers("s"), *[Peer(job="job", value=place, runs=5).model_dump_json() for place in range(PEERS_KEPT)]
    )
    await finished(99.0)
    assert values(leases) == [99.0, *reversed(range(1, PEERS_KEPT))]
    assert PEERS_LIFE_S - 60 < client.ttl(keys.peers("s")) <= PEERS_LIFE_S


async def test_the_figure_outlives_its_job(finished, leases, client, keys):
    held = await finished(3.0)
    assert 0 < client.ttl(keys.job(held.job_id)) < client.ttl(keys.peers("s"))
    client.delete(keys.job(held.job_id), keys.result(held.job_id))
    assert values(leases) == [3.0]


async def test_figures_of_another_version_are_skipped(finished, leases, client, keys):
    await finished(3.0)
    client.lpush(keys.peers("s"), "no json", '{"job": "job"}', '{"job": "job", "value": 4, "runs": 5, "later": []}')
    assert values(leases) == [4.0, 3.0]


async def test_a_damaged_series_of_figures_does_not_prevent_a_result(finished, jobs, client, keys):
    client.set(keys.peers("s"), "no list")
    held = await finished()
    assert (await jobs.result(held.job_id)).job == held.job_id
    assert (await jobs.get(held.job_id)).done
