"""Pages of events: in order, from any position on, and bounded."""

from __future__ import annotations

import asyncio

import pytest

from dyno.models.api_key import Viewer
from dyno.models.event import (
    GapEvent,
    LogEvent,
    MetricEvent,
    PartialMetricEvent,
    ProgressEvent,
    StatusEvent,
)
from dyno.models.job import Progress
from dyno.models.result import PartialMetrics
from dyno.store.events import EventPage, EventPosition, EventReader, parse_event_position
from dyno.store.leases import Claim, LogPiece
from tests.comparisons import a_metric, of_metrics

pytestmark = pytest.mark.anyio

BEGINNING = EventPosition()
METRICS = [a_metric(), a_metric().model_copy(update={"name": "execution_time"})]


@pytest.fixture
def feed(async_redis, settings):
    return EventReader(async_redis, settings)


@pytest.fixture
async def ended(jobs, a_spec, claim, leases):
    """A job that was claimed, printed, made progress, and succeeded."""
    job_id = (await jobs.submit(a_spec())).job.id
    attempt = claim()
    leases.heartbeat(attempt, Progress(phase="sampling", run=1, runs=1), LogPiece(0, "printed\n"))
    leases.heartbeat(attempt, Progress(phase="verify", run=1, runs=1))
    result = of_metrics(METRICS).model_copy(update={"job": job_id})
    assert leases.finish(attempt, "succeed", result=result)
    return job_id


async def everything(feed, job_id, place=BEGINNING):
    """Read like a client that reconnects after each event; stops after twice the expected number of events."""
    for _ in range(2 * len(LIFE)):
        if not (page := await feed.page(job_id, place)).events:
            return
        yield page.events[0]
        found = parse_event_position(page.events[0].id)
        assert found is not None
        place = found


def words(event):
    match event:
        case StatusEvent():
            return f"{event.event} {event.status}"
        case ProgressEvent():
            return event.progress.phase
        case PartialMetricEvent():
            return f"{event.metric.name} after {event.run} of {event.runs}{event.arm or ''}"
        case MetricEvent():
            return event.metric.name
        case LogEvent():
            return str(event.text)
        case GapEvent():
            return "gap"


LIFE = ["submit queued", "claim running", "printed\n", "sampling", "verify"]
LIFE += ["throughput", "execution_time", "succeed succeeded"]
KEPT = [each for each in LIFE if each != "verify"]  # by the job's own stream, once it is done


async def test_a_jobs_events_are_read_in_order_and_once_from_every_position(feed, ended, worker):
    page = await feed.page(ended, EventPosition())
    assert [words(event) for event in page.events] == KEPT
    assert page.ends
    assert [event.done for event in page.events if isinstance(event, StatusEvent)] == [False, False, True]
    claimed = page.events[1]
    assert isinstance(claimed, StatusEvent)
    assert claimed.worker == worker
    assert [event.version for event in page.events if not isinstance(event, GapEvent)] == [1, 2, 3, 3, 5, 5, 5]
    assert [words(event) async for event in everything(feed, ended)] == KEPT
    assert await feed.page(ended, page.place) == EventPage([], page.place)


async def test_the_stream_of_all_jobs_has_no_end(feed, ended):
    page = await feed.page(None, EventPosition())
    assert [words(event) for event in page.events] == LIFE
    assert not page.ends
    assert page.place == await feed.newest()
    assert [words(event) async for event in everything(feed, None)] == LIFE


async def test_an_event_names_the_owner_if_its_entry_does(feed, jobs, a_spec, claim, leases, client, keys):
    job_id = (await jobs.seen_by(Viewer("key_a")).submit(a_spec())).job.id
    attempt = claim()
    leases.heartbeat(attempt, Progress(phase="sampling", run=1, runs=1), LogPiece(0, "printed\n"))
    leases.finish(attempt, "succeed", result=of_metrics(METRICS).model_copy(update={"job": job_id}))
    client.xadd(keys.events, {"job": job_id, "event": "stop", "status": "canceled", "version": 9, "at": 1})
    assert [event.owner for event in (await feed.page(None, EventPosition())).events] == ["key_a"] * 7 + [None]


async def test_texts_of_events_that_a_viewer_may_not_see_are_not_read(feed, ended, client):
    def read():
        statistics = client.info("commandstats")
        return [statistics[f"cmdstat_{name}"]["calls"] for name in ("get", "hget")]

    everything = await feed.page(None, EventPosition())
    before = read()
    stranger = Viewer("key_a", sees_all=False)
    answers = await asyncio.gather(feed.page(None, EventPosition(), stranger), feed.page(None, EventPosition()))
    assert answers == [EventPage([], everything.place), everything]
    assert read() == [calls + 1 for calls in before]  # for the other who asked
    own = await feed.page(ended, EventPosition(), stranger)
    assert [words(each) for each in own.events] == KEPT


@pytest.fixture
async def halfway(jobs, a_spec, claim, leases):
    """A job of a key's that has ended two runs; the figures of the second were sent twice."""
    await jobs.seen_by(Viewer("key_a")).submit(a_spec())
    attempt: Claim = claim()
    for run, arm in ((1, "first"), (1, "second"), (1, "second")):
        leases.heartbeat(attempt, None, so_far=PartialMetrics(run=run, runs=5, arm=arm, metrics=METRICS))
    return attempt


SO_FAR = [f"{each.name} after 1 of 5{arm}" for arm in ("first", "second") for each in METRICS]


async def test_the_figures_of_the_runs_so_far_are_sent_until_the_job_is_done(feed, halfway, leases, client, keys):
    page = await feed.page(halfway.job_id, BEGINNING)
    assert [words(event) for event in page.events] == [*LIFE[:2], *SO_FAR]
    assert [words(event) async for event in everything(feed, halfway.job_id)] == [*LIFE[:2], *SO_FAR]
    # an id is of its stream alone: Redis 7.0 reads the clock at each XADD
    within = {stream: (await feed.page(stream, BEGINNING)).events[2].id for stream in (halfway.job_id, None)}
    leases.finish(halfway, "succeed", result=of_metrics(METRICS).model_copy(update={"job": halfway.job_id}))
    assert client.exists(keys.partial(halfway.job_id)) == 0
    entries = [fields for _, fields in client.xrange(keys.job_events(halfway.job_id))]
    assert [fields for fields in entries if "partial" in fields] == [{"partial": ""}] * 2, "a reader may be within one"
    for stream, position in within.items():
        assert [words(event) async for event in everything(feed, stream)] == [*LIFE[:2], *LIFE[-3:]]
        rest = await feed.page(stream, parse_event_position(position) or BEGINNING)
        assert [words(event) for event in rest.events] == LIFE[-3:]


async def test_the_figures_of_an_attempt_that_was_handed_back_are_gone(feed, halfway, leases, claim):
    leases.requeue(halfway, reason="worker_shutdown", counts_attempt=False)
    again = claim()
    leases.heartbeat(again, None, so_far=PartialMetrics(run=1, runs=5, metrics=METRICS))
    told = [words(event) async for event in everything(feed, halfway.job_id)]
    assert told == [*LIFE[:2], "requeue queued", "claim running", *(f"{each.name} after 1 of 5" for each in METRICS)]


async def test_figures_that_a_viewer_may_not_see_are_not_read(feed, halfway, client):
    stranger, owner = Viewer("key_b", sees_all=False), Viewer("key_a", sees_all=False)
    before = client.info("commandstats").get("cmdstat_hget", {}).get("calls", 0)
    assert (await feed.page(None, BEGINNING, stranger)).events == []
    assert client.info("commandstats").get("cmdstat_hget", {}).get("calls", 0) == before
    assert [words(event) for event in (await feed.page(None, BEGINNING, owner)).events] == [*LIFE[:2], *SO_FAR]


async def test_a_page_is_bounded_and_the_next_one_continues(feed, jobs, a_spec):
    ids = [(await jobs.submit(a_spec())).job.id for _ in range(40)]
    first = await feed.page(None, EventPosition())
    second = await feed.page(None, first.place)
    assert len(first.events) == 32
    told = [event.job for event in (*first.events, *second.events) if isinstance(event, StatusEvent)]
    assert told == ids


async def test_a_dropped_piece_of_log_is_reported_without_its_text(feed, ended, client, keys):
    client.hdel(keys.log(ended), "0")
    assert [words(event) async for event in everything(feed, ended)] == [
        "None" if w == "printed\n" else w for w in KEPT
    ]


async def test_unreadable_events_are_skipped_and_hide_no_others(feed, ended, client, keys):
    client.xadd(keys.events, {"nothing": "known"})
    client.xadd(keys.events, {"event": "succeed", "status": "succeeded", "log": "0"})
    client.xadd(keys.events, {"job": ended, "event": "promote", "status": "promoted", "version": 9, "at": 1})
    client.xadd(keys.events, {"job": ended, "event": "promote", "status": "running", "version": 9, "at": 1})
    events = (await feed.page(None, EventPosition())).events
    assert [words(event) for event in events] == [*LIFE, "promote running"]


async def test_the_end_of_a_job_with_an_unreadable_result_is_reported(feed, ended, client, keys):
    client.set(keys.result(ended), "{}")
    assert [words(event) for event in (await feed.page(ended, EventPosition())).events] == [*KEPT[:4], KEPT[-1]]


@pytest.mark.parametrize("printed", [0, 150], ids=["written again", "deleted one by one"])
async def test_a_running_job_has_all_its_progress_and_a_done_one_only_its_log(
    feed, jobs, a_spec, claim, leases, client, keys, printed
):
    job_id = (await jobs.submit(a_spec())).job.id
    attempt = claim()
    for number in range(printed):
        leases.heartbeat(attempt, None, LogPiece(number, f"{number}\n"))
    for completed in range(30):
        leases.heartbeat(attempt, Progress(phase="sampling", run=1, runs=1, completed=completed))
    stream = keys.job_events(job_id)
    assert client.xlen(stream) == 2 + printed + 30
    newest = client.xrevrange(stream, count=1)[0][0]
    before = client.xrange(stream, count=2 + printed)
    assert leases.finish(attempt, "fail")
    assert client.xrange(stream)[:-1] == before
    for entry in (newest, before[1][0]):
        assert (await feed.page(job_id, EventPosition(entry))).gap is None
    assert client.xlen(keys.events) == 2 + printed + 30 + 1


async def test_a_reader_of_a_long_job_sees_no_gap_when_it_ends(feed, jobs, a_spec, claim, leases, client, keys):
    job_id = (await jobs.submit(a_spec())).job.id
    attempt = claim()
    for completed in range(3):
        leases.heartbeat(attempt, Progress(phase="sampling", run=1, runs=1, completed=completed))
    client.xtrim(keys.job_events(job_id), maxlen=3, approximate=False)  # as after a thousand events
    place = (await feed.page(job_id, EventPosition())).place
    assert leases.finish(attempt, "stop")
    page = await feed.page(job_id, place)
    assert (page.gap, [words(event) for event in page.events]) == (None, ["stop canceled"])


async def test_a_request_for_dropped_events_gets_a_gap(feed, ended, client, keys):
    first, second, *_ = [event.id for event in (await feed.page(ended, EventPosition())).events]
    assert (await feed.page(ended, EventPosition(first))).gap is None
    client.xtrim(keys.job_events(ended), minid=second, approximate=False)
    assert (await feed.page(ended, EventPosition(first))).gap == GapEvent(id=first, after=first, oldest=second)
    assert (await feed.page(ended, EventPosition())).gap is None
    assert (await feed.page(ended, EventPosition(second))).gap is None


async def test_a_hundred_simultaneous_readers_share_one_request(feed, ended, client):
    def questions():
        return int(client.info("commandstats")["cmdstat_xread"]["calls"])

    one = await feed.page(ended, EventPosition())
    before = questions()
    assert await asyncio.gather(*(feed.page(ended, EventPosition()) for _ in range(100))) == [one] * 100
    assert questions() - before == 1


class Held(EventReader):
    """Counts its requests; the test decides when each is answered."""

    asked, answer = 0, asyncio.Event()

    async def _page(self, job_id, place, viewer):
        self.asked += 1
        found = EventPage([], EventPosition(f"{self.asked}-0"))
        await self.answer.wait()
        return found


async def test_a_reader_that_comes_during_a_request_gets_its_own(async_redis, settings):
    held = Held(async_redis, settings)
    first = asyncio.create_task(held.page("job", EventPosition()))
    while not held.asked:
        await asyncio.sleep(0)
    later = asyncio.create_task(held.page("job", EventPosition()))
    left = asyncio.create_task(held.page("job", EventPosition()))
    while held.asked < 2:
        await asyncio.sleep(0)
    left.cancel()  # which takes nothing from the others
    held.answer.set()
    assert [page.place.entry for page in await asyncio.gather(first, later)] == ["1-0", "2-0"]


async def test_the_stream_of_a_deleted_job_ends(feed, ended, jobs):
    place = (await feed.page(ended, EventPosition())).place
    assert not (await feed.page(ended, place)).ends
    await jobs.delete(ended)
    assert (await feed.page(ended, place)).ends


async def test_events_of_a_deleted_job_are_left_out(feed, ended, jobs, a_spec):
    kept = (await jobs.submit(a_spec())).job.id
    await jobs.delete(ended)
    page = await feed.page(None, EventPosition())
    assert [event.job for event in page.events] == [kept]
    assert page.place == await feed.newest()


@pytest.mark.parametrize(
    "text", ["", "x", "1", "1-", "1-2-3", "1-2.", "-1-2", "1" * 20 + "-0", "1-0.123", "١-٢", "1-0\n"]
)
def test_an_invalid_position_is_refused(text):
    assert parse_event_position(text) is None


@pytest.mark.parametrize(
    "place", [EventPosition(), EventPosition("1763779000000-3"), EventPosition("1763779000000-3", 2)]
)
def test_a_position_survives_its_text_form(place):
    assert parse_event_position(str(place)) == place
