"""Server-Sent Events over a real connection: events, the end of a stream, and reconnects.

If events were dropped before a client read them, it gets a `gap` event.
"""

import asyncio
import itertools
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from random import Random

import anyio
import httpx
import pytest
from fastapi import Request
from starlette.background import BackgroundTask

from dyno.client import Client, Refused
from dyno.client import streams as client_streams
from dyno.models.event import LogEvent, MetricEvent, PartialMetricEvent, ProgressEvent, StatusEvent
from dyno.models.job import Holder, Progress
from dyno.models.result import PartialMetrics
from dyno.store.leases import Leases, LogPiece
from dyno.store.placement import queues_served
from dyno.store.redis import Keys
from service import streaming
from service.app import create_app
from tests.comparisons import a_metric, of_metrics
from tests.cutting import Cutting
from tests.waiting import eventually

BEATS, CUTS, CLIENTS = 80, 20, 100


def beat(leases, claim, numbers):
    for number in numbers:
        progress = Progress(phase="sampling", run=1, runs=1, completed=number)
        assert not leases.heartbeat(claim, progress, LogPiece(number, f"{number} \u2028 é\r\n")).superseded


def succeed(leases, claim):
    result = of_metrics([a_metric(), a_metric("loss")]).model_copy(update={"job": claim.job_id})
    assert leases.finish(claim, "succeed", result=result)


def blocks(text):
    return [block for block in text.split("\n\n") if "event:" in block]


def test_events_name_the_process_that_uses_the_awaited_device(http, submitted, client, settings, offered):
    job_id = submitted()
    held_by = Holder(device=offered.full_id, pid=77, command="python -m workers", job="job_1")
    assert Leases(client, settings).pass_over(held_by, queues_served(offered)) == "cpu"
    with Client(str(http.base_url)) as caller:
        first, second = itertools.islice(caller.events(job_id), 2)
    assert isinstance(first, StatusEvent)
    assert isinstance(second, StatusEvent)
    assert (first.reason, first.held_by) == (None, None)
    assert (second.status, second.event, second.reason, second.held_by) == (
        "queued",
        "pass_over",
        "device_busy",
        held_by,
    )


def test_figures_of_the_runs_so_far_are_events_of_their_own(http, claimed):
    leases, claim = claimed()
    metrics = [a_metric(), a_metric("loss")]
    leases.heartbeat(claim, None, so_far=PartialMetrics(run=2, runs=5, metrics=metrics))
    with Client(str(http.base_url)) as caller:
        *_, first, second = itertools.islice(caller.events(claim.job_id), 4)
    for told, metric in zip((first, second), metrics, strict=True):
        assert isinstance(told, PartialMetricEvent)
        assert (told.run, told.runs, told.arm, told.metric) == (2, 5, None, metric)


def test_a_done_jobs_events_are_sent_once(http, claimed):
    leases, claim = claimed()
    beat(leases, claim, range(1))
    succeed(leases, claim)
    path = f"/v1/jobs/{claim.job_id}/events"
    answer = http.get(path)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-accel-buffering"] == "no"
    sent = blocks(answer.text)
    kinds = [re.findall(r"^event: (\w+)$", block, re.MULTILINE) for block in sent]
    assert kinds == [[each] for each in ("status", "status", "log", "progress", "metric", "metric", "status")]
    ids = re.findall(r"^id: (\S+)$", "\n".join(sent), re.MULTILINE)
    assert len(set(ids)) == len(sent)
    assert '"done":true' in sent[-1]
    with http.stream("GET", path, headers={"Last-Event-ID": ids[-1]}) as nothing:  # otherwise the stream is endless
        assert nothing.status_code == 204
    for at, last in enumerate(ids):
        for again in (http.get(path, headers={"Last-Event-ID": last}), http.get(path, params={"last_event_id": last})):
            assert blocks(again.text) == sent[at + 1 :]
            assert again.status_code == (204 if at == len(ids) - 1 else 200)
    by_header = http.get(path, headers={"Last-Event-ID": ids[4]}, params={"last_event_id": ids[0]})
    assert blocks(by_header.text) == sent[5:]


def test_all_jobs_events_start_now_or_after_the_last_event_id(http, claimed):
    leases, claim = claimed()
    with http.stream("GET", "/v1/events") as answer:
        lines = answer.iter_lines()
        here = next(line for line in lines if line.startswith("id: ")).removeprefix("id: ")
        leases.finish(claim, "fail", status_reason="timeout")
        data = next(line for line in lines if line.startswith("data: "))
        assert f'"job":"{claim.job_id}"' in data
        assert '"reason":"timeout"' in data
    with http.stream("GET", "/v1/events", headers={"Last-Event-ID": here}) as answer:
        assert next(line for line in answer.iter_lines() if line.startswith("data: ")) == data


@pytest.mark.parametrize("path", ["/v1/events", "/v1/jobs/{}/events"])
@pytest.mark.parametrize("last", ["x", "1-0; drop", "$", "1" * 25])
def test_an_invalid_event_id_is_refused(http, submitted, path, last):
    url = path.format(submitted())
    for answer, at in (
        (http.get(url, headers={"Last-Event-ID": last}), "/header/last-event-id"),
        (http.get(url, params={"last_event_id": last}), "/query/last_event_id"),
        (http.get(url, headers={"Last-Event-ID": "0-0"}, params={"last_event_id": last}), "/query/last_event_id"),
    ):
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid-request")
        assert [error["pointer"] for error in answer.json()["errors"]] == [at]


def test_an_unknown_job_has_no_events(http):
    assert http.get(f"/v1/jobs/job_{'0' * 26}/events").json()["code"] == "job-not-found"
    with Client(str(http.base_url)) as api, pytest.raises(Refused):
        next(api.events(f"job_{'0' * 26}"))


def test_a_silent_connection_sends_signs_of_life(http, submitted, monkeypatch):
    monkeypatch.setattr(streaming, "LOOK_EVERY_S", 0.05)
    with http.stream("GET", f"/v1/jobs/{submitted()}/events") as answer:
        comments = (line for line in answer.iter_lines() if line.startswith(":"))
        assert len(list(itertools.islice(comments, 3))) == 3


def test_event_streams_end_when_the_service_stops(settings, offered, serve, monkeypatch):
    monkeypatch.setattr(streaming, "LOOK_EVERY_S", 600.0)
    app = create_app(settings)
    app.add_api_route("/stop", _stop)
    with serve(app) as http, http.stream("GET", "/v1/events") as answer:
        pieces = answer.iter_bytes()
        next(pieces)
        assert http.get("/stop").status_code == 200
        assert b"".join(pieces) == b""


async def _stop(request: Request):
    """Stop the service as a signal does."""
    request.app.state.stopping.set()


def test_events_count_as_open_streams(settings, offered, serve):
    with serve(create_app(settings.model_copy(update={"max_streams": 1}))) as http:
        with http.stream("GET", "/v1/events"):
            assert http.get("/v1/events").json()["code"] == "too-many-streams"
        eventually(lambda: _opens(http))


def _opens(http):
    with http.stream("GET", "/v1/events") as answer:
        return answer.status_code == 200


def test_a_hundred_readers_get_all_events_over_few_redis_connections(http, claimed, client):
    leases, claim = claimed()

    async def read():
        reader, writer = await asyncio.open_connection(http.base_url.host, http.base_url.port)
        writer.write(f"GET /v1/jobs/{claim.job_id}/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        text = await reader.readuntil(b"claim")
        opened.release()
        text += await reader.readuntil(b'"done":true')
        writer.close()
        return text

    async def read_all():
        readers = [asyncio.create_task(read()) for _ in range(CLIENTS)]
        for _ in readers:
            await opened.acquire()
        await asyncio.to_thread(beat, leases, claim, range(10))
        await asyncio.to_thread(succeed, leases, claim)
        return await asyncio.gather(*readers)

    opened = asyncio.Semaphore(0)
    texts = asyncio.run(asyncio.wait_for(read_all(), 60))
    assert {text.count(b"event: ") for text in texts} == {2 + 10 * 2 + 3}
    assert int(client.info("clients")["connected_clients"]) < CLIENTS


def test_a_repeatedly_cut_client_misses_and_repeats_no_event(http, claimed, monkeypatch):
    monkeypatch.setattr(client_streams, "RETRY_S", 0.0)
    places = Random(7)
    leases, claim = claimed()
    beat(leases, claim, range(BEATS // 2))

    def live_on():
        beat(leases, claim, range(BEATS // 2, BEATS))
        succeed(leases, claim)

    cuts = [places.randrange(2000) for _ in range(CUTS)]
    with Cutting(http.base_url.port, cuts) as network, Client(network.url) as api:
        with ThreadPoolExecutor(1) as background:
            living = background.submit(live_on)
            told = list(api.events(claim.job_id))
            living.result()
        assert (network.cuts, network.resets) == ([], CUTS)
    _assert_whole(told)


def _assert_whole(told):
    assert [each.text for each in told if isinstance(each, LogEvent)] == [f"{n} \u2028 é\r\n" for n in range(BEATS)]
    assert [each.progress.completed for each in told if isinstance(each, ProgressEvent)] == list(range(BEATS))
    assert [each.metric.name for each in told if isinstance(each, MetricEvent)] == ["throughput", "loss"]
    assert [each.event for each in told if isinstance(each, StatusEvent)] == ["submit", "claim", "succeed"]
    assert len(told) == 2 * BEATS + 2 + 3


@asynccontextmanager
async def asking(app):
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as http:
        yield http


async def two_pieces(error=None):
    yield "first"
    if error is not None:
        raise error
    yield "last"


@pytest.mark.anyio
async def test_a_stream_ends_with_its_last_piece_and_runs_its_background_task():
    done = []
    async with asking(
        streaming.TimedStream(two_pieces(), background=BackgroundTask(done.append, "afterwards"))
    ) as http:
        answer = await http.get("/")
    assert (answer.text, done) == ("firstlast", ["afterwards"])


@pytest.mark.anyio
async def test_an_error_in_a_stream_reaches_the_server():
    async with asking(streaming.TimedStream(two_pieces(KeyError("a fault of ours")))) as http:
        with pytest.raises(KeyError, match="a fault of ours"):
            await http.get("/")


@pytest.mark.anyio
async def test_a_stuck_reader_is_dropped(monkeypatch):
    monkeypatch.setattr(streaming, "TAKEN_WITHIN_S", 0.05)
    given = []

    async def pieces():
        for piece in ("first", "second"):
            given.append(piece)
            yield piece

    async def receive():
        await anyio.sleep_forever()
        raise AssertionError

    async def send(message):
        if given:
            await anyio.sleep_forever()

    with anyio.fail_after(10):
        await streaming.TimedStream(pieces())({"type": "http", "asgi": {"spec_version": "2.3"}}, receive, send)
    assert given == ["first"]


def test_a_reader_that_reconnects_too_late_gets_a_gap_event(http, claimed, client, settings):
    leases, claim = claimed()
    beat(leases, claim, range(3))
    stream = Keys(settings.namespace).job_events(claim.job_id)
    entries = [entry for entry, _ in client.xrange(stream)]
    client.xtrim(stream, minid=entries[2], approximate=False)
    succeed(leases, claim)
    with Client(str(http.base_url)) as api:
        late = [event.kind for event in api.events(claim.job_id, after=entries[0])]
        assert late[:3] == ["gap", "log", "progress"]
        assert "gap" not in [event.kind for event in api.events(claim.job_id, after=entries[2])]


def test_events_dropped_while_reading_are_reported_as_a_gap(http, claimed, client, settings, monkeypatch):
    leases, claim = claimed()
    stream, waits = Keys(settings.namespace).job_events(claim.job_id), threading.Semaphore(0)

    async def until_the_end(state, told, timeout_s):
        """Replaces the wait for news: the reader continues when all is over, like a slow one."""
        waits.release()
        await asyncio.to_thread(over.wait)

    over = threading.Event()
    monkeypatch.setattr(streaming, streaming.wait_for_news.__name__, until_the_end)
    with http.stream("GET", f"/v1/jobs/{claim.job_id}/events") as answer:
        assert waits.acquire(timeout=30)
        beat(leases, claim, range(3))
        succeed(leases, claim)
        newest = client.xrevrange(stream, count=1)[0][0]
        client.xtrim(stream, minid=newest, approximate=False)
        over.set()
        kinds = [line for line in answer.iter_lines() if line.startswith("event: ")]
    assert kinds == [f"event: {kind}" for kind in ("status", "status", "gap", "metric", "metric", "status")]
