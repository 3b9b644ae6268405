"""The summary of a run, a few kB of JSON by seed and durability, and the page that compares all runs."""

from __future__ import annotations

import datetime
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from benchmarks.files import Files
from benchmarks.report import RESULTS, machine, prose, table, write
from chaos.checks import CANCELED, DONE, FAILED, SUCCEEDED, ViolationKind
from chaos.rig import LEASE_S
from chaos.run import RunRecord

RECORDED = RESULTS / "recorded" / "chaos"
_LISTED = 20  # maximum number of listed violations of a kind
_ABOUT = f"""Each run has a whole Dyno on one machine: Redis behind a TCP proxy, the API, and three workers on two
    devices. A seeded schedule injects faults while clients submit jobs over HTTP. Five in six jobs are tiny; most
    others last 0.5 to 6 s. Leases last {LEASE_S:g} s, so that many run out. Afterwards a checker compares every 202
    response with the jobs' event streams, their records, and the API's responses. It counts {", ".join(ViolationKind)}.
    `make chaos SEED=<seed>` repeats the same faults and jobs, but not the same interleaving. A job may run more than
    once, but must end once. One job in a hundred has a timeout shorter than it needs, so that it fails."""

Summary = Mapping[str, Any]


def summary(record: RunRecord) -> dict[str, JsonValue]:
    """The summary as JSON. `ends`: numbers of jobs by final status; `failed_for`: of failed jobs by reason."""
    config, general = record.config, record.streams.general
    transitions = Counter(event.event for event in general)
    claims = Counter(event.job for event in general if event.event == "claim")
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
        "steps": {name: transitions[name] for name in ("claim", "requeue", "expire", "exhaust", "stop")},
        "asked_again_for": dict(record.responses.retries),
        "faults": dict(sorted(Counter(fault.kind.value for fault, _ in record.faults.spans).items())),
        "left_out": {kind.value: why for kind, why in record.faults.left_out.items()},
        "violations": {kind.value: _listed(record, kind) for kind in ViolationKind},
    }


def _listed(record: RunRecord, kind: ViolationKind) -> JsonValue:
    texts = [violation.what for violation in record.violations if violation.kind is kind]
    return {"count": len(texts), "told": [*texts[:_LISTED]]}


def keep(seed: int, found: Summary, folder: Path) -> None:
    """Save in `folder`. Replaces an earlier run with that seed and durability, unless that run had violations."""
    name = f"{seed}-{found['durability']}"
    while (earlier := Files(folder).get(name, {"seed": seed})) is not None and violation_count(earlier):
        name += "-again"
    Files(folder).put(name, {"seed": seed}, found)


def kept(folder: Path = RECORDED) -> list[tuple[int, Summary]]:
    """All runs in `folder` with their seeds, sorted by seed."""
    found = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    return sorted(((int(each["spec"]["seed"]), each) for each in found), key=lambda run: run[0])


def page(runs: Sequence[tuple[int, Summary]]) -> list[str]:
    """A row per run, then the faults and the violations by their kinds."""
    ends = (SUCCEEDED, FAILED, CANCELED)
    head = ("seed", "on", "minutes", "AOF", "jobs", *ends, "run more than once", "faults", "violations")
    return [
        *prose(_ABOUT),
        *table(head, [_row(seed, run, ends) for seed, run in runs]),
        *("## Faults and violations", ""),
        *(line for seed, run in runs for line in prose(f"Seed {seed}: {_told(run)}.")),
    ]


def publish() -> None:
    """Write docs/results/chaos.md from all saved runs."""
    write("chaos", "Chaos runs", page(kept()), environment_of="Environment of the last run")


def violation_count(found: Summary) -> int:
    return sum(each["count"] for each in found["violations"].values())


def _row(seed: int, run: Summary, ends: Sequence[str]) -> list[object]:
    return [
        *(seed, run["on"], f"{run['minutes']:g}", run["durability"], run["jobs"]),
        *(run["ends"].get(status, 0) for status in ends),
        *(run["claimed_again"], sum(run["faults"].values()), violation_count(run)),
    ]


def _told(run: Summary) -> str:
    steps, retries = run["steps"], sum(run["asked_again_for"].values())
    violations = {kind: each["count"] for kind, each in run["violations"].items() if each["count"]}
    parts = [_counts(run["faults"]), *(f"{name} left out ({why})" for name, why in run["left_out"].items())]
    parts.append(f"expired leases {steps['expire'] + steps['exhaust']}, jobs handed back {steps['requeue']}")
    parts.append(f"reasons of failures: {_counts(run['failed_for'])}")
    return "; ".join([*parts, f"retries of clients {retries}", f"violations: {_counts(violations)}"])


def _counts(by_name: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(by_name.items())) or "none"
