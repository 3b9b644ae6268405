"""Throughput of the frequent requests, beside services that do less: `python -P -m benchmarks.http --rounds 5`.

All services take the same requests from one client, and all use one Redis.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import redis
import uvloop

from benchmarks import loadgen
from benchmarks.files import Files
from benchmarks.naive_http import LISTED
from benchmarks.pairs import percentile
from benchmarks.plots import Panel, plot
from benchmarks.report import RESULTS, prose, table, write
from dyno.bench.measure.statistics import median
from dyno.models.api_key import Limits, NewKey
from dyno.models.device import Device
from dyno.models.inventory import WorkerRecord
from dyno.models.job import WorkerRef
from dyno.models.result import Result, RunSamples
from dyno.settings import Settings
from dyno.store import fleet
from dyno.store.api_keys import ApiKeys
from dyno.store.embedded import EmbeddedServer
from dyno.store.leases import Leases
from dyno.store.placement import queues_served
from dyno.store.redis import Keys, async_client, sync_client
from dyno.store.stored_results import StoredResult, encode_result

RECORDED = RESULTS / "recorded"
EXAMPLE = RECORDED / "reproduction" / "fashion.json"  # a training of 15 epochs: 17 kB of JSON
TWO = "dyno, 2 processes"
OURS = {"dyno": "1", TWO: "2"}  # processes of the API
ARMS = (*OURS, "celery", "bare redis", "bare route")
OPERATIONS = {"submit": "submit a job", "poll": "poll a done job", "result": "read a result", "list": "list 20 jobs"}
PATHS = {"poll": "/{id}", "result": "/{id}/result", "list": f"?limit={LISTED}"}
COMPARED = ("celery", "bare redis")
BEHIND = ("fastapi", "uvicorn", "uvloop", "httptools", "celery", "redis")
ROUNDS, SECONDS, WARMUP_SHARE, CONNECTIONS, MIN_CORES = 5, 2.0, 0.1, 16, 4
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
        submit, and metrics; the access log is off, as by default. A published device fits the jobs, so
        each submit is checked against it""",
    TWO: "the same with `dyno serve --processes 2`",
    "celery": """FastAPI with a Pydantic model of the same fields, `delay()` and `AsyncResult` in plain functions, Redis
        as the broker and the result backend. No key, no idempotency, no list""",
    "bare redis": """FastAPI and redis-py's asyncio client: RPUSH of the body and SET of a record in one round trip,
        GET, LRANGE. It parses the body's JSON and validates nothing else""",
    "bare route": "FastAPI and a constant of 70 bytes for every request",
}


class Cell(NamedTuple):
    requests_per_s: float
    p99_ms: float


@dataclass
class Measured:
    """`cells`: by operation and arm, one for each round. `client_share`: the generator's largest share of a core."""

    rounds: int
    seconds: float
    arms: tuple[str, ...]
    result_bytes: int = 0
    client_share: float = 0.0
    cells: dict[str, dict[str, list[Cell]]] = field(default_factory=dict)

    def all_cells(self) -> list[tuple[str, str]]:
        """Celery has no list."""
        return [(arm, each) for each in OPERATIONS for arm in self.arms if (arm, each) != ("celery", "list")]

    def rates(self, operation: str, arm: str) -> list[float]:
        return [each.requests_per_s for each in self.cells[operation].get(arm, [])]


class Client:
    """A client of one service. Every method raises RuntimeError at a wrong response.

    `submits`: how many the service accepted. `known`: the body that a response must have, if it never changes.
    """

    def __init__(self, arm: str, port: int, secret: str) -> None:
        self.arm, self._port, self.submits = arm, port, 0
        self.known: dict[str, bytes] = {}
        self._numbers, self._commit, self._key = count(), uuid.uuid4().int, f"Bearer {secret}"

    def submit(self, body: bytes) -> Any:
        """The response to one submit, which isn't counted."""
        return json.loads(uvloop.run(loadgen.send(self._port, lambda: self._post(body), _accepted)).body)

    def learn(self, job_id: str, result: Any) -> None:
        """Check the responses about the done job, and submit jobs to list."""
        self._job_id = job_id
        while self.submits < LISTED:
            self.measure("submit", 0)
        for operation in PATHS if self.arm != "celery" else ("poll", "result"):
            body = self.known[operation] = self._load(operation, 0).body
            if not self._is_right(operation, json.loads(body), result):
                raise RuntimeError(f"{self.arm}: wrong {operation}: {body[:1000].decode()}")

    def _is_right(self, operation: str, found: Any, result: Any) -> bool:
        """Whether `found` is the done job or its result. `_load` checks lists."""
        if self.arm == "bare route" or operation == "list":
            return True
        return bool(found == result if operation == "result" else found["status"].lower() in ("succeeded", "success"))

    def measure(self, operation: str, for_s: float) -> Cell:
        begun_s = time.perf_counter()
        took_s = self._load(operation, for_s).took_s
        self.submits += len(took_s) if operation == "submit" else 0
        return Cell(len(took_s) / (time.perf_counter() - begun_s), 1e3 * percentile(took_s, 0.99))

    def _load(self, operation: str, for_s: float) -> loadgen.Load:
        ask, check = self._next_submit, _accepted
        if operation != "submit":
            asked = loadgen.request(
                "GET", f"/v1/jobs{PATHS[operation].format(id=self._job_id)}", Authorization=self._key
            )
            known, lists = self.known.get(operation), operation == "list" and self.arm != "bare route"

            def ask() -> bytes:
                return asked

            def check(status: int, body: bytes) -> bool:
                right = body.count(b'"workload":') == LISTED if lists else known is None or body == known
                return status == 200 and right

        return uvloop.run(loadgen.send(self._port, ask, check, loadgen.after(for_s), CONNECTIONS))

    def _next_submit(self) -> bytes:
        return self._post(BODY % (self._commit, next(self._numbers)))

    def _post(self, body: bytes) -> bytes:
        key = uuid.uuid4().hex
        return loadgen.request("POST", "/v1/jobs", body, Authorization=self._key, Idempotency_Key=key)


def _accepted(status: int, body: bytes) -> bool:
    return status == 202 and b'"id":' in body


def measure(rounds: int, seconds: float, arms: tuple[str, ...]) -> Measured:
    """Raises RuntimeError if a service fails."""
    found = Measured(rounds, seconds, arms)
    with services(found) as clients:
        for arm, operation in found.all_cells():
            clients[arm].measure(operation, WARMUP_SHARE * seconds)
        for number in range(rounds):
            for arm, operation in found.all_cells()[:: 1 - 2 * (number % 2)]:
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
    """Start all services with one done job each. Yields their clients, then checks that accepted jobs are stored."""
    with tempfile.TemporaryDirectory() as folder, EmbeddedServer() as server, ExitStack() as stack:
        own = {"REDIS_URL": server.url, "PORT": "0", "DEVICE_TTL_S": "86400", "MAX_QUEUED": "10000000"}
        own |= {"NAMESPACE": "bench", "ARTIFACT_DIR": folder}
        settings = Settings.model_validate({name.lower(): value for name, value in own.items()})
        redis_client, secret = stack.enter_context(sync_client(settings)), asyncio.run(_new_key(settings))
        clients = {}
        for arm in found.arms:
            words = ["service"] if arm in OURS else ["benchmarks.naive_http", arm, server.url]
            more = {"PROCESSES": OURS.get(arm, "1")}
            service = stack.enter_context(loadgen.serving(words, own | more, Path(folder) / f"{arm}.log"))
            clients[arm] = Client(arm, service.port, secret)
        result = finish_job(redis_client, settings, clients["dyno"])
        job_id, text = result["job"], json.dumps(result, separators=(",", ":"))
        found.result_bytes = len(text)
        done = {"status": "SUCCESS", "result": result, "traceback": None, "children": [], "task_id": job_id}
        redis_client.set(f"celery-task-meta-{job_id}", json.dumps(done))  # as Celery's workers store it
        redis_client.mset({f"bare:job:{job_id}": '{"status":"succeeded"}', f"bare:result:{job_id}": text})
        for client in clients.values():
            client.learn(job_id, result)
        yield clients
        queued = Keys("bench").jobs_with_status("queued")
        stored: Any = [redis_client.llen("celery"), redis_client.llen("bare:jobs"), redis_client.zcard(queued)]
        ours = sum(client.submits for arm, client in clients.items() if arm in OURS)
        accepted = [clients["celery"].submits, clients["bare redis"].submits, ours]
        if stored != accepted:
            raise RuntimeError(f"Celery, bare Redis and Dyno accepted {accepted} jobs and stored {stored}")


async def _new_key(settings: Settings) -> str:
    async with async_client(settings) as client:
        asked = NewKey(name="bench", scope="submit", limits=Limits(requests_per_s=10**6))
        return (await ApiKeys(client, settings).create(asked))[1]


def publish(client: redis.Redis, settings: Settings, device: Device) -> WorkerRef:
    """Offer the device as an idle worker does."""
    worker = WorkerRef(id=f"{device.full_id}.000000", device=device.id, host=device.host)
    begun = {"version": "0", "started_at": datetime.now(UTC)}
    record = WorkerRecord(id=worker.id, host=device.host, pid=1, device=device.full_id, state="idle", **begun)
    fleet.publish(client, settings, device, record)
    return worker


def finish_job(
    client: redis.Redis, settings: Settings, http: Client, of: Path = EXAMPLE, samples: Sequence[RunSamples] = ()
) -> Any:
    """Submit the example's job and finish it as a worker does. Returns the result as the API shows it."""
    example = json.loads(of.read_text())
    result = Result.model_validate(example["result"])
    device, leases = Device.model_validate(result.device), Leases(client, settings)
    worker = publish(client, settings, device)
    job_id = http.submit(json.dumps(example["spec"]).encode())["id"]
    claim = leases.claim(device.full_id, queues_served(device), worker)
    assert claim is not None
    assert claim.job_id == job_id
    result = result.model_copy(update={"job": job_id})
    assert leases.finish(claim, "succeed", result=result, samples=samples or None)
    return json.loads(StoredResult(job_id, encode_result(result)).document)


def lines(found: Measured) -> list[str]:
    fields = asdict(found) | {"connections": CONNECTIONS, "share": found.client_share}
    rows = [[text, *(_cell(found, each, arm) for arm in found.arms)] for each, text in OPERATIONS.items()]
    ratios = [[text, *(_ratio(found, each, arm) for arm in COMPARED)] for each, text in OPERATIONS.items()]
    versions = ", ".join(f"{each} {version(each)}" for each in BEHIND)
    return [
        *(short_run("http") if found.rounds < ROUNDS or found.seconds < SECONDS else []),
        *prose(METHOD.format(**fields)),
        *table(("", *found.arms), rows),
        *(f"- `{arm}`: {' '.join(SERVICES[arm].split())}." for arm in found.arms),
        "",
        *(prose(f"`{TWO}` needs {MIN_CORES} cores.") if TWO not in found.arms else []),
        *prose(f"The result has {found.result_bytes:,} bytes. {versions}."),
        *("## Dyno's throughput divided by another's", ""),
        *prose("Median of the rounds' ratios (least to largest)."),
        *table(("", *(f"by that of {arm}" for arm in COMPARED)), ratios),
    ]


def short_run(name: str) -> list[str]:
    text = "These figures are of a short run, to try the benchmark. Replace them"
    return prose(f"**{text}: `python -m benchmarks {name}`.**")


def _cell(found: Measured, operation: str, arm: str) -> str:
    if not (rates := found.rates(operation, arm)):
        return "–"
    p99_ms = median([each.p99_ms for each in found.cells[operation][arm]])
    return f"{_spread(rates, ',.0f')}; p99 {p99_ms:.1f} ms"


def _ratio(found: Measured, operation: str, other: str) -> str:
    if not (rates := found.rates(operation, other)):
        return "–"
    return _spread([own / theirs for own, theirs in zip(found.rates(operation, "dyno"), rates, strict=True)], ".2f")


def _spread(values: list[float], form: str) -> str:
    return f"{median(values):{form}} ({min(values):{form}} to {max(values):{form}})"


def main(rounds: int = ROUNDS, seconds: float = SECONDS) -> None:
    enough = len(os.sched_getaffinity(0)) >= MIN_CORES
    found = measure(rounds, seconds, tuple(arm for arm in ARMS if arm != TWO or enough))
    asked = {"rounds": rounds, "seconds": seconds, "connections": CONNECTIONS}
    Files(RECORDED).put("http", asked, {"cells": found.cells})
    series = {}
    for arm in found.arms:
        measured = [each for each in OPERATIONS if found.rates(each, arm)]
        series[arm] = (measured, [median(found.rates(each, arm)) for each in measured])
    shown = plot("http", [Panel("request", "requests a second", series, log="y")])
    write("http", "Frequent requests: throughput of one API process", [*shown, *lines(found)])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -P -m benchmarks.http")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of each cell")
    main(**vars(parser.parse_args()))
