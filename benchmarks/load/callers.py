"""Ordinary callers: each asks for one thing again and again, and notes how long that took."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus

from benchmarks.load.wire import Line, request

SPEC = {"workload": "matmul", "device": "tpu", "queue_if_absent": True}  # nobody claims it
LISTED = 20


@dataclass
class Noted:
    """Of one stretch of time. `cut`: connections that ended in a question; `broken`: a 5xx that is no 503, or a 503
    that doesn't say when to come back."""

    seconds: dict[str, list[float]] = field(default_factory=dict)
    statuses: Counter[int] = field(default_factory=Counter)
    cut: int = 0
    broken: int = 0

    def all_seconds(self) -> list[float]:
        return [each for of_kind in self.seconds.values() for each in of_kind]

    def note(self, status: int, retry_after: bool) -> None:
        self.statuses[status] += 1
        promised = status == HTTPStatus.SERVICE_UNAVAILABLE and retry_after
        self.broken += status >= HTTPStatus.INTERNAL_SERVER_ERROR and not promised


def percentile(values: Sequence[float], share: float) -> float:
    """By nearest rank; not a number where there are none."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)] if values else math.nan


async def prepared(port: int) -> Mapping[str, bytes]:
    """What is asked, by name; the jobs that it is about are there then."""
    line = Line(port)
    submit = request("POST", "/v1/jobs", json.dumps(SPEC).encode())
    await line.ask(request("GET", "/openapi.json"))  # made when first asked for
    jobs = [json.loads((await line.ask(submit)).body) for _ in range(LISTED)]
    line.close()
    return {
        "job": request("GET", jobs[0]["urls"]["self"]),
        "validate": request("POST", "/v1/jobs?validate_only=true", json.dumps(SPEC).encode()),
        "list": request("GET", f"/v1/jobs?limit={LISTED}"),
    }


async def ask(port: int, questions: Mapping[str, bytes], per_s: Mapping[str, float], for_s: float) -> Noted:
    """Each of `questions` on a connection of its own, so many times a second, whether or not the API keeps up."""
    noted = Noted()
    until_s = time.perf_counter() + for_s
    await asyncio.gather(*(_ask(port, each, questions[each], 1 / per_s[each], until_s, noted) for each in questions))
    return noted


async def _ask(port: int, name: str, question: bytes, every_s: float, until_s: float, noted: Noted) -> None:
    """A question is due at its time: one that waits for the answer to the last takes that much longer."""
    line, took_s = Line(port), noted.seconds.setdefault(name, [])
    due_s = time.perf_counter()
    while due_s < until_s:
        await asyncio.sleep(due_s - time.perf_counter())
        try:
            answer = await line.ask(question)
        except (EOFError, OSError, TimeoutError):
            noted.cut += 1
        else:
            took_s.append(time.perf_counter() - due_s)
            noted.note(answer.status, answer.retry_after)
        due_s += every_s
    line.close()
