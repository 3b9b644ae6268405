"""Clients that retry until they succeed, against a server that makes it hard for them."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from contextlib import suppress

import pytest

from chaos.clients import ApiKey, CancelResponse, Responses, submit_all
from chaos.plan import PlannedJob

JOB = PlannedJob("key", 0.0, "tiny", {"workload": "matmul"}, twice=False, cancel_after_s=None)
ACCEPTED = (202, {"id": "job_1"})
AWAY = (503, {"code": "store-unavailable"})
KEY = ApiKey("key_1", "dyno_1")
Answer = tuple[int, Mapping[str, str | None]] | None


class Moody:
    """A server that sends each of `answers` once, and the last one from then on. None closes the connection."""

    def __init__(self, answers, retry_after=True):
        self.asked: list[tuple[str, str | None, str | None, bytes]] = []
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
        self.asked.append((request.split()[1], headers.get("idempotency-key"), headers.get("authorization"), body))
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if answer is None:
            return None
        code, said = answer[0], json.dumps(answer[1])
        return f"HTTP/1.1 {code} Said\r\n{self._retry_after}Content-Length: {len(said)}\r\n\r\n{said}"


def submitted(moody, *jobs, keys=None):
    async def submit():
        responses = Responses()
        async with await asyncio.start_server(moody.serve, "127.0.0.1", 0) as server:
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            await submit_all(url, jobs, time.monotonic(), responses, keys or (ApiKey(),))
        return responses

    return asyncio.run(submit())


def test_a_submit_is_repeated_unchanged_until_it_is_accepted():
    moody = Moody([AWAY, None, ACCEPTED])
    responses = submitted(moody, JOB)
    assert responses.accepted == {"key": {"job_1"}}
    assert moody.asked == [("/v1/jobs", "key", None, b'{"workload":"matmul"}')] * 3
    assert responses.retries == {"503": 1, "RemoteProtocolError": 1}
    assert responses.unexpected == []


def test_a_submit_whose_body_came_too_late_is_repeated():
    """As after the API was stopped between the head of a request and its body."""
    responses = submitted(Moody([(408, {"code": "body-timeout"}), ACCEPTED], retry_after=False), JOB)
    assert responses.accepted == {"key": {"job_1"}}
    assert (responses.retries, responses.unexpected) == ({"408": 1}, [])


def test_two_responses_to_one_key_are_both_recorded():
    responses = submitted(Moody([ACCEPTED, (202, {"id": "job_2"})]), JOB._replace(twice=True))
    assert responses.accepted == {"key": {"job_1", "job_2"}}
    assert responses.ids == {"job_1", "job_2"}


def test_api_keys_take_turns_and_a_submit_is_repeated_with_its_own():
    moody, jobs = Moody([AWAY, *[ACCEPTED] * 4]), [JOB._replace(key=key) for key in "abc"]
    submitted(moody, *jobs, keys=(ApiKey(), KEY))
    assert {asked[1:3] for asked in moody.asked} == {("a", None), ("b", "Bearer dyno_1"), ("c", None)}
    assert len(moody.asked) == 4


@pytest.mark.parametrize(("owner", "unexpected"), [("key_1", 0), ("key_2", 1), (None, 1)])
def test_a_job_of_another_owner_is_unexpected(owner, unexpected):
    assert len(submitted(Moody([(202, {"id": "job_1", "owner": owner})]), JOB, keys=[KEY]).unexpected) == unexpected


def test_a_cancel_is_recorded_before_it_is_sent_and_repeated_until_it_has_a_response():
    moody = Moody([ACCEPTED, None, (409, {"code": "job-finished"})])
    responses = submitted(moody, JOB._replace(cancel_after_s=0.0))
    assert responses.canceling == {"job_1"}
    assert responses.cancels == {"job_1": [CancelResponse(409, "None")]}
    assert [asked[0] for asked in moody.asked] == ["/v1/jobs", *["/v1/jobs/job_1/cancel"] * 2]
    assert responses.unexpected == []


@pytest.mark.parametrize(("answer", "retry_after"), [((500, {}), True), ((422, {}), True), (AWAY, False)])
def test_any_other_response_is_unexpected(answer, retry_after):
    responses = submitted(Moody([answer], retry_after), JOB)
    [unexpected] = responses.unexpected
    assert unexpected.startswith("POST /v1/jobs:")
    assert responses.accepted == {}
