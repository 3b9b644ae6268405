"""What callers see in the end, of a real API over a real Redis, and whether their cancels were kept."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
import redis

from chaos import streams, views
from chaos.breach import Breach
from chaos.calls import Canceled
from chaos.spans import Span
from chaos.streams import Event
from dyno.models.result import Phases, RunSummary
from dyno.settings import Settings
from service.app import create_app
from tests.chaos.test_records import Lives
from tests.service.conftest import serving

RUN = RunSummary(
    process_start="forked",
    pid=1,
    median=None,
    samples=1,
    executions_per_sample=1,
    warmup_samples=0,
    steady=True,
    stopped_because="tested",
    phases=Phases(),
    started_at_s=1.0,
).model_dump_json()


def test_what_the_api_answers_is_held_against_the_streams(client: redis.Redis, settings: Settings) -> None:
    lives = Lives(client, settings)
    ids = [lives.submitted() for _ in range(6)]
    for _ in ids[:3]:
        lives.ended(lives.claimed())
    for _ in ids[3:5]:
        lives.ended(lives.claimed(), "fail")
    lives.canceled(ids[5])
    for job in ids[:3]:
        text = str(client.get(lives.keys.result(job)))
        client.set(lives.keys.result(job), text.replace('"runs":[]', f'"runs":[{RUN}]'))
    found = streams.read(client, lives.keys)

    with serving(create_app(settings)) as http:
        url = str(http.base_url)
        sound = asyncio.run(views.look(url, ids, 60))
        assert list(views.untrue(sound, found.by_job)) == []
        client.delete(lives.keys.result(ids[0]))
        client.hset(lives.keys.job(ids[1]), "status", "failed")
        client.delete(lives.keys.job(ids[2]))
        client.hdel(lives.keys.job(ids[3]), "failure")
        client.hset(lives.keys.job(ids[4]), "finished_at", "1000.000000")
        client.set(lives.keys.result(ids[5]), str(client.get(lives.keys.result(ids[1]))))
        told = list(views.untrue(asyncio.run(views.look(url, ids, 60)), found.by_job))

    wrong = [
        "result is answered 409",
        "GET says",
        "answered 404",
        "failure None",
        "it ended at",
        "result is answered 200",
    ]
    for job, what in zip(ids, wrong, strict=True):
        assert [each for each in told if job in each.what and what in each.what], what
    assert {violation.breach for violation in told} == {Breach.VIEW}


def test_an_api_that_never_answers_is_told_of() -> None:
    seen = asyncio.run(views.look("http://127.0.0.1:9", ["job"], 0.2))
    [violation] = views.untrue(seen, {})
    assert violation.what == "job: GET is answered 0"


Told = tuple[float, str, str]
RUNS: Sequence[Told] = ((0, "submit", "queued"), (1, "claim", "running"))
ASKED = (2, "cancel", "running")


def unkept(code: int, *told: Told, says: str = "running", faults: Sequence[Span] = ()) -> list[str]:
    """`says`: the status in the answer to the cancel."""
    events = [Event(at_s, "a", event, status, 1) for at_s, event, status in told]
    return [violation.what for violation in views.unkept({"a": [Canceled(code, says)]}, {"a": events}, faults)]


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (202, [*RUNS, ASKED, (3, "stop", "canceled")]),
        (202, [*RUNS, ASKED, (3, "succeed", "succeeded")]),  # before its worker heard
        (202, [*RUNS, ASKED, (3, "fail", "failed")]),
        (202, [*RUNS, ASKED, (60, "stop", "canceled")]),
        (409, [*RUNS, (3, "succeed", "succeeded")]),
    ],
)
def test_a_cancel_that_was_kept_is_no_violation(code: int, told: list[Told]) -> None:
    assert unkept(code, *told) == []


@pytest.mark.parametrize(
    ("code", "told", "what"),
    [
        (202, [*RUNS, ASKED, (9, "succeed", "succeeded")], "after 7.0 s without a fault"),
        (202, [*RUNS, (3, "succeed", "succeeded")], "knows of no cancel"),
        (
            202,
            [*RUNS, ASKED, (3, "requeue", "queued"), (4, "claim", "running"), (5, "stop", "canceled")],
            "requeue came",
        ),
        (202, [*RUNS, ASKED, (3, "exhaust", "failed")], "exhaust came"),
        (409, [*RUNS, ASKED, (3, "stop", "canceled")], "it ended canceled all the same"),
    ],
)
def test_a_cancel_that_was_not_kept_is_found(code: int, told: list[Told], what: str) -> None:
    assert what in unkept(code, *told)[0]


def test_a_200_says_how_the_job_has_ended() -> None:
    canceled = [*RUNS[:1], (1, "cancel", "canceled")]
    assert unkept(200, *canceled, says="canceled") == []
    raced = [*RUNS, ASKED, (3, "succeed", "succeeded")]
    assert unkept(200, *raced, says="succeeded") == []
    assert "it was canceled, and ended succeeded" in unkept(200, *raced, says="canceled")[0]
    assert "knows of no cancel" in unkept(200, *RUNS, (3, "succeed", "succeeded"), says="succeeded")[0]


def test_time_in_which_a_fault_kept_its_worker_from_hearing_does_not_count() -> None:
    late = [*RUNS, ASKED, (9, "succeed", "succeeded")]
    assert unkept(202, *late, faults=[Span(3.5, 8)]) == []
    assert unkept(202, *late, faults=[Span(3, 4)]) != []
