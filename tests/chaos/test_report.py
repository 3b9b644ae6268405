"""The summary that is kept of a run, its longest wait, and the page of all runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from chaos import report
from chaos.clients import Responses
from chaos.faults import REDIS, FaultInjector
from chaos.plan import Fault, FaultKind, Span, covers, seconds_where
from chaos.report import longest_wait_s
from chaos.rig import Rig
from chaos.run import RunConfig, RunRecord
from chaos.snapshot import Event, Streams
from chaos.violations import Violation, ViolationKind

WORKER = '{"id":"w","device":"cpu:0-0@here","host":"here"}'
GENERAL = [
    Event(10.0, "a", "submit", "queued", 1),
    Event(11.0, "b", "submit", "queued", 1),
    Event(11.5, "a", "claim", "running", 2, WORKER),
    Event(12.0, "a", "expire", "queued", 3, "worker_lost"),
    Event(20.0, "a", "claim", "running", 4, WORKER),
    Event(21.0, "a", "succeed", "succeeded", 5),
    Event(22.0, "b", "claim", "running", 2, WORKER),
    Event(23.0, "b", "fail", "failed", 3, "timeout"),
]


def found(folder: Path, *violations: Violation) -> dict[str, Any]:
    """The summary of a made-up run of two jobs."""
    faults = FaultInjector(Rig(folder, "everysec"))
    faults.done.update({FaultKind.KILL: 2, FaultKind.JUMP: 1})
    faults.spans.append((Fault(1.0, FaultKind.KILL, "worker-0", 2.0), Span(13.0, 18.0)))
    responses = Responses()
    responses.accepted["key-a"].add("a")
    responses.accepted["key-b"].add("b")
    responses.retries["503"] += 4
    config = RunConfig(seed=7, minutes=10, jobs=2, durability="everysec", patience_s=60)
    workers = {"a": {"worker-0"}, "b": {"worker-0", "worker-1"}}
    return report.summary(RunRecord(config, responses, faults, Streams(GENERAL, {}), workers, violations, 611.0))


def test_a_run_is_kept_in_a_few_kilobytes(tmp_path: Path) -> None:
    many = [Violation(ViolationKind.LOST, f"job {number} was lost") for number in range(1000)]
    run = found(tmp_path, *many)
    report.keep(7, run, tmp_path / "kept")
    [(seed, read)] = report.kept(tmp_path / "kept")
    assert seed == 7
    assert read["violations"]["lost jobs"]["count"] == report.violation_count(read) == 1000
    assert (tmp_path / "kept" / "7-everysec.json").stat().st_size < 4000


def test_a_run_replaces_one_of_its_seed_and_durability_unless_that_was_broken(tmp_path: Path) -> None:
    whole, broken, kept = (
        found(tmp_path),
        found(tmp_path, Violation(ViolationKind.LOST, "a job was lost")),
        tmp_path / "kept",
    )
    for run in (whole, whole, whole | {"durability": "always"}, broken, whole):
        report.keep(7, run, kept)
    assert [(run["durability"], report.violation_count(run)) for _, run in report.kept(kept)] == [
        ("always", 0),
        ("everysec", 0),
        ("everysec", 1),
    ]


def test_it_counts_what_the_streams_tell(tmp_path: Path) -> None:
    run = found(tmp_path)
    assert run["ends"] == {"succeeded": 1, "failed": 1}
    assert run["failed_for"] == {"timeout": 1}
    assert (run["claimed_again"], run["most_claims"], run["steps"]["expire"]) == (1, 2, 1)
    assert run["faults"] == {"KILL": 2, "clock jump": 1}
    assert run["longest_wait_s"] == 11.0
    assert report.violation_count(run) == 0


def test_the_page_has_a_row_for_each_seed_and_a_column_for_each_way_to_break_the_promise(tmp_path: Path) -> None:
    broken = found(tmp_path, Violation(ViolationKind.TWICE, "a ended twice"))
    lines = report.page([(7, found(tmp_path)), (8, broken)])
    [good] = [line for line in lines if line.startswith("| 7 |") and "everysec" in line]
    assert good.endswith("| 1 | 1 | 0 | 1 | 3 | 11.0 s | 0 |")
    [bad] = [line for line in lines if line.startswith("| 8 |") and "everysec" in line]
    assert bad.endswith("| 1 |")
    [head] = [line for line in lines if "double finishes" in line]
    [row] = [line for line in lines if line.startswith("| 8 |") and "everysec" not in line]
    cells = dict(zip(head.split(" | "), row.split(" | "), strict=True))
    assert cells["double finishes"] == "1"
    assert cells["lost jobs"] == "0"


def clear_s(from_s: float, to_s: float, spans: list[Span]) -> float:
    return seconds_where(lambda at_s: not covers(spans, at_s), from_s, to_s, spans)


def event(at_s: float, job: str, name: str, status: str) -> Event:
    return Event(at_s, job, name, status, 1)


LIFE = [
    event(10, "a", "submit", "queued"),
    event(12, "b", "submit", "queued"),
    event(15, "a", "claim", "running"),
    event(16, "a", "expire", "queued"),
    event(30, "b", "claim", "running"),
    event(36, "a", "claim", "running"),
]
WORKERS = {"a": {"one", "other"}, "b": {"one"}}


def test_what_spans_leave_clear_is_counted_once_however_they_overlap() -> None:
    assert clear_s(10, 20, []) == 10
    assert clear_s(10, 20, [Span(0, 12), Span(11, 13), Span(18, 30)]) == 5
    assert clear_s(10, 20, [Span(0, 30)]) == 0
    assert clear_s(10, 10, [Span(0, 12)]) == 0


def test_faults_that_leave_a_job_a_worker_take_nothing_of_its_wait() -> None:
    assert longest_wait_s(LIFE, WORKERS, {}) == 20
    assert longest_wait_s(LIFE, WORKERS, {"one": [Span(17, 20), Span(33, 34)]}) == 20


def test_no_time_counts_in_which_nobody_could_take_the_job() -> None:
    away = {"one": [Span(0, 29)], "other": [Span(20, 22), Span(24, 26)]}
    assert longest_wait_s(LIFE, WORKERS, away) == pytest.approx(20 - 2 - 2)
    assert longest_wait_s(LIFE, {**WORKERS, "a": {"one"}}, away) == 36 - 29
    assert longest_wait_s(LIFE, WORKERS, {REDIS: [Span(14, 35)]}) == 4  # of "a", before that


def test_jobs_that_were_never_claimed_waited_for_nothing() -> None:
    assert longest_wait_s(LIFE[:2], WORKERS, {}) == 0
