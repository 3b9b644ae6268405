"""How requests and memory grow with the number of jobs: `python -P -m benchmarks.scale --queued 10 100 --finished 10`.

Each size has a Redis and an API of its own. All of them run side by side, and each round takes the sizes in turn, so
that a drift of the machine changes no ratio between sizes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import resource
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import psutil
import redis
import uvloop

from benchmarks import loadgen
from benchmarks.files import Files
from benchmarks.http import RECORDED, Client, finish_job, publish, short_run
from benchmarks.pairs import percentile
from benchmarks.plots import Panel, plot
from benchmarks.report import prose, table, write
from dyno.bench.measure.statistics import median
from dyno.models.device import Device
from dyno.models.result import RunSamples
from dyno.settings import Settings
from dyno.store.embedded import EmbeddedServer
from dyno.store.leases import Leases
from dyno.store.placement import ANY_JOB, ClaimFilter, queues_served
from dyno.store.redis import Keys, sync_client

QUEUED, FINISHED = (10, 100, 1000, 10_000, 100_000), (1000, 10_000, 100_000, 1_000_000)
ROUNDS, EACH, BATCH, CONNECTIONS = 10, 10, 1000, 16
ROOM, QUEUED_BYTES = 0.6, 4000  # Redis' share of the free memory; assumed size of a queued job
EXAMPLE = RECORDED / "reproduction" / "matmul.json"
JOB = b'{"workload":"matmul","params":{"n":64},"device":"cpu","labels":{"commit":"%032x"}}'
FITTING = JOB.replace(b"64", b"65")
SOURCE = (Path(__file__).parent / "copies.lua").read_text()
LAST = "claim behind all others, which don't fit"
WORST = "list by a label that no job has"
PATHS = {
    "poll": "/v1/jobs/{id}",
    "list of 20": "/v1/jobs?limit=20",
    "list of 20, queued": "/v1/jobs?limit=20&status=queued",
    "list of 20, succeeded": "/v1/jobs?limit=20&status=succeeded",
    WORST: "/v1/jobs?limit=100&label=none%3Dnone",
}
KEYS = Keys(Settings().namespace)
OPERATIONS = ("claim", LAST, "submit", *PATHS)
ONLY_FITTING = ClaimFilter("small", lambda spec: spec.params["n"] == 65)
LISTS, POLLS_PER_S, STRETCH_S, STRETCHES = 4, 100, 3.0, 4
READERS, SUBMITS_PER_S, READ_S = 1000, 4, 12.0
METHOD = """Median and p99 of {n} requests on one connection, or of claims by a worker, in milliseconds; in brackets the
    median divided by the smallest size's median. Each size has a Redis and an API of its own. In {rounds} rounds, the
    sizes take turns with each operation, every other round in reverse order. Submitted jobs are canceled and deleted,
    and claimed jobs are handed back, so the sizes don't change. Queued jobs came over HTTP; one additional job, the
    last, is the only job that fits a small device. Finished jobs are copies of one that was submitted, claimed and
    finished: `benchmarks/copies.lua` repeats the commands that write its keys and its entries in the indexes, with new
    ids. Redis writes no file."""
MEMORY = """`keys`: MEMORY USAGE of all keys of one job. `all`: growth of Redis' memory per job in the largest size. It
    includes the indexes, among them one of a label that no other job has. The finished job is a `matmul` with a result
    and samples of five runs."""
OTHERS = """{polls} polls a second on {lists} connections, alone and beside {lists} connections that repeat the request
    for the list by a label that no job has; {n} stretches of {seconds:g} s each, in turns."""


@dataclass
class Size:
    """A Redis and an API with these numbers of jobs. `seen_ms`: by operation."""

    queued: int
    finished: int
    redis: Any  # a client of redis-py that returns bytes
    leases: Leases
    device: Device
    worker: Any
    service: loadgen.Service
    job_id: str  # a finished job
    seen_ms: dict[str, list[float]] = field(default_factory=dict)
    all_bytes: dict[str, float] = field(default_factory=dict)

    def request(self, method: str, path: str, body: bytes | None = None, times: int = 1) -> loadgen.Load:
        asked, left = loadgen.request(method, path, body), count(1)
        done = partial(lambda: next(left) >= times)
        return uvloop.run(loadgen.send(self.service.port, lambda: asked, done=done))

    def measure(self, operation: str, times: int) -> None:
        seen = self.seen_ms.setdefault(operation, [])
        if operation in PATHS:
            took_s = self.request("GET", PATHS[operation].format(id=self.job_id), times=times).took_s
        else:
            acts: dict[str, Callable[[], float]] = {
                "claim": self._claim,
                LAST: partial(self._claim, ONLY_FITTING),
                "submit": self._submit,
            }
            took_s = [acts[operation]() for _ in range(times)]
        seen += [1e3 * each for each in took_s]

    def _claim(self, taker: ClaimFilter = ANY_JOB) -> float:
        begun_s = time.perf_counter()
        claim = self.leases.claim(self.device.full_id, queues_served(self.device), self.worker, taker)
        took_s = time.perf_counter() - begun_s
        assert claim is not None
        assert self.leases.requeue(claim, reason="handed_back", counts_attempt=False)
        return took_s

    def _submit(self) -> float:
        load = self.request("POST", "/v1/jobs", JOB % 0)
        url = json.loads(load.body)["urls"]["self"]
        self.request("POST", f"{url}/cancel", b"{}")
        self.request("DELETE", url)
        return load.took_s[0]

    def used_bytes(self) -> int:
        return int(self.redis.info("memory")["used_memory"])

    def key_bytes(self, job_id: str) -> int:
        keys = self.redis.scan_iter(match=f"*{job_id}*", count=BATCH)
        return sum(self.redis.memory_usage(key, samples=0) or 0 for key in keys)

    def fill(self) -> None:
        """Copy the finished job, and submit the queued ones."""
        commands, copies = list(writes(self.redis, self.job_id)), self.redis.register_script(SOURCE)
        words = [word for command in commands for word in (len(command), *command)]
        empty = self.used_bytes()
        for first in range(1, self.finished, BATCH):
            copies(args=[self.job_id, first, min(BATCH, self.finished - first), *words])
        filled, sent = self.used_bytes(), 0
        self.all_bytes["finished"] = (filled - empty) / max(1, self.finished - 1)

        def ask() -> bytes:
            nonlocal sent
            sent += 1
            return loadgen.request("POST", "/v1/jobs", JOB % sent)

        connections = CONNECTIONS if self.queued > CONNECTIONS**2 else 1  # each sends at least one job
        uvloop.run(loadgen.send(self.service.port, ask, done=lambda: sent >= self.queued, connections=connections))
        self.all_bytes["queued"] = (self.used_bytes() - filled) / self.queued
        self.request("POST", "/v1/jobs", FITTING % 0)
        self.check()

    def check(self) -> None:
        """Raises RuntimeError unless the store has the expected numbers of jobs."""
        stored = [self.redis.zcard(KEYS.jobs_with_status(status)) for status in ("queued", "succeeded")]
        if stored != [self.queued + 1, self.finished]:
            raise RuntimeError(f"{stored} queued and finished jobs instead of {self.queued} + 1 and {self.finished}")


def writes(client: Any, job_id: str) -> Iterator[list[Any]]:
    """The commands that write the job's own keys, and its entries in every index. `client` returns bytes."""
    for key in client.scan_iter(match=f"{KEYS.namespace}:*", count=BATCH):
        kind, own = client.type(key), job_id.encode() in key
        if kind == b"zset":
            found = client.zrange(key, 0, -1, withscores=True)
            yield from (["ZADD", key, score, each] for each, score in found if own or job_id.encode() in each)
        elif kind == b"set":
            yield from (["SADD", key, each] for each in client.smembers(key) if own or job_id.encode() in each)
        elif own and kind == b"hash":
            yield ["HSET", key, *(word for pair in client.hgetall(key).items() for word in pair)]
        elif own and kind == b"string":
            yield ["SET", key, client.get(key)]
        elif own and kind == b"stream":
            for at, fields in client.xrange(key):
                yield ["XADD", key, at, *(word for pair in fields.items() for word in pair)]
        elif own:
            raise RuntimeError(f"a job has a key of another type, {kind}: {key}")
        if own and (lives_ms := client.pttl(key)) > 0:
            yield ["PEXPIRE", key, lives_ms]


@contextmanager
def sizes(wanted: Iterable[tuple[int, int]]) -> Iterator[list[Size]]:
    """Each (queued, finished) that fits into memory, filled. Raises RuntimeError if an API fails."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        room, opened = ROOM * psutil.virtual_memory().available, list[Size]()
        for queued, finished in wanted:
            size = _open(stack, Path(folder) / f"{queued}-{finished}", queued, finished)
            room -= finished * size.key_bytes(size.job_id) + queued * QUEUED_BYTES
            if room < 0:
                print(f"skipped {queued:,} queued, {finished:,} finished: too little memory", flush=True)
                continue
            begun_s = time.perf_counter()
            size.fill()
            print(f"{queued:,} queued, {finished:,} finished: {time.perf_counter() - begun_s:.0f} s", flush=True)
            opened.append(size)
        yield opened


def _open(stack: ExitStack, folder: Path, queued: int, finished: int) -> Size:
    folder.mkdir()
    server = stack.enter_context(EmbeddedServer(appendfsync="none"))  # these figures are without the disk
    own = {"REDIS_URL": server.url, "PORT": "0", "DEVICE_TTL_S": "86400", "MAX_QUEUED": "10000000"}
    own["DURABILITY"] = "none"
    own["ARTIFACT_DIR"] = str(folder)
    settings = Settings.model_validate({name.lower(): value for name, value in own.items()})
    client, raw = stack.enter_context(sync_client(settings)), stack.enter_context(redis.Redis.from_url(server.url))
    raw.config_set("maxmemory", 0)
    service = stack.enter_context(loadgen.serving(["service"], own, folder / "log"))
    job_id = finish_job(client, settings, Client("dyno", service.port, ""), EXAMPLE, _samples())["job"]
    device = Device.model_validate(json.loads(EXAMPLE.read_text())["result"]["device"])
    worker = publish(client, settings, device)
    return Size(queued, finished, raw, Leases(client, settings), device, worker, service, job_id)


def _samples() -> list[RunSamples]:
    """The samples of five recorded runs."""
    runs = json.loads((RECORDED / "matmul-512.json").read_text())["runs"][:5]
    found = []
    for number, times in enumerate(run["samples_s"] for run in runs):
        cpu_s, given = [(each, 0.0) for each in times], {"warmup": [], "executions_per_sample": 1}
        found.append(RunSamples(run=number, samples=times, sample_cpu_s=cpu_s, **given))
    return found


def measure(queued: Sequence[int], finished: Sequence[int], rounds: int = ROUNDS, readers: int = READERS) -> Any:
    """All figures, as JSON. Raises RuntimeError if an API fails."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    wanted = [(each, finished[0]) for each in queued] + [(queued[0], each) for each in finished[1:]]
    with sizes(wanted) as opened:
        for number in range(rounds + 1):
            for operation in OPERATIONS:
                for size in opened[:: 1 - 2 * (number % 2)]:
                    size.measure(operation, EACH)
            print(f"round {number} of {rounds}", flush=True)
        for size in opened:
            size.check()
            size.seen_ms = {name: seen[EACH:] for name, seen in size.seen_ms.items()}  # the first round warms up
        most_queued = max(opened, key=lambda size: size.queued)
        ends = {(size.queued, size.finished): size for size in (opened[0], most_queued, opened[-1])}
        return {
            "rounds": rounds,
            "sizes": [
                {"queued": size.queued, "finished": size.finished, "ms": size.seen_ms, "all_bytes": size.all_bytes}
                for size in opened
            ],
            "key_bytes": {"queued": _queued_key_bytes(opened[0]), "finished": opened[0].key_bytes(opened[0].job_id)},
            "others": [{"queued": each[0], "finished": each[1], **others(size)} for each, size in ends.items()],
            "readers": uvloop.run(fan_out(opened[0].service, readers)),
        }


def _queued_key_bytes(size: Size) -> int:
    [job_id] = size.redis.zrange(KEYS.jobs_with_status("queued"), -2, -2)  # the last one was claimed often
    return size.key_bytes(job_id.decode())


def others(size: Size) -> dict[str, Any]:
    """Milliseconds of polls alone and beside the worst lists, and how many lists were answered."""
    seen: dict[str, Any] = {"alone_ms": [], "beside_ms": [], "lists": 0}
    poll, worst = (loadgen.request("GET", PATHS[operation].format(id=size.job_id)) for operation in ("poll", WORST))

    async def stretch(lists: int) -> None:
        send, done = partial(loadgen.send, size.service.port), loadgen.after(STRETCH_S)
        polls = send(lambda: poll, done=done, connections=LISTS, per_s=POLLS_PER_S)
        loads = await asyncio.gather(polls, *(send(lambda: worst, done=done) for _ in range(lists)))
        seen["beside_ms" if lists else "alone_ms"] += [1e3 * each for each in loads[0].took_s]
        seen["lists"] += sum(len(each.took_s) for each in loads[1:])

    for number in range(STRETCHES):
        for lists in (0, LISTS)[:: 1 - 2 * (number % 2)]:
            uvloop.run(stretch(lists))
    return seen


async def fan_out(service: loadgen.Service, readers: int, for_s: float = READ_S) -> dict[str, Any]:
    """The time from a job's submit to a reader's event, and the memory that the API took for the readers."""
    sent, heard = dict[bytes, float](), list[tuple[bytes, float]]()

    def note(event: bytes) -> None:
        if found := re.search(rb'"job":"(\w+)".*"event":"submit"', event):
            heard.append((found[1], time.perf_counter()))

    before_bytes = psutil.Process(service.pid).memory_info().rss
    Path(f"/proc/{service.pid}/clear_refs").write_text("5")
    async with loadgen.streams(service.port, readers, note):
        over = loadgen.after(for_s)
        while not over():
            begun_s = time.perf_counter()
            load = await loadgen.send(service.port, lambda: loadgen.request("POST", "/v1/jobs", JOB % 0))
            sent[json.loads(load.body)["id"].encode()] = begun_s
            await asyncio.sleep(1 / SUBMITS_PER_S)
        late = loadgen.after(loadgen.PATIENCE_S)
        while len(heard) < readers * len(sent) and not late():
            await asyncio.sleep(0.05)
        peak_kib = int(Path(f"/proc/{service.pid}/status").read_text().partition("VmHWM:")[2].split()[0])
    delays_ms = [1e3 * (at_s - sent[job_id]) for job_id, at_s in heard if job_id in sent]
    figures = {f"p{share}_ms": percentile(delays_ms, share / 100) for share in (50, 99)}
    missed = readers * len(sent) - len(delays_ms)
    return {
        "readers": readers,
        "n": len(delays_ms),
        "missed": missed,
        "bytes": 1024 * peak_kib - before_bytes,
    } | figures


def lines(found: Any) -> list[str]:
    first, *_ = every = found["sizes"]
    by_queued = [size for size in every if size["finished"] == first["finished"]]
    by_finished = [size for size in every if size["queued"] == first["queued"]]
    largest = {"queued": by_queued[-1], "finished": by_finished[-1]}
    memory = [
        [kind, *(f"{each:,.0f}" for each in (found["key_bytes"][kind], largest[kind]["all_bytes"][kind]))]
        for kind in largest
    ]
    read = found["readers"]
    asked = (by_queued[-1]["queued"], by_finished[-1]["finished"], found["rounds"])
    return [
        *(short_run("scale") if asked != (QUEUED[-1], FINISHED[-1], ROUNDS) else []),
        *prose(METHOD.format(n=len(first["ms"]["poll"]), rounds=found["rounds"])),
        *(f"## By queued jobs, beside {first['finished']:,} finished", "", *_table(by_queued, "queued")),
        *(f"## By finished jobs, beside {first['queued']:,} queued", "", *_table(by_finished, "finished")),
        *("## Other callers beside the worst lists", ""),
        *prose(OTHERS.format(polls=POLLS_PER_S, lists=LISTS, n=2 * STRETCHES, seconds=STRETCH_S)),
        *table(
            ("queued", "finished", "p99 alone, ms", "p99 beside, ms", "ratio", "lists"), map(_others, found["others"])
        ),
        *("## Memory of a job, bytes", "", *prose(MEMORY), *table(("", "keys", "all"), memory)),
        *("## Readers of events", ""),
        *prose(
            f"""{read["readers"]:,} readers of all events, {SUBMITS_PER_S} submits a second: the event of a submit
            reaches a reader after p50 {read["p50_ms"]:.1f} ms, p99 {read["p99_ms"]:.1f} ms, n = {read["n"]:,};
            {read["missed"]} events were missed. The API took {read["bytes"] / 2**20:.0f} MiB for the readers."""
        ),
    ]


def _table(every: Sequence[Any], kind: str) -> list[str]:
    head = ("", *(f"{size[kind]:,}" for size in every))
    return table(head, ([operation, *(_cell(size, every[0], operation) for size in every)] for operation in OPERATIONS))


def _cell(size: Any, smallest: Any, operation: str) -> str:
    seen = size["ms"][operation]
    ratio = median(seen) / median(smallest["ms"][operation])
    return f"{median(seen):.2f}, {percentile(seen, 0.99):.2f} ({ratio:.2f})"


def _others(row: Any) -> list[str]:
    alone, beside = percentile(row["alone_ms"], 0.99), percentile(row["beside_ms"], 0.99)
    sizes_of = [f"{row[kind]:,}" for kind in ("queued", "finished")]
    return [*sizes_of, f"{alone:.1f}", f"{beside:.1f}", f"{beside / alone:.2f}", f"{row['lists']:,}"]


def _panel(every: Sequence[Any], kind: str) -> Panel:
    places = [size[kind] for size in every]
    series = {name: (places, [median(size["ms"][name]) for size in every]) for name in OPERATIONS}
    return Panel(f"{kind} jobs", "median, ms", series, log="xy")


def main(queued: Sequence[int] = QUEUED, finished: Sequence[int] = FINISHED, rounds: int = ROUNDS) -> None:
    found = measure(queued, finished, rounds)
    Files(RECORDED).put("scale", {"queued": [*queued], "finished": [*finished]}, found)
    every = found["sizes"]
    panels = [
        _panel([size for size in every if size["finished"] == finished[0]], "queued"),
        _panel([size for size in every if size["queued"] == queued[0]], "finished"),
    ]
    write("scale", "Requests and memory by the number of jobs", [*plot("scale", panels), *lines(found)])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -P -m benchmarks.scale")
    parser.add_argument("--queued", type=int, nargs="+", default=QUEUED, help="numbers of queued jobs")
    parser.add_argument("--finished", type=int, nargs="+", default=FINISHED, help="numbers of finished jobs")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    main(**vars(parser.parse_args()))
