"""How much clients of the API slow a running benchmark: jobs with and without clients, in turns.

`python -m benchmarks.disturbance PORT CORES POLLS_PER_S STREAMS DASHBOARDS SPEC` submits a job, polls it and prints its
id. With DASHBOARDS, each reader of the events loads the start page when a job's status has changed.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import uvloop

from benchmarks import loadgen
from benchmarks.files import Files
from benchmarks.http import RECORDED, short_run
from benchmarks.jobs import metric_named
from benchmarks.pairs import percentile
from benchmarks.plots import Panel, plot
from benchmarks.report import prose, table, write
from dyno.bench.measure.ratios import paired_ratio
from dyno.bench.measure.statistics import median
from dyno.cli.up import run_stack, wait_ready
from dyno.client import Client

POLLS_PER_S, STREAMS, CONNECTIONS, PAIRS, LIMIT = 500, 200, 8, 20, 0.02
MEASURE = {"processes": 1, "min_s": 2, "max_s": 3}
SPEC = {"workload": "matmul", "params": {"n": 512}, "device": "cpu", "measure": MEASURE}
CONFIGURATIONS = {"reserved": "a core is reserved", "none": "no core is reserved"}
NOISY = "NOISY_NEIGHBOUR"
METHOD = """Each job is `matmul` at n = 512, one process. {polls} polls of that job a second on {connections}
    connections and {streams} readers of all events run beside every second job, from before its submit until it is
    done; the other jobs have one long poll. {pairs} pairs in the order ABBA. The disturbance is the ratio of the
    samples' median times, less one, with its 95 % interval over the pairs. `{noisy}`: how many jobs had this warning.
    {where}"""
APART = "The clients have a core of their own, which Dyno doesn't use."
TOGETHER = "The clients share the reserved core. Without one, they share all cores."


@dataclass
class Taken:
    """One configuration: the throughput of each pair's quiet and busy job, and how many of each kind had the warning.

    `polls_per_s`, `p99_ms`: what the clients of the busy jobs reached.
    """

    cores: int
    quiet: list[float] = field(default_factory=list)
    busy: list[float] = field(default_factory=list)
    noisy: dict[str, int] = field(default_factory=lambda: {"quiet": 0, "busy": 0})
    polls_per_s: list[float] = field(default_factory=list)
    p99_ms: list[float] = field(default_factory=list)

    def ratios(self) -> list[float]:
        return [quiet / busy for quiet, busy in zip(self.quiet, self.busy, strict=True)]

    def add(self, way: str, client: Client, said: dict[str, Any]) -> None:
        result = client.result(said["job"])
        value = metric_named(result, "throughput").value
        assert value is not None
        getattr(self, way).append(value)
        self.noisy[way] += any(each.code == NOISY for each in result.warnings)
        if way == "busy":
            self.polls_per_s.append(said["polls_per_s"])
            self.p99_ms.append(said["p99_ms"])


def main(pairs: int = PAIRS) -> None:
    taken = measure(pairs)
    asked: dict[str, Any] = {"pairs": pairs, "polls_per_s": POLLS_PER_S, "streams": STREAMS, "job": SPEC}
    Files(RECORDED).put("disturbance", asked, {each: asdict(found) for each, found in taken.items()})
    series = {CONFIGURATIONS[each]: (range(1, pairs + 1), one.ratios()) for each, one in taken.items()}
    shown = plot("disturbance", [Panel("pair", "time beside clients / time alone", series, line=1 + LIMIT)])
    write("disturbance", "What a busy API takes from a running benchmark", [*shown, *lines(taken)])


def measure(
    pairs: int, polls_per_s: float = POLLS_PER_S, streams: int = STREAMS, spec: Any = None, dashboards: bool = False
) -> dict[str, Taken]:
    """By configuration."""
    found: dict[str, Taken] = {}
    mine, clients = split(os.sched_getaffinity(0))
    for name in CONFIGURATIONS:
        reserved = mine[:1] if name == "reserved" else []
        with _dyno(mine, ",".join(map(str, reserved)) or "none") as client:
            one = found[name] = Taken(len(client.devices()[0].cores))
            for number in range(pairs):
                for way in ("quiet", "busy")[:: 1 - 2 * (number % 2)]:
                    rate, readers = (polls_per_s, streams) if way == "busy" else (0, 0)
                    words = [rate, readers, int(dashboards), json.dumps(spec or SPEC)]
                    one.add(way, client, _client(client, clients or reserved or mine, *words))
                print(f"{name}, pair {number + 1}: {one.ratios()[-1]:.4f}", flush=True)
    return found


def split(cores: Collection[int]) -> tuple[list[int], list[int]]:
    """Dyno's cores, and its clients' cores: the last core, or none if there are fewer than three."""
    ordered = sorted(cores)
    return (ordered, []) if len(ordered) < 3 else (ordered[:-1], ordered[-1:])


@contextmanager
def _dyno(cores: Collection[int], reserved: str) -> Iterator[Client]:
    """A client of a Dyno that may use these cores."""
    before, setting = os.sched_getaffinity(0), os.environ.get("DYNO_RESERVED_CORES", "")
    os.sched_setaffinity(0, cores)
    os.environ["DYNO_RESERVED_CORES"] = reserved
    try:
        with run_stack(port=0, data_dir=None, devices=["cpu"], say=print) as (stack, url), Client(url) as client:
            wait_ready(stack, client, want_devices=1)
            yield client
    finally:
        os.environ["DYNO_RESERVED_CORES"] = setting
        os.sched_setaffinity(0, before)


def _client(dyno: Client, cores: Collection[int], *words: object) -> dict[str, Any]:
    port = dyno.url.rpartition(":")[2]
    command = [sys.executable, "-m", "benchmarks.disturbance", port, ",".join(map(str, cores)), *map(str, words)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=loadgen.ROOT)
    return dict(json.loads(done.stdout))


async def run_job(port: int, polls_per_s: float, streams: int, dashboards: bool, spec: Any) -> dict[str, Any]:
    """Submit the job and poll it until it is done, beside `streams` readers of events. Without polls, wait for it."""
    ended = False

    def check(status: int, body: bytes) -> bool:
        nonlocal ended
        ended = ended or b'"done":true' in body
        return status == 200

    async with loadgen.streams(port, streams, *([Dashboards(port).show] if dashboards else [])):
        body = json.dumps(spec).encode()
        job = json.loads((await loadgen.send(port, lambda: loadgen.request("POST", "/v1/jobs", body))).body)["id"]
        poll = loadgen.request("GET", f"/v1/jobs/{job}" + "?wait=60" * (not polls_per_s))
        connections, begun_s = CONNECTIONS if polls_per_s else 1, time.perf_counter()
        took_s = (await loadgen.send(port, lambda: poll, check, lambda: ended, connections, polls_per_s)).took_s
        rate = len(took_s) / (time.perf_counter() - begun_s)
    return {"job": job, "polls_per_s": rate, "p99_ms": 1e3 * percentile(took_s, 0.99)}


class Dashboards:
    """Open start pages. Each waits for a random time before it loads the page again, as dashboard.js does."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._loading = set[asyncio.Task[None]]()

    def show(self, event: bytes) -> None:
        if b"event: status" in event:
            task = asyncio.create_task(self._load())
            self._loading.add(task)
            task.add_done_callback(self._loading.discard)

    async def _load(self) -> None:
        await asyncio.sleep(random.uniform(0.5, 1.5))
        await loadgen.send(self._port, lambda: loadgen.request("GET", "/", accept="text/html", x_dyno_refresh="1"))


def lines(taken: dict[str, Taken]) -> list[str]:
    pairs = len(next(iter(taken.values())).quiet)
    where = APART if split(os.sched_getaffinity(0))[1] else TOGETHER
    fields = {"polls": POLLS_PER_S, "connections": CONNECTIONS, "streams": STREAMS, "pairs": pairs, "noisy": NOISY}
    head = ("", "device's cores", "disturbance", f"below {LIMIT:.0%}", f"`{NOISY}`, busy", "quiet", "polls a second")
    rows = [[CONFIGURATIONS[name], *_row(one)] for name, one in taken.items()]
    short = short_run("disturbance") if pairs < PAIRS else []
    return [*short, *prose(METHOD.format(**fields, where=where)), *table((*head, "p99 of a poll, ms"), rows)]


def _row(one: Taken) -> list[object]:
    high = paired_ratio(one.quiet, one.busy).interval.high
    below = "unknown" if high is None else "yes" if high < 1 + LIMIT else "no"
    noisy = [f"{one.noisy[way]} of {len(one.quiet)}" for way in ("busy", "quiet")]
    return [one.cores, cost(one), below, *noisy, f"{median(one.polls_per_s):.0f}", f"{median(one.p99_ms):.1f}"]


def cost(one: Taken) -> str:
    """The time beside clients to the time alone, less one, with its interval."""
    ratio = paired_ratio(one.quiet, one.busy).interval
    if ratio.low is None or ratio.high is None:
        return f"{ratio.value - 1:+.2%}"
    return f"{ratio.value - 1:+.2%} [{ratio.low - 1:+.2%} to {ratio.high - 1:+.2%}]"


if __name__ == "__main__":
    port, cores, polls_per_s, streams, dashboards, spec = sys.argv[1:]
    os.sched_setaffinity(0, [int(core) for core in cores.split(",")])
    asked = (float(polls_per_s), int(streams), bool(int(dashboards)), json.loads(spec))
    print(json.dumps(uvloop.run(run_job(int(port), *asked))))
