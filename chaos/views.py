"""Checks the API's final responses: GET of every job and its result, and the outcome of every cancel."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import httpx

from chaos.breach import Breach, Violation
from chaos.calls import Canceled
from chaos.spans import Span, clear_s
from chaos.streams import Event
from chaos.table import CANCELED, DONE, FAILED, GIVEN_BACK, SUCCEEDED

HEARD_WITHIN_S = 5.0  # the promised time for a cancel to reach the worker
_AT_ONCE = 8
_AGAIN_S = 0.1


class View(NamedTuple):
    """Status codes and bodies of the responses for a job and its result. 0: no response."""

    code: int
    job: Mapping[str, Any]
    result_code: int
    result: Mapping[str, Any]


async def look(url: str, ids: Iterable[str], within_s: float) -> dict[str, View]:
    """Read all jobs. All faults are over, so each request must get a response, though it may take a moment."""
    turn, deadline_s = asyncio.Semaphore(_AT_ONCE), time.monotonic() + within_s

    async def got(http: httpx.AsyncClient, path: str) -> tuple[int, Mapping[str, Any]]:
        code = 0
        while time.monotonic() < deadline_s:
            try:
                answer = await http.get(path)
            except httpx.TransportError:
                code = 0
            else:
                code = answer.status_code
                if code != httpx.codes.SERVICE_UNAVAILABLE:
                    return code, answer.json()
            await asyncio.sleep(_AGAIN_S)
        return code, {}

    async def view(http: httpx.AsyncClient, job: str) -> View:
        async with turn:
            return View(*await got(http, f"/v1/jobs/{job}"), *await got(http, f"/v1/jobs/{job}/result"))

    wanted = sorted(ids)
    async with httpx.AsyncClient(base_url=url) as http:
        return dict(zip(wanted, await asyncio.gather(*(view(http, job) for job in wanted)), strict=True))


def untrue(views: Mapping[str, View], by_job: Mapping[str, Sequence[Event]]) -> Iterator[Violation]:
    """Each job is found, done, and agrees with its stream: a succeeded job has a result, a failed one a failure."""
    for job, view in views.items():
        for fault in _untrue(job, view, by_job.get(job, ())):
            yield Violation(Breach.VIEW, f"{job}: {fault}")


def _untrue(job: str, view: View, events: Sequence[Event]) -> Iterator[str]:
    end = next((event for event in events if event.status in DONE), None)
    if view.code != httpx.codes.OK:
        yield f"GET is answered {view.code}"
        return
    if end is None:  # a lost job, which the checker reports
        return
    said = (view.job.get("id"), view.job.get("status"), view.job.get("done"))
    if said != (job, end.status, True):
        yield f"GET says {said}, its stream {end.status}"
    if _seconds(view.job.get("finished_at")) != end.at:
        yield f"GET says that it ended at {view.job.get('finished_at')}, its stream {end.at}"
    failure = (view.job.get("failure") or {}).get("reason")
    if failure != (end.detail if end.status == FAILED else None):
        yield f"GET says failure {failure}, and it is {end.status} for {end.detail}"
    wanted = httpx.codes.OK if end.status == SUCCEEDED else httpx.codes.CONFLICT
    if view.result_code != wanted:
        yield f"it is {end.status}, and GET of its result is answered {view.result_code}"
    elif end.status == SUCCEEDED and (view.result.get("job") != job or not view.result.get("runs")):
        yield f"its result is of {view.result.get('job')}, with {len(view.result.get('runs') or ())} runs"


def unkept(
    cancels: Mapping[str, Sequence[Canceled]], by_job: Mapping[str, Sequence[Event]], faults: Sequence[Span]
) -> Iterator[Violation]:
    """Violations of the promises for cancels. `cancels`: the response to each.

    409: the job had ended in another way before. 200: the job has ended as the response says. 202: the job runs, and
    its worker gets the request. It ends canceled, or as the attempt ended before the worker got the request. No further
    attempt follows, and HEARD_WITHIN_S without a fault are enough to get it. The same holds for a 200 with another
    status than canceled, because the API read the job once more after the cancel.
    """
    for job, answers in cancels.items():
        for answer in answers:
            for fault in _unkept(answer, by_job.get(job, ()), faults):
                yield Violation(Breach.CANCEL, f"{job}, canceled and answered {answer.code}: {fault}")


def _unkept(answer: Canceled, events: Sequence[Event], faults: Sequence[Span]) -> Iterator[str]:
    ended = next((event for event in events if event.status in DONE), None)
    if ended is None:
        return
    if answer.code == httpx.codes.CONFLICT:
        if ended.status == CANCELED:
            yield "it ended canceled all the same"
        return
    if answer.code == httpx.codes.OK and answer.status != ended.status:
        yield f"it was {answer.status}, and ended {ended.status}"
    if answer.code == httpx.codes.ACCEPTED or answer.status != CANCELED:
        yield from _unheard(events, ended, faults)


def _unheard(events: Sequence[Event], ended: Event, faults: Sequence[Span]) -> Iterator[str]:
    asked = next((number for number, event in enumerate(events) if event.event == "cancel"), None)
    if asked is None:
        yield "its stream knows of no cancel"
        return
    if back := [event.event for event in events[asked:] if event.event in {*GIVEN_BACK, "exhaust"}]:
        yield f"{back[0]} came after it, not its end"
    late_s = clear_s(events[asked].at_s, ended.at_s, faults)
    if ended.status != CANCELED and late_s > HEARD_WITHIN_S:
        yield f"it ended {ended.status}, after {late_s:.1f} s without a fault in which its worker could have heard"


def _seconds(moment: str | None) -> str:
    """The end of the job in its stream."""
    return f"{datetime.fromisoformat(moment).timestamp():.6f}" if moment else ""
