"""Speed of the dashboard's pages with many stored results, and the cost of open dashboards for a running benchmark.

`python -m benchmarks dashboard` writes dashboard.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any
from urllib.parse import urlencode

from benchmarks import disturbance
from benchmarks.files import Files
from benchmarks.http import RECORDED, short_run
from benchmarks.pairs import percentile
from benchmarks.report import prose, table, write
from benchmarks.scale import KEYS, Size, sizes
from dyno.bench.measure.statistics import median

QUEUED, FINISHED, ROUNDS, EACH = 10, (100, 100_000), 10, 5
DASHBOARDS, PAIRS, FIRST_BYTE_MS, COST = 200, 20, 100, 0.01


def main(finished: Sequence[int] = FINISHED, rounds: int = ROUNDS, pairs: int = PAIRS) -> None:
    took_ms = measure_pages(finished, rounds)
    taken = disturbance.measure(pairs, polls_per_s=0, streams=DASHBOARDS, dashboards=True)
    asked: dict[str, Any] = {"finished": [*finished], "rounds": rounds, "pairs": pairs}
    cost = {name: asdict(one) for name, one in taken.items()}
    Files(RECORDED).put("dashboard", asked, {"ms": took_ms, "cost": cost})
    short = short_run("dashboard") if (finished[-1], rounds, pairs) != (FINISHED[-1], ROUNDS, PAIRS) else []
    write("dashboard", "The dashboard under load", [*short, *page_lines(took_ms), *cost_lines(taken, pairs)])


def measure_pages(finished: Sequence[int], rounds: int) -> dict[str, dict[str, list[float]]]:
    """Milliseconds by page and by the number of stored results; the sizes take turns."""
    found: dict[str, dict[str, list[float]]] = {}
    stored = [f"{each:,}" for each in finished]
    with sizes([(QUEUED, each) for each in finished]) as opened:
        pages = {size.finished: paths(size) for size in opened}
        for number in range(rounds + 1):
            for page in pages[opened[0].finished]:
                for size in opened[:: 1 - 2 * (number % 2)]:
                    load = size.request("GET", pages[size.finished][page], times=EACH)
                    if number > 0:  # the first round warms up
                        seen = found.setdefault(page, {each: [] for each in stored})
                        seen[f"{size.finished:,}"] += [1e3 * each for each in load.took_s]
            print(f"round {number} of {rounds}", flush=True)
    return found


def paths(size: Size) -> dict[str, str]:
    """The paths, by their names in the table."""
    first, second = (each.decode() for each in size.redis.zrange(KEYS.jobs_with_status("succeeded"), 0, 1))
    return {
        "home": "/",
        "jobs": "/jobs",
        "jobs of a label that none has": "/jobs?label=none%3Dnone",
        "a result": f"/jobs/{first}",
        "a comparison": f"/compare?{urlencode([('job', first), ('job', second)])}",
        "history": "/history?workload=matmul",
        "sweeps": "/sweeps",
        "workloads": "/workloads",
        "the form of a workload": "/workloads/matmul",
        "fleet": "/fleet",
    }


def page_lines(took_ms: Mapping[str, Mapping[str, Sequence[float]]]) -> list[str]:
    stored = list(next(iter(took_ms.values())))
    requests = len(next(iter(took_ms.values()))[stored[0]])
    text = f"""Median and p99 of {requests} requests on one connection until the page is complete, in milliseconds, by
        the number of stored results. Each number has its own Redis and API, and for each page the numbers take turns.
        The results are copies of one `matmul` with five runs. Aim: the first byte within {FIRST_BYTE_MS} ms."""
    rows = ([page, *(_times(by_stored[each]) for each in stored)] for page, by_stored in took_ms.items())
    return ["## Pages", "", *prose(text), *table(("page", *stored), rows)]


def _times(seen: Sequence[float]) -> str:
    return f"{median(seen):.1f}, {percentile(seen, 0.99):.1f}"


def cost_lines(taken: Mapping[str, disturbance.Taken], pairs: int) -> list[str]:
    text = f"""Each job is `matmul` at n = 512, one process. Beside every second job, {DASHBOARDS} start pages are open,
        from before its submit until it is done: each reads all events, and loads the page again after a change of a
        job's status, as a browser does. {pairs} pairs in the order ABBA; the cost is the ratio of the samples' median
        times, less one, with its 95 % interval over the pairs. Aim: below {COST:.0%}."""
    rows = [[disturbance.CONFIGURATIONS[name], one.cores, disturbance.cost(one)] for name, one in taken.items()]
    return ["## Open dashboards", "", *prose(text), *table(("", "device's cores", "cost"), rows)]
