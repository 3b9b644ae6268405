"""The summary of a run, a few kB of JSON by seed and durability, and the page that compares all runs."""

from __future__ import annotations

import datetime
import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from benchmarks.files import Files
from benchmarks.report import RESULTS, machine, prose, table, write
from chaos.checks import CANCELED, DONE, FAILED, QUEUED, SUCCEEDED
from chaos.faults import REDIS
from chaos.plan import Span, covers, seconds_where
from chaos.rig import LEASE_S
from chaos.run import RunRecord
from chaos.snapshot import Event
from chaos.violations import ViolationKind

RECORDED = RESULTS / "recorded" / "chaos"
_LISTED = 20  # violations of a kind that are listed in full
# Columns of the page that have another name in recorded results.
_HEADINGS = {
    ViolationKind.UNASKED: "unrequested cancels",
    ViolationKind.CANCEL: "broken cancels",
    ViolationKind.VIEW: "API reads that differ",
    ViolationKind.STRANGE: "unexpected responses",
}

Summary = Mapping[str, Any]


def summary(record: RunRecord) -> dict[str, JsonValue]:
    """The summary as plain JSON. `ends`: number of jobs by final status, and of failed jobs by reason."""
    config, general = record.config, record.streams.general
    transitions = Counter(event.event for event in general)
    claims = Counter(event.job for event in general if event.event == "claim")
    violations: dict[str, JsonValue] = {}
    for kind in ViolationKind:
        texts = [violation.what for violation in record.violations if violation.kind is kind]
        violations[kind.value] = {"count": len(texts), "told": [*texts[:_LISTED]]}
    return {
        "on": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}",
        "machine": machine(),
        "minutes": config.minutes,
        "durability": config.durability,
        "lease_s": LEASE_S,
        "took_s": round(record.took_s, 1),
        "jobs": len(record.responses.ids),
        "ends": dict(Counter(event.status for event in general if event.status in DONE)),
        "failed_for": dict(Counter(str(event.detail) for event in general if event.status == FAILED)),
        "claimed_again": sum(count > 1 for count in claims.values()),
        "most_claims": max(claims.values(), default=0),
        "steps": {name: transitions[name] for name in ("claim", "requeue", "expire", "exhaust", "stop")},
        "asked_again_for": dict(record.responses.retries),
        "faults": {kind.value: count for kind, count in sorted(record.faults.done.items())},
        "left_out": {kind.value: why for kind, why in record.faults.left_out.items()},
        "longest_wait_s": round(longest_wait_s(general, record.workers, record.faults.away), 2),
        "violations": violations,
    }


def longest_wait_s(
    general: Sequence[Event], workers: Mapping[str, Collection[str]], away: Mapping[str, Sequence[Span]]
) -> float:
    """The longest time for which a job waited for a claim while Redis and a worker that it fits were up.

    Such time is summed up over a job's wait, with faults in between left out. `away`: when each worker, or Redis, was
    dead, stopped or unreachable. 0 if no job was claimed.
    """
    queued_at_s, longest_s = dict[str, float](), 0.0
    for event in general:
        if event.status == QUEUED:
            queued_at_s[event.job] = event.at_s
        elif event.event == "claim" and event.job in queued_at_s:
            fitting = [away.get(worker, ()) for worker in workers.get(event.job, ())] or [()]
            redis_away = away.get(REDIS, ())

            def served(at_s: float, fitting: Any = fitting, redis_away: Any = redis_away) -> bool:
                return not covers(redis_away, at_s) and not all(covers(spans, at_s) for spans in fitting)

            spans = [span for each in (*fitting, redis_away) for span in each]
            longest_s = max(longest_s, seconds_where(served, queued_at_s.pop(event.job), event.at_s, spans))
    return longest_s


def keep(seed: int, found: Summary, folder: Path) -> None:
    """Save in `folder`. Replaces an earlier run with that seed and durability if it had no violation."""
    name = f"{seed}-{found['durability']}"
    while (earlier := Files(folder).get(name, {"seed": seed})) is not None and violation_count(earlier):
        name += "-again"
    Files(folder).put(name, {"seed": seed}, found)


def kept(folder: Path = RECORDED) -> list[tuple[int, Summary]]:
    """All runs in `folder` with their seeds, sorted by seed."""
    found = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    return sorted(((int(each["spec"]["seed"]), each) for each in found), key=lambda run: run[0])


def page(runs: Sequence[tuple[int, Summary]]) -> list[str]:
    """The page: a row per run, then the number of faults of each kind and other figures."""
    return [
        *prose(
            f"""Each run has a whole Dyno on one machine: Redis behind a TCP proxy, the API, and three workers on two
            devices. A seeded schedule injects faults while clients submit jobs over HTTP. Five in six jobs are tiny;
            most others last 0.5 to 6 s. Leases last {LEASE_S:g} s, so that many run out. Afterwards a checker compares
            every 202 with the jobs' event streams, their records, and the API's responses. `make chaos SEED=<seed>`
            repeats the same faults and jobs, but not the same interleaving."""
        ),
        *table(
            [
                *("seed", "on", "minutes", "AOF", "jobs", "succeeded", "failed", "canceled", "run more than once"),
                *("faults", "longest wait", "violations"),
            ],
            [_row(seed, run) for seed, run in runs],
        ),
        *prose(
            """One job in a hundred has a timeout shorter than it needs, so that it fails. The reasons of all failures
            are below. The longest wait is the longest time that a job waited for its claim while Redis and a worker
            that it fits were up. It includes the runs of other jobs and the start of such a worker. A job may run more
            than once, but must end once."""
        ),
        "## Violations",
        "",
        *table(
            ["seed", *(_HEADINGS.get(kind, kind) for kind in ViolationKind)],
            [[seed, *_counts(run)] for seed, run in runs],
        ),
        "## Faults",
        "",
        *(line for seed, run in runs for line in prose(f"Seed {seed}: {_faults(run)}.")),
    ]


def publish() -> None:
    """Write docs/results/chaos.md from all saved runs."""
    write("chaos", "Chaos runs", page(kept()), environment_of="Environment of the last run")


def violation_count(found: Summary) -> int:
    return sum(_counts(found))


def _counts(run: Summary) -> Sequence[int]:
    return [run["violations"].get(kind.value, {"count": 0})["count"] for kind in ViolationKind]


def _row(seed: int, run: Summary) -> list[object]:
    ends = [run["ends"].get(status, 0) for status in (SUCCEEDED, FAILED, CANCELED)]
    return [
        *(seed, run["on"], f"{run['minutes']:g}", run["durability"], run["jobs"], *ends, run["claimed_again"]),
        *(sum(run["faults"].values()), f"{run['longest_wait_s']:.1f} s", violation_count(run)),
    ]


def _faults(run: Summary) -> str:
    parts = [f"{name} {count}" for name, count in run["faults"].items()]
    parts += [f"{name} left out ({why})" for name, why in run["left_out"].items()]
    failed = ", ".join(f"{reason} {count}" for reason, count in sorted(run["failed_for"].items())) or "none"
    steps, retries = run["steps"], sum(run["asked_again_for"].values())
    leases = f"expired leases {steps['expire'] + steps['exhaust']}, jobs handed back {steps['requeue']}"
    return f"{', '.join(parts)}; {leases}; reasons of failures: {failed}; retries of clients {retries}"
