"""Live logs in both clients, and logs that end before their job."""

import json

import pytest

from dyno.client import AsyncClient, Refused, ServerUnreachable
from tests.client.stub_server import CUT, Handler, canceled, problem

RUNNING = json.dumps(json.loads(canceled()) | {"status": "running", "done": False}).encode()
PRINTED = "one\nzw\u00f6lf\n"
TEXT = {"Content-Type": "text/plain; charset=utf-8"}


def read(client, job_id="job_1"):
    """The whole log, or a coroutine that returns it."""

    async def awaited():
        return "".join([text async for text in client.follow_logs(job_id)])

    return awaited() if isinstance(client, AsyncClient) else "".join(client.follow_logs(job_id))


def test_a_log_is_read_to_the_end_of_its_job(through):
    Handler.answers = [(200, PRINTED.encode(), TEXT), (200, canceled())]
    assert through(read) == PRINTED
    assert [each["path"] for each in Handler.seen] == ["/v1/jobs/job_1/logs?follow=true", "/v1/jobs/job_1"]


@pytest.mark.parametrize("answers", [[(CUT, b"")], [(200, b"one"), (200, RUNNING)], [(200, b"one"), (CUT, b"")]])
def test_a_log_that_is_cut_off_is_an_error(through, answers):
    Handler.answers = [*answers]
    with pytest.raises(ServerUnreachable):
        through(read)


def test_the_log_of_an_unknown_job_is_refused(through):
    Handler.answers = [(404, problem(404))]
    with pytest.raises(Refused):
        through(lambda client: read(client, "../job_1"))
    assert [each["path"] for each in Handler.seen] == ["/v1/jobs/..%2Fjob_1/logs?follow=true"]
