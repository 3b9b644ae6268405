"""Clients that retry until they succeed, against a server that refuses, cuts connections or answers wrongly."""

import asyncio
import json
import time
from contextlib import suppress

import pytest

from chaos.clients import ApiKey, CancelResponse, Responses, submit_all
from chaos.plan import PlannedJob

JOB = PlannedJob("key", 0.0, "tiny", {"workload": "matmul"}, twice=False, cancel_after_s=None)
ACCEPTED = (202, {"id": "job_1"})
AWAY = (503, {"code": "store-unavailable"})
LATE = (408, {"code": "body-timeout"})  # as after the API was stopped between the head of a request and its body
NO_KEY, KEY = ApiKey(), ApiKey("key_1", "dyno_1")


class Moody:
    """A server that sends each of `answers` once, and the last one from then on. None closes the connection."""

    def __init__(self, answers, retry_after=True):
        self.requests = []
        self._answers, self._retry_after = list(answers), "Retry-After: 1\r\n" if retry_after else ""

    async def serve(self, reader, writer):
        with suppress(asyncio.IncompleteReadError):
            while (text := await self._answer(reader)) is not None:
                writer.write(text.encode())
        writer.close()

    async def _answer(self, reader):
        request, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        self.requests.append((request.split()[1], headers.get("idempotency-key"), headers.get("authorization"), body))
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if answer is None:
            return None
        code, text = answer[0], json.dumps(answer[1])
        return f"HTTP/1.1 {code} Said\r\n{self._retry_after}Content-Length: {len(text)}\r\n\r\n{text}"


def submitted(moody, *jobs, keys=(NO_KEY,)):
    async def submit():
        responses = Responses()
        async with await asyncio.start_server(moody.serve, "127.0.0.1", 0) as server:
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            await submit_all(url, jobs, time.monotonic(), responses, keys)
        return responses

    return asyncio.run(submit())


def test_a_submit_is_repeated_unchanged_until_it_is_accepted():
    moody = Moody([AWAY, None, LATE, ACCEPTED])
    responses = submitted(moody, JOB)
    assert responses.accepted == {"key": {"job_1"}}
    assert moody.requests == [("/v1/jobs", "key", None, b'{"workload":"matmul"}')] * 4
    assert responses.retries == {"503": 1, "RemoteProtocolError": 1, "408": 1}
    assert responses.unexpected == []


def test_two_responses_to_one_key_are_both_recorded():
    responses = submitted(Moody([ACCEPTED, (202, {"id": "job_2"})]), JOB._replace(twice=True))
    assert responses.accepted == {"key": {"job_1", "job_2"}}


def test_api_keys_take_turns_and_a_submit_is_repeated_with_its_own():
    moody, jobs = Moody([AWAY, *[ACCEPTED] * 4]), [JOB._replace(key=key) for key in "abc"]
    submitted(moody, *jobs, keys=(NO_KEY, KEY))
    assert {request[1:3] for request in moody.requests} == {("a", None), ("b", "Bearer dyno_1"), ("c", None)}


def test_a_cancel_is_recorded_before_it_is_sent_and_repeated_until_it_has_a_response():
    moody = Moody([ACCEPTED, None, (409, {"code": "job-finished"})])
    responses = submitted(moody, JOB._replace(cancel_after_s=0.0))
    assert responses.canceling == {"job_1"}
    assert responses.cancels == {"job_1": [CancelResponse(409, "None")]}
    assert [request[0] for request in moody.requests] == ["/v1/jobs", *["/v1/jobs/job_1/cancel"] * 2]


@pytest.mark.parametrize(
    ("answer", "retry_after"), [((500, {}), True), (AWAY, False), ((202, {"id": "job_1", "owner": "key_2"}), True)]
)
def test_any_other_response_and_a_job_of_another_owner_are_unexpected(answer, retry_after):
    assert len(submitted(Moody([answer], retry_after), JOB, keys=[KEY]).unexpected) == 1
