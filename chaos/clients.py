"""Clients of the API that retry until they succeed, and record each response."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any, NamedTuple

import httpx
import redis

from chaos.plan import PlannedJob
from dyno.models.api_key import digest_of, id_of, new_secret, prefix_of
from dyno.store.redis import Keys

_TIMEOUT_S, _RETRY_S = 10.0, 0.3


class ApiKey(NamedTuple):
    """`id`: the owner of jobs submitted with `secret`. Both are None if no key is sent."""

    id: str | None = None
    secret: str | None = None


def make_api_keys(client: redis.Redis, keys: Keys) -> list[ApiKey]:
    """No key, and two keys. They aren't in the store's list, so requests without a key are allowed."""
    made = [ApiKey()]
    for name in ("one", "other"):
        secret = new_secret()
        digest = digest_of(secret)
        record: dict[Any, Any] = {"name": name, "scope": "submit", "prefix": prefix_of(secret), "digest": digest}
        more = {"created_at": f"{time.time():.6f}", "high_priority": 1}
        client.hset(keys.api_key(id_of(digest)), mapping=record | more)
        made.append(ApiKey(id_of(digest), secret))
    return made


class CancelResponse(NamedTuple):
    """`status`: the job's status; missing for a 409."""

    code: int
    status: str


@dataclass
class Responses:
    """`accepted`: the job ids in the 202 responses to each idempotency key. `retries`: by their reason.

    `canceling`: the jobs that a client tried to cancel. `cancels`: the responses to these requests.
    """

    accepted: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    canceling: set[str] = field(default_factory=set)
    cancels: defaultdict[str, list[CancelResponse]] = field(default_factory=lambda: defaultdict(list))
    unexpected: list[str] = field(default_factory=list)
    retries: Counter[str] = field(default_factory=Counter)

    @property
    def ids(self) -> set[str]:
        return set().union(*self.accepted.values())


class JobView(NamedTuple):
    """Status codes and bodies of the responses for a job and its result. 0: no response."""

    code: int
    job: Mapping[str, Any]
    result_code: int
    result: Mapping[str, Any]


async def submit_all(
    url: str, jobs: Iterable[PlannedJob], begun_s: float, responses: Responses, keys: Sequence[ApiKey] = (ApiKey(),)
) -> None:
    """Submit each job at its time, with `keys` in turn. Returns when all requests have a response.

    `begun_s`: the start on the monotonic clock.
    """
    limits = httpx.Limits(max_connections=None)
    client = httpx.AsyncClient(base_url=url, timeout=_TIMEOUT_S, limits=limits)
    async with client as http, asyncio.TaskGroup() as group:
        for job, key in zip(jobs, cycle(keys), strict=False):
            group.create_task(_submit_and_cancel(http, job, key, begun_s, responses))


async def _submit_and_cancel(
    http: httpx.AsyncClient, job: PlannedJob, key: ApiKey, begun_s: float, responses: Responses
) -> None:
    await asyncio.sleep(begun_s + job.at_s - time.monotonic())
    submits = (_submit(http, job, key, responses) for _ in range(2 if job.twice else 1))
    job_id, *_ = await asyncio.gather(*submits)
    if job.cancel_after_s is not None and job_id is not None:
        await asyncio.sleep(job.cancel_after_s)
        responses.canceling.add(job_id)  # before sending: the cancel may count even if its response is lost
        response = await _request(http, "POST", f"/v1/jobs/{job_id}/cancel", responses.retries)
        if _is_expected(response, {200, 202, 409}, responses):
            status = str(response.json().get("status"))
            responses.cancels[job_id].append(CancelResponse(response.status_code, status))


async def _submit(http: httpx.AsyncClient, planned: PlannedJob, key: ApiKey, responses: Responses) -> str | None:
    headers = {"Idempotency-Key": planned.key} | ({"Authorization": f"Bearer {key.secret}"} if key.secret else {})
    response = await _request(http, "POST", "/v1/jobs", responses.retries, json=planned.body, headers=headers)
    if not _is_expected(response, {202}, responses):
        return None
    job = response.json()
    responses.accepted[planned.key].add(str(job["id"]))
    if job.get("owner") != key.id:
        responses.unexpected.append(f"{job['id']} belongs to {job.get('owner')}; {key.id} submitted it")
    return str(job["id"])


def _is_expected(response: httpx.Response, codes: set[int], responses: Responses) -> bool:
    """Any other response is recorded as unexpected."""
    if response.status_code not in codes:
        responses.unexpected.append(f"POST {response.url.path}: {response.status_code} {response.text[:200]}")
    return response.status_code in codes


async def _request(
    http: httpx.AsyncClient, method: str, path: str, retries: Counter[str], until_s: float = math.inf, **options: Any
) -> httpx.Response:
    """Repeat the request while the response asks for it, at most until `until_s` on the monotonic clock.

    Without any response, the code is 0.
    """
    response = httpx.Response(0)
    while time.monotonic() < until_s:
        try:
            response = await http.request(method, path, **options)
            if not _asks_to_repeat(response):
                return response
            retries[str(response.status_code)] += 1
        except httpx.TransportError as error:
            retries[type(error).__name__] += 1
        await asyncio.sleep(_RETRY_S)
    return response


def _asks_to_repeat(response: httpx.Response) -> bool:
    """503 with `Retry-After`. Also 408: after a STOP, the API may find that the time for a body is over."""
    if response.status_code == httpx.codes.REQUEST_TIMEOUT:
        return True
    return response.status_code == httpx.codes.SERVICE_UNAVAILABLE and "Retry-After" in response.headers


async def read_jobs(url: str, ids: Iterable[str], within_s: float) -> dict[str, JobView]:
    """Read all jobs. All faults are over, so each request must get a response, though it may take a moment."""
    found = dict[str, JobView]()
    async with httpx.AsyncClient(base_url=url) as http:
        for job in sorted(ids):
            until_s = time.monotonic() + within_s  # per job: thousands of jobs take minutes on a busy machine
            answers = [
                await _request(http, "GET", f"/v1/jobs/{job}{part}", Counter(), until_s) for part in ("", "/result")
            ]
            bodies = [answer.json() if answer.content else {} for answer in answers]
            found[job] = JobView(answers[0].status_code, bodies[0], answers[1].status_code, bodies[1])
    return found
