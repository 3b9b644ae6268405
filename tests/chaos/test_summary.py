"""What is kept of a run, and the page that it makes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from chaos import summary
from chaos.breach import Breach, Violation
from chaos.calls import Answers
from chaos.faults import Faults
from chaos.rig import Rig
from chaos.run import Asked, Shaken
from chaos.schedule import Fault, Kind
from chaos.spans import Span
from chaos.streams import Event, Streams

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


def shaken(folder: Path, violations: list[Violation]) -> Shaken:
    """A run of two jobs, as if it had been."""
    faults = Faults(Rig(folder, "everysec"))
    faults.done.update({Kind.KILL: 2, Kind.JUMP: 1})
    faults.spans.append((Fault(1.0, Kind.KILL, "worker-0", 2.0), Span(13.0, 18.0)))
    answers = Answers()
    answers.accepted["key-a"].add("a")
    answers.accepted["key-b"].add("b")
    answers.again["503"] += 4
    asked = Asked(seed=7, minutes=10, jobs=2, durability="everysec", patience_s=60)
    takers = {"a": {"worker-0"}, "b": {"worker-0", "worker-1"}}
    return Shaken(asked, answers, faults, Streams(GENERAL, {}), takers, violations, 611.0)


def found(folder: Path, *violations: Violation) -> dict[str, Any]:
    return summary.summary(shaken(folder, list(violations)))


def test_a_run_is_kept_in_a_few_kilobytes(tmp_path: Path) -> None:
    many = [Violation(Breach.LOST, f"job {number} was lost") for number in range(1000)]
    run = found(tmp_path, *many)
    summary.keep(7, run, tmp_path / "kept")
    [(seed, read)] = summary.kept(tmp_path / "kept")
    assert seed == 7
    assert read["violations"]["lost jobs"]["count"] == summary.violated(read) == 1000
    assert (tmp_path / "kept" / "7-everysec.json").stat().st_size < 4000


def test_a_run_replaces_one_of_its_seed_and_durability_unless_that_was_broken(tmp_path: Path) -> None:
    whole, broken, kept = found(tmp_path), found(tmp_path, Violation(Breach.LOST, "a job was lost")), tmp_path / "kept"
    for run in (whole, whole, whole | {"durability": "always"}, broken, whole):
        summary.keep(7, run, kept)
    assert [(run["durability"], summary.violated(run)) for _, run in summary.kept(kept)] == [
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
    assert summary.violated(run) == 0


def test_the_page_has_a_row_for_each_seed_and_a_column_for_each_way_to_break_the_promise(tmp_path: Path) -> None:
    broken = found(tmp_path, Violation(Breach.TWICE, "a ended twice"))
    lines = summary.page([(7, found(tmp_path)), (8, broken)])
    [good] = [line for line in lines if line.startswith("| 7 |") and "everysec" in line]
    assert good.endswith("| 1 | 1 | 0 | 1 | 3 | 11.0 s | 0 |")
    [bad] = [line for line in lines if line.startswith("| 8 |") and "everysec" in line]
    assert bad.endswith("| 1 |")
    [head] = [line for line in lines if "double finishes" in line]
    [row] = [line for line in lines if line.startswith("| 8 |") and "everysec" not in line]
    cells = dict(zip(head.split(" | "), row.split(" | "), strict=True))
    assert cells["double finishes"] == "1"
    assert cells["lost jobs"] == "0"
