"""API clients that retry until they succeed, and record each accepted job and each cancel request."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any, NamedTuple

import httpx

from chaos.api_keys import ApiKey
from chaos.orders import Order

_ANSWER_S = 10.0
_AGAIN_S = 0.3


class Canceled(NamedTuple):
    """The response to a cancel. `status`: the job's status; missing for a 409."""

    code: int
    status: str


@dataclass
class Answers:
    """The API's responses. `accepted`: the job ids in the 202 responses to each idempotency key.

    `canceling`: the jobs that a client tried to cancel. `cancels`: the responses to these requests.
    """

    accepted: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    canceling: set[str] = field(default_factory=set)
    cancels: defaultdict[str, list[Canceled]] = field(default_factory=lambda: defaultdict(list))
    strange: list[str] = field(default_factory=list)
    again: Counter[str] = field(default_factory=Counter)

    @property
    def ids(self) -> set[str]:
        return set().union(*self.accepted.values())


class Callers:
    """All clients share one pool of connections to `url`, and use `keys` in turn."""

    def __init__(self, url: str, answers: Answers, keys: Sequence[ApiKey] = (ApiKey(),)) -> None:
        self._url, self._answers, self._keys = url, answers, keys

    async def place(self, orders: Iterable[Order], begun_s: float) -> None:
        """Submit each order at its time. Returns when all are answered. `begun_s`: the start on the monotonic clock."""
        limits = httpx.Limits(max_connections=None)
        client = httpx.AsyncClient(base_url=self._url, timeout=_ANSWER_S, limits=limits)
        async with client as http, asyncio.TaskGroup() as group:
            for order, key in zip(orders, cycle(self._keys), strict=False):
                group.create_task(self._see_to(http, order, key, begun_s))

    async def _see_to(self, http: httpx.AsyncClient, order: Order, key: ApiKey, begun_s: float) -> None:
        await asyncio.sleep(begun_s + order.at_s - time.monotonic())
        ids = await asyncio.gather(*(self._submit(http, order, key) for _ in range(2 if order.twice else 1)))
        if order.cancel_after_s is not None and ids[0] is not None:
            await asyncio.sleep(order.cancel_after_s)
            self._answers.canceling.add(ids[0])  # before sending: the cancel may count even if its response is lost
            answer = await self._call(http, {200, 202, 409}, f"/v1/jobs/{ids[0]}/cancel")
            if answer is not None:
                self._answers.cancels[ids[0]].append(Canceled(answer.status_code, str(answer.json().get("status"))))

    async def _submit(self, http: httpx.AsyncClient, order: Order, key: ApiKey) -> str | None:
        headers = {"Idempotency-Key": order.key, **key.headers}
        answer = await self._call(http, {202}, "/v1/jobs", json=order.body, headers=headers)
        if answer is None:
            return None
        job = answer.json()
        job_id = str(job["id"])
        self._answers.accepted[order.key].add(job_id)
        if job.get("owner") != key.id:
            self._answers.strange.append(f"{job_id} is the job of {job.get('owner')}, and {key.id} asked for it")
        return job_id

    async def _call(
        self, http: httpx.AsyncClient, wanted: set[int], path: str, **options: Any
    ) -> httpx.Response | None:
        """POST until it is answered. A 503 must have `Retry-After`; any other refusal is recorded as strange."""
        while True:
            try:
                answer = await http.post(path, **options)
            except httpx.TransportError as error:
                self._answers.again[type(error).__name__] += 1
            else:
                if answer.status_code in wanted:
                    return answer
                if answer.status_code != httpx.codes.SERVICE_UNAVAILABLE or "Retry-After" not in answer.headers:
                    self._answers.strange.append(f"POST {path}: {answer.status_code} {answer.text[:200]}")
                    return None
                self._answers.again["503"] += 1
            await asyncio.sleep(_AGAIN_S)
