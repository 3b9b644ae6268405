"""Throughput of the frequent requests, beside services that do less: `python -P -m benchmarks.http --rounds 5`.

All services take the same requests from one client. Each is one process, and all use one Redis.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple, cast

import redis
import uvloop

from benchmarks.files import Files
from benchmarks.naive_http import LISTED
from benchmarks.pairs import percentile
from benchmarks.report import RESULTS, prose, table, write
from dyno.devices.device import Device
from dyno.measure.statistics import median
from dyno.models.api_key import Limits, NewKey
from dyno.models.inventory import WorkerRecord
from dyno.models.job import WorkerRef
from dyno.models.result import Result
from dyno.settings import Settings
from dyno.store import fleet
from dyno.store.api_keys import ApiKeys
from dyno.store.embedded import EmbeddedServer
from dyno.store.leases import Leases
from dyno.store.placement import queues_served
from dyno.store.redis import Keys, async_client, sync_client

ROOT = Path(__file__).parent.parent
RECORDED = RESULTS / "recorded"
EXAMPLE = RECORDED / "reproduction" / "fashion.json"  # a training of 15 epochs: 17 kB of JSON
ARMS = ("dyno", "celery", "bare redis", "bare route")
OPERATIONS = {"submit": "submit a job", "poll": "poll a done job", "result": "read a result", "list": "list 20 jobs"}
PATHS = {"poll": "/{id}", "result": "/{id}/result", "list": f"?limit={LISTED}"}
CELLS = [(arm, each) for each in OPERATIONS for arm in ARMS if (arm, each) != ("celery", "list")]  # Celery has no list
COMPARED = ("celery", "bare redis")
BEHIND = ("fastapi", "uvicorn", "uvloop", "httptools", "celery", "redis")
ROUNDS, SECONDS, WARMUP_SHARE = 5, 2.0, 0.1
CONNECTIONS, PATIENCE_S = 16, 30.0
LENGTH = re.compile(rb"\r\ncontent-length: (\d+)", re.IGNORECASE)
# Labels of a fixed width keep Content-Length constant.
BODY = b'{"workload":"matmul","params":{"n":64},"device":"cpu","labels":{"commit":"%032x","build":"%010d"}}'
METHOD = """Requests a second of one service process: median of {rounds} rounds (least to largest), and the median p99.
    {connections} keep-alive connections send the next request when the response to the last one is complete, for
    {seconds:g} s in each cell. All services run side by side, and every other round takes the cells in reverse order.
    Load generator, services and Redis share this machine; the load generator used at most {share:.0%} of a core. It
    checks the status of every response, the number of jobs in each list, and that a poll and a result always have the
    same bytes. In the end, each service must have stored every job that it accepted."""
SERVICES = {
    "dyno": """one API process with an API key and its limit on requests, a new Idempotency-Key and new labels in each
        submit, metrics, and the access log in a file, which is off by default. A published device fits the jobs, so
        each submit is checked against it""",
    "celery": """FastAPI with a Pydantic model of the same fields, `delay()` and `AsyncResult` in plain functions, Redis
        as the broker and the result backend. No key, no idempotency, no list""",
    "bare redis": """FastAPI and redis-py's asyncio client: RPUSH of the body and SET of a record in one round trip,
        GET, LRANGE. It parses the body's JSON and validates nothing else""",
    "bare route": "FastAPI and a constant of 70 bytes for every request",
}
SERVER = """`service/server.py` adds limits on connections and on the head of a request to uvicorn. On 2026-11-23, in 9
    interleaved rounds with 16 connections on two shared cores, a poll took 0.93 ms of the API's CPU time with these
    limits, 0.95 ms with those of 0.1.0, and 0.92 ms with plain uvicorn; rounds differed by 0.3 to 0.5 ms. Garbage
    collection decides p99: a full collection visits all objects that the imports left, and stops all requests for 80
    ms. `gc.collect()` and `gc.freeze()` at the start cut p99 of a poll from 92 ms to 23 ms with plain uvicorn. With
    both calls, it was 27 ms with these limits and 23 ms with those of 0.1.0. All services in the tables above make
    these calls."""


class Cell(NamedTuple):
    requests_per_s: float
    p99_ms: float


@dataclass
class Measured:
    """`cells`: by operation and arm, one for each round. `client_share`: the largest use of a core in any cell."""

    rounds: int
    seconds: float
    result_bytes: int = 0
    client_share: float = 0.0
    cells: dict[str, dict[str, list[Cell]]] = field(default_factory=dict)

    def rates(self, operation: str, arm: str) -> list[float]:
        return [each.requests_per_s for each in self.cells[operation][arm]]

    def as_json(self) -> dict[str, Any]:
        """The cells, each with the names of its figures."""
        return {
            operation: {arm: [each._asdict() for each in cells] for arm, cells in arms.items()}
            for operation, arms in self.cells.items()
        }


class Connection(asyncio.Protocol):
    """Sends the next request when the response to the last one is complete. Lighter than asyncio's streams."""

    def __init__(self, ask: Callable[[], bytes], check: Callable[[int, bytes], bool], until_s: float) -> None:
        self._ask, self._check, self._until_s, self._unread = ask, check, until_s, b""
        self.took_s: list[float] = []
        self.last_body: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._send(time.perf_counter())

    def data_received(self, data: bytes) -> None:
        self._unread += data
        head, end, body = self._unread.partition(b"\r\n\r\n")
        length = LENGTH.search(head)
        if not end or (length and len(body) < int(length[1])):
            return
        now_s, status, self._unread = time.perf_counter(), int(head[9:12]), b""
        self.took_s.append(now_s - self._sent_s)
        if length is None or len(body) > int(length[1]) or not self._check(status, body):
            self._fail(f"wrong response: {head.decode()}\n{body[:1000].decode()}")
        elif now_s < self._until_s:
            self._send(now_s)
        else:
            self.last_body.set_result(body)
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(f"the service closed a connection: {exc}")

    def _send(self, now_s: float) -> None:
        self._sent_s = now_s
        self._transport.write(self._ask())

    def _fail(self, message: str) -> None:
        if not self.last_body.done():
            self.last_body.set_exception(RuntimeError(message))
            self._transport.close()


class Client:
    """Of one service. Every method raises RuntimeError at a wrong response.

    `submits`: how many the service accepted. `known`: the body that a response must have, if it never changes.
    """

    def __init__(self, arm: str, port: int, secret: str) -> None:
        self.arm, self._port, self.submits = arm, port, 0
        self.known: dict[str, bytes] = {}
        self._numbers, self._commit = count(), uuid.uuid4().int
        self._head = f"HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {secret}\r\n"

    def submit(self, body: bytes) -> Any:
        """The response to one submit, which isn't counted."""
        return json.loads(self._load(lambda: self._post(body), _accepted, connections=1)[1])

    def learn(self, job_id: str, result: Any) -> None:
        """Check the responses about the done job, and submit jobs to list."""
        self._job_id = job_id
        while self.submits < LISTED:
            self.measure("submit", 0)
        for operation in PATHS:
            if (self.arm, operation) in CELLS:
                body = self.known[operation] = self._read(operation)[1]
                if not self._is_right(operation, json.loads(body), result):
                    raise RuntimeError(f"{self.arm}: wrong {operation}: {body[:1000].decode()}")

    def _is_right(self, operation: str, found: Any, result: Any) -> bool:
        """Whether it is the done job, or its result. `_read` checks lists."""
        if self.arm == "bare route" or operation == "list":
            return True
        return bool(found == result if operation == "result" else found["status"].lower() in ("succeeded", "success"))

    def measure(self, operation: str, for_s: float) -> Cell:
        begun_s = time.perf_counter()
        if operation == "submit":
            took_s, _ = self._load(self._next_submit, _accepted, for_s)
            self.submits += len(took_s)
        else:
            took_s, _ = self._read(operation, for_s)
        return Cell(len(took_s) / (time.perf_counter() - begun_s), 1e3 * percentile(took_s, 0.99))

    def _next_submit(self) -> bytes:
        return self._post(BODY % (self._commit, next(self._numbers)))

    def _post(self, body: bytes) -> bytes:
        length = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        return f"POST /v1/jobs {self._head}{length}Idempotency-Key: {uuid.uuid4().hex}\r\n\r\n".encode() + body

    def _read(self, operation: str, for_s: float = 0) -> tuple[list[float], bytes]:
        asked = f"GET /v1/jobs{PATHS[operation].format(id=self._job_id)} {self._head}\r\n".encode()
        known, lists = self.known.get(operation), operation == "list" and self.arm != "bare route"

        def check(status: int, body: bytes) -> bool:
            right = body.count(b'"workload":') == LISTED if lists else known is None or body == known
            return status == 200 and right

        return self._load(lambda: asked, check, for_s)

    def _load(
        self,
        ask: Callable[[], bytes],
        check: Callable[[int, bytes], bool],
        for_s: float = 0,
        connections: int = CONNECTIONS,
    ) -> tuple[list[float], bytes]:
        """The seconds of each request, and the last body of a connection. Each connection sends one at least."""

        async def run() -> tuple[list[float], bytes]:
            loop, until_s = asyncio.get_running_loop(), time.perf_counter() + for_s
            opening = (
                loop.create_connection(lambda: Connection(ask, check, until_s), "127.0.0.1", self._port)
                for _ in range(connections)
            )
            async with asyncio.timeout(for_s + PATIENCE_S):
                opened = [protocol for _, protocol in await asyncio.gather(*opening)]
                bodies = await asyncio.gather(*(each.last_body for each in opened))
            return [each for one in opened for each in one.took_s], bodies[0]

        return uvloop.run(run())


def _accepted(status: int, body: bytes) -> bool:
    return status == 202 and b'"id":' in body


def measure(rounds: int, seconds: float) -> Measured:
    """Raises RuntimeError if a service fails."""
    found = Measured(rounds, seconds)
    with services(found) as clients:
        for arm, operation in CELLS:
            clients[arm].measure(operation, WARMUP_SHARE * seconds)
        for number in range(rounds):
            for arm, operation in CELLS[:: 1 - 2 * (number % 2)]:
                print(f"round {number + 1} of {rounds}, {operation}, {arm}: ", end="", flush=True)
                begun_s, used_s = time.perf_counter(), time.process_time()
                cell = clients[arm].measure(operation, seconds)
                share = (time.process_time() - used_s) / (time.perf_counter() - begun_s)
                found.client_share = max(found.client_share, share)
                found.cells.setdefault(operation, {}).setdefault(arm, []).append(cell)
                print(f"{cell.requests_per_s:,.0f} a second", flush=True)
    return found


@contextmanager
def services(found: Measured) -> Iterator[dict[str, Client]]:
    """All services with one done job. In the end, each must have stored what it accepted."""
    with tempfile.TemporaryDirectory() as folder, EmbeddedServer() as server, ExitStack() as stack:
        own = {"REDIS_URL": server.url, "PORT": "0", "DEVICE_TTL_S": "86400", "MAX_QUEUED": "10000000"}
        own |= {"NAMESPACE": "bench", "ACCESS_LOG": "yes", "ARTIFACT_DIR": folder}
        settings = Settings.model_validate({name.lower(): value for name, value in own.items()})
        redis_client, secret = stack.enter_context(sync_client(settings)), asyncio.run(_new_key(settings))
        clients = {}
        for arm in ARMS:
            words = ["service"] if arm == "dyno" else ["benchmarks.naive_http", arm, server.url]
            log = Path(folder) / f"{arm}.log"
            clients[arm] = Client(arm, stack.enter_context(_serving(words, own, log)), secret)
        result = _finish_job(redis_client, settings, clients["dyno"])
        job_id, text = result["job"], json.dumps(result, separators=(",", ":"))
        found.result_bytes = len(text)
        done = {"status": "SUCCESS", "result": result, "traceback": None, "children": [], "task_id": job_id}
        redis_client.set(f"celery-task-meta-{job_id}", json.dumps(done))  # as Celery's workers store it
        redis_client.mset({f"bare:job:{job_id}": '{"status":"succeeded"}', f"bare:result:{job_id}": text})
        for client in clients.values():
            client.learn(job_id, result)
        yield clients
        stored: dict[str, Any] = {"celery": redis_client.llen("celery"), "bare redis": redis_client.llen("bare:jobs")}
        stored["dyno"] = redis_client.zcard(Keys("bench").jobs_with_status("queued"))
        if wrong := {arm: (clients[arm].submits, kept) for arm, kept in stored.items() if kept != clients[arm].submits}:
            raise RuntimeError(f"jobs accepted and stored: {wrong}")


async def _new_key(settings: Settings) -> str:
    async with async_client(settings) as client:
        asked = NewKey(name="bench", scope="submit", limits=Limits(requests_per_s=10**6))
        return (await ApiKeys(client, settings).create(asked))[1]


@contextmanager
def _serving(words: list[str], own: dict[str, str], log: Path) -> Iterator[int]:
    """The port of a service. Raises RuntimeError if it doesn't start, or ends by itself."""
    foreign = {name: value for name, value in os.environ.items() if not name.startswith("DYNO_")}
    env = foreign | {f"DYNO_{name}": value for name, value in own.items()} | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-P", "-m", *words]
    with (
        log.open("w") as stderr,
        subprocess.Popen(command, env=env, cwd=ROOT, stdout=subprocess.PIPE, stderr=stderr, text=True) as process,
    ):
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line:
                raise RuntimeError(f"{words} didn't start: {log.read_text()[-2000:]}")
            yield int(line.rpartition(":")[2])
            if process.poll() is not None:
                raise RuntimeError(f"{words} ended: {log.read_text()[-2000:]}")
        finally:
            process.kill()


def _finish_job(client: redis.Redis, settings: Settings, http: Client) -> Any:
    """Submit the example's job and finish it as a worker does. Returns the result as JSON."""
    example = json.loads(EXAMPLE.read_text())
    result = Result.model_validate(example["result"])
    device, leases = Device.model_validate(result.device), Leases(client, settings)
    worker = WorkerRef(id=f"{device.full_id}.000000", device=device.id, host=device.host)
    now = datetime.now(UTC)
    record = WorkerRecord(
        id=worker.id, host=device.host, pid=1, device=device.full_id, state="idle", version="0", started_at=now
    )
    fleet.publish(client, settings, device, record)
    job_id = http.submit(json.dumps(example["spec"]).encode())["id"]
    claim = leases.claim(device.full_id, queues_served(device), worker)
    assert claim is not None
    assert claim.job_id == job_id
    result = result.model_copy(update={"job": job_id})
    assert leases.finish(claim, "succeed", result=result)
    return result.model_dump(mode="json", by_alias=True)


def lines(found: Measured) -> list[str]:
    fields = asdict(found) | {"connections": CONNECTIONS, "share": found.client_share}
    short = "**These figures are of a short run, to try the benchmark. Replace them: `python -m benchmarks http`.**"
    rows = [[text, *(_cell(found, each, arm) for arm in ARMS)] for each, text in OPERATIONS.items()]
    ratios = [[text, *(_ratio(found, each, arm) for arm in COMPARED)] for each, text in OPERATIONS.items()]
    return [
        *(prose(short) if found.rounds < ROUNDS or found.seconds < SECONDS else []),
        *prose(METHOD.format(**fields)),
        *table(("", *ARMS), rows),
        *(f"- `{arm}`: {' '.join(text.split())}." for arm, text in SERVICES.items()),
        "",
        *prose(
            f"The result has {found.result_bytes:,} bytes. {', '.join(f'{each} {version(each)}' for each in BEHIND)}."
        ),
        *("## Dyno's throughput divided by another's", ""),
        *prose("Median of the rounds' ratios (least to largest)."),
        *table(("", *(f"by that of {arm}" for arm in COMPARED)), ratios),
        *("## Limits of connections, and garbage collection", ""),
        *prose(SERVER),
    ]


def _cell(found: Measured, operation: str, arm: str) -> str:
    if (arm, operation) not in CELLS:
        return "–"
    p99_ms = median([each.p99_ms for each in found.cells[operation][arm]])
    return f"{_spread(found.rates(operation, arm), ',.0f')}; p99 {p99_ms:.1f} ms"


def _ratio(found: Measured, operation: str, other: str) -> str:
    if (other, operation) not in CELLS:
        return "–"
    pairs = zip(found.rates(operation, "dyno"), found.rates(operation, other), strict=True)
    return _spread([own / theirs for own, theirs in pairs], ".2f")


def _spread(values: list[float], form: str) -> str:
    return f"{median(values):{form}} ({min(values):{form}} to {max(values):{form}})"


def main(rounds: int = ROUNDS, seconds: float = SECONDS) -> None:
    found = measure(rounds, seconds)
    asked = {"rounds": rounds, "seconds": seconds, "connections": CONNECTIONS}
    Files(RECORDED).put("http", asked, {"cells": found.as_json()})
    write("http", "Frequent requests: throughput of one API process", lines(found))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -P -m benchmarks.http")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of each cell")
    main(**vars(parser.parse_args()))
