"""The checker finds what it is for: faults planted into event streams that are in order otherwise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from chaos.breach import Breach, Violation
from chaos.checker import violations
from chaos.streams import Event, Owner, Streams
from chaos.table import DONE, ENDS_ATTEMPT, MOST_ATTEMPTS, ROWS, STATUSES
from dyno.models.job import DONE as ITS_DONE
from dyno.models.job import MAX_ATTEMPTS, TRANSITIONS, Status

ONE, OTHER = "cpu:0-0@here", "cpu:1-1@here"
Told = tuple[str, str, str] | tuple[str, str, str, str]
# What happens, in Redis' order: job, event, status, and of a claim the device.
ORDERLY: Sequence[Told] = (
    ("a", "submit", "queued"),
    ("a", "claim", "running", ONE),
    ("b", "submit", "queued"),
    ("b", "claim", "running", OTHER),
    ("b", "heartbeat", "running"),
    ("c", "submit", "queued"),
    ("a", "expire", "queued"),
    ("c", "claim", "running", ONE),
    ("b", "succeed", "succeeded"),
    ("a", "claim", "running", OTHER),
    ("c", "cancel", "running"),
    ("c", "stop", "canceled"),
    ("a", "requeue", "queued"),
    ("a", "claim", "running", ONE),
    ("a", "exhaust", "failed"),
    ("d", "submit", "queued"),
    ("d", "cancel", "canceled"),
)
ACCEPTED = {f"key-{job}": {job} for job in "abcd"}
CANCELING = {"c", "d"}


def streams(told: Sequence[Told]) -> Streams:
    """As Redis would have them: a version for each event of a job, its attempt's owner, and all in two streams."""
    general: list[Event] = []
    by_job: dict[str, list[Event]] = {}
    owners: dict[str, Owner] = {}
    for number, (job, event, status, *device) in enumerate(told):
        own = by_job.setdefault(job, [])
        lost = sum(each.event == "expire" for each in own)
        if device:
            owners[job] = Owner(lost + 1, device[0], f"claim {number}")
        owner = owners.get(job) if event == "claim" or event in ENDS_ATTEMPT else None
        own.append(Event(1000.0 + number, job, event, status, len(own) + 1, owner=owner, at=f"{1000 + number}.5"))
        general.append(own[-1])
    return Streams(general, by_job)


def found(
    told: Sequence[Told],
    accepted: Mapping[str, set[str]] = ACCEPTED,
    canceling: set[str] = CANCELING,
) -> list[Violation]:
    return violations(accepted, canceling, streams(told))


def breaches(told: Sequence[Told]) -> set[Breach]:
    return {violation.breach for violation in found(told)}


def changed(at: Told, *instead: Told) -> list[Told]:
    place = ORDERLY.index(at)
    return [*ORDERLY[:place], *instead, *ORDERLY[place + 1 :]]


def test_lives_in_order_break_nothing() -> None:
    assert found(ORDERLY) == []


def test_a_job_that_never_ended_is_lost() -> None:
    [violation] = found(changed(("b", "succeed", "succeeded")))[:1]
    assert violation.breach is Breach.LOST
    assert "b was answered 202 and never ended: its last event is heartbeat" in violation.what


def test_a_job_without_any_event_is_lost() -> None:
    [violation] = found(ORDERLY, {**ACCEPTED, "key-e": {"e"}})
    assert violation == Violation(Breach.LOST, "e was answered 202 and never ended: it has no event")


@pytest.mark.parametrize("again", [("b", "succeed", "succeeded"), ("b", "fail", "failed")])
def test_a_second_end_is_a_double_finish(again: Told) -> None:
    assert Breach.TWICE in breaches([*ORDERLY, again])


@pytest.mark.parametrize(
    "late", [("b", "heartbeat", "running"), ("b", "expire", "queued"), ("b", "claim", "running", OTHER)]
)
def test_nothing_may_come_after_the_end(late: Told) -> None:
    assert Breach.ILLEGAL in breaches([*ORDERLY, late])


@pytest.mark.parametrize(
    ("at", "instead"),
    [
        (("b", "claim", "running", OTHER), ("b", "heartbeat", "running")),  # runs unclaimed
        (("d", "cancel", "canceled"), ("d", "stop", "canceled")),  # stopped though it never ran
        (("b", "succeed", "succeeded"), ("b", "succeed", "failed")),  # says another state than the table
        (("b", "heartbeat", "running"), ("b", "dance", "running")),  # no event at all
    ],
)
def test_a_step_that_is_not_in_the_table_is_illegal(at: Told, instead: Told) -> None:
    assert Breach.ILLEGAL in breaches(changed(at, instead))


def test_a_step_that_is_missing_from_a_stream_is_found() -> None:
    whole = streams(ORDERLY)
    cut = {job: [event for event in events if event.event != "heartbeat"] for job, events in whole.by_job.items()}
    kinds = {v.breach for v in violations(ACCEPTED, CANCELING, Streams(whole.general, cut))}
    assert kinds == {Breach.ILLEGAL, Breach.DIFFER}  # its version is, and the general stream still has it


def test_a_device_given_away_while_it_is_held_is_an_overlap() -> None:
    early = changed(("b", "claim", "running", OTHER), ("b", "claim", "running", ONE))
    [violation] = found(early)[:1]
    assert violation == Violation(Breach.OVERLAP, f"{ONE} was given to b while a had it")


@pytest.mark.parametrize(
    "end",
    [
        ("a", "expire", "queued"),
        ("b", "succeed", "succeeded"),
        ("c", "stop", "canceled"),
        ("a", "requeue", "queued"),
    ],
)
def test_without_its_end_a_lease_goes_on(end: Told) -> None:
    told = [*changed(end), ("z", "submit", "queued"), ("z", "claim", "running", ONE)]
    told += [("y", "submit", "queued"), ("y", "claim", "running", OTHER)]
    assert Breach.OVERLAP in breaches(told)


def replaced(job: str, event: str, nth: int, **fields: object) -> list[Violation]:
    """What is found where that event of a job, in both streams, has other fields."""
    whole = streams(ORDERLY)
    old = [each for each in whole.by_job[job] if each.event == event][nth]
    new = old._replace(**fields)
    changed = [[new if each is old else each for each in events] for events in (whole.general, whole.by_job[job])]
    return violations(ACCEPTED, CANCELING, Streams(changed[0], {**whole.by_job, job: changed[1]}))


FIRST, SECOND, THIRD = (each.owner for each in streams(ORDERLY).by_job["a"] if each.event == "claim")


@pytest.mark.parametrize(
    "owner", [None, THIRD._replace(claim=FIRST.claim), THIRD._replace(attempt=1), THIRD._replace(device=OTHER)]
)
def test_the_attempt_that_ends_a_job_is_the_one_that_was_claimed_last(owner: Owner | None) -> None:
    [violation] = replaced("a", "exhaust", 0, owner=owner)
    assert violation.breach is Breach.ATTEMPT


def test_a_zombie_that_finishes_while_another_attempt_has_the_job_is_found() -> None:
    [violation] = replaced("a", "requeue", 0, owner=FIRST)
    assert violation == Violation(
        Breach.ATTEMPT,
        f"a: requeue by attempt 1 on {ONE} ({FIRST.claim}), and attempt 2 on {OTHER} ({SECOND.claim}) had it",
    )


def test_an_attempt_too_many_and_one_that_costs_nothing_though_its_lease_ran_out_are_found() -> None:
    whole = streams(ORDERLY)
    for old, new in [(THIRD, THIRD._replace(attempt=3)), (SECOND, SECOND._replace(attempt=1))]:
        changed = [
            [each._replace(owner=new) if each.owner == old else each for each in events]
            for events in (whole.general, whole.by_job["a"])
        ]
        [violation] = violations(ACCEPTED, CANCELING, Streams(changed[0], {**whole.by_job, "a": changed[1]}))
        assert violation.breach is Breach.ATTEMPT
        assert f"was claimed by attempt {new.attempt} " in violation.what


def test_a_claim_by_nobody_is_found() -> None:
    assert Breach.ATTEMPT in {each.breach for each in replaced("a", "claim", 0, owner=None)}


def test_its_own_rows_are_those_that_the_product_has() -> None:
    assert {(before, event.value): after.value for (before, event), after in TRANSITIONS.items()} == ROWS
    assert tuple(Status) == STATUSES
    assert ITS_DONE == DONE
    assert MAX_ATTEMPTS == MOST_ATTEMPTS


def test_a_key_with_two_jobs_and_a_job_without_a_key_were_made_twice() -> None:
    assert {v.breach for v in found(ORDERLY, {"key-a": {"a", "b"}, "key-c": {"c"}, "key-d": {"d"}})} == {Breach.DOUBLED}
    assert {v.breach for v in found(ORDERLY, {f"key-{job}": {job} for job in "abc"})} == {Breach.DOUBLED}


def test_a_job_that_nobody_wanted_to_cancel_is_not_to_be_canceled() -> None:
    [violation] = found(ORDERLY, canceling={"c"})
    assert violation == Violation(Breach.UNASKED, "d was canceled, and nobody had asked for that")


def test_what_only_the_general_stream_tells_is_found() -> None:
    whole = streams(ORDERLY)
    extra = Event(2000.0, "b", "heartbeat", "running", 4)
    kinds = {v.breach for v in violations(ACCEPTED, CANCELING, Streams([*whole.general, extra], whole.by_job))}
    assert kinds == {Breach.DIFFER}
