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
from chaos.breach import Breach
from chaos.rig import LEASE_S
from chaos.run import Shaken
from chaos.table import CANCELED, DONE, FAILED, SUCCEEDED
from chaos.waits import longest_wait_s

RECORDED = RESULTS / "recorded" / "chaos"
_TOLD = 20  # violations of a kind that are listed in full

Summary = Mapping[str, Any]


def summary(shaken: Shaken) -> dict[str, JsonValue]:
    """The summary as plain JSON. `ends`: number of jobs by final status, and of failed jobs by reason."""
    asked, general = shaken.asked, shaken.streams.general
    steps = Counter(event.event for event in general)
    ended = [event for event in general if event.status in DONE]
    claims = Counter(event.job for event in general if event.event == "claim")
    broken: dict[str, JsonValue] = {}
    for breach in Breach:
        told = [what for kind, what in shaken.violations if kind is breach]
        broken[breach.value] = {"count": len(told), "told": [*told[:_TOLD]]}
    return {
        "on": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}",
        "machine": machine(),
        "minutes": asked.minutes,
        "durability": asked.durability,
        "lease_s": LEASE_S,
        "took_s": round(shaken.took_s, 1),
        "jobs": len(shaken.answers.ids),
        "ends": dict(Counter(event.status for event in ended)),
        "failed_for": dict(Counter(str(event.detail) for event in ended if event.status == FAILED)),
        "claimed_again": sum(count > 1 for count in claims.values()),
        "most_claims": max(claims.values(), default=0),
        "steps": {step: steps[step] for step in ("claim", "requeue", "expire", "exhaust", "stop")},
        "asked_again_for": dict(shaken.answers.again),
        "faults": {kind.value: count for kind, count in sorted(shaken.faults.done.items())},
        "left_out": {kind.value: why for kind, why in shaken.faults.left_out.items()},
        "longest_wait_s": round(longest_wait_s(general, shaken.takers, shaken.faults.away), 2),
        "violations": broken,
    }


def keep(seed: int, found: Summary, folder: Path) -> None:
    """Save in `folder`. Replaces an earlier run with that seed and durability if it had no violation."""
    name = f"{seed}-{found['durability']}"
    while (earlier := Files(folder).get(name, {"seed": seed})) is not None and violated(earlier):
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
            f"""A whole Dyno on one machine: Redis behind a TCP proxy, the API, three workers on two devices, shaken by
            faults of a seeded schedule while jobs flow over HTTP; five in six of them tiny, most others of 0.5 to 6 s.
            Leases of {LEASE_S:g} s, so that many run out. Afterwards a checker holds every 202 against the jobs' event
            streams, their records, and what callers are answered. `make chaos SEED=<seed>` has the same faults and jobs
            again, if not the same interleaving."""
        ),
        *table(
            [
                *("seed", "on", "minutes", "AOF", "jobs", "succeeded", "failed", "canceled", "run more than once"),
                *("faults", "longest wait", "violations"),
            ],
            [_row(seed, run) for seed, run in runs],
        ),
        *prose(
            """One job in a hundred asks for less time than it needs, so as to fail; below is what jobs failed for. The
            longest wait is the longest that a job waited to be claimed while Redis was there and a worker that it fits
            was up, other jobs' runs and the start of such a worker among it. A job may be run more than once; what is
            looked for is that it ends once."""
        ),
        "## Violations",
        "",
        *table(["seed", *Breach], [[seed, *_counts(run)] for seed, run in runs]),
        "## Faults",
        "",
        *(line for seed, run in runs for line in prose(f"Seed {seed}: {_faults(run)}.")),
    ]


def publish() -> None:
    """Write docs/results/chaos.md from all saved runs."""
    write("chaos", "Chaos runs", page(kept()), environment_of="Environment of the last run")


def violated(found: Summary) -> int:
    """The number of violations of all kinds."""
    return sum(_counts(found))


def _counts(run: Summary) -> Sequence[int]:
    return [run["violations"].get(breach.value, {"count": 0})["count"] for breach in Breach]


def _row(seed: int, run: Summary) -> list[object]:
    ends = [run["ends"].get(status, 0) for status in (SUCCEEDED, FAILED, CANCELED)]
    return [
        *(seed, run["on"], f"{run['minutes']:g}", run["durability"], run["jobs"], *ends, run["claimed_again"]),
        *(sum(run["faults"].values()), f"{run['longest_wait_s']:.1f} s", violated(run)),
    ]


def _faults(run: Summary) -> str:
    told = [f"{name} {count}" for name, count in run["faults"].items()]
    told += [f"{name} left out ({why})" for name, why in run["left_out"].items()]
    failed = ", ".join(f"{reason} {count}" for reason, count in sorted(run["failed_for"].items())) or "none"
    steps = run["steps"]
    leases = f"{steps['expire'] + steps['exhaust']} leases ran out, {steps['requeue']} jobs were handed back"
    again = f"callers asked again {sum(run['asked_again_for'].values())} times"
    return f"{', '.join(told)}; {leases}; failed for {failed}; {again}"
