"""The cost of Dyno's own server in each request, against plain uvicorn over the same application.

`python -P -m benchmarks.server_overhead plain new=$PWD old=/other/checkout` measures in alternating rounds. An arm is
`plain` (uvicorn with httptools and uvloop), `frozen` (plain, after `gc.freeze`), or a name and a checkout.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import statistics
import subprocess
import sys
import time
import uuid
from pathlib import Path

import uvicorn
import uvloop

from benchmarks.load.callers import SPEC
from benchmarks.load.rig import Api
from benchmarks.load.wire import Line, request
from dyno.settings import Settings
from dyno.store.embedded import EmbeddedServer
from service.app import create_app

ROUNDS, CONNECTIONS, POLLS, SUBMITS = 9, 16, 3000, 1500
FIGURES = ("requests_per_s", "p50_ms", "p99_ms", "server_cpu_ms")
SUBMIT = request("POST", "/v1/jobs", json.dumps(SPEC).encode())


class PlainServer(uvicorn.Server):
    async def startup(self, sockets: object = None) -> None:
        await super().startup()
        if "frozen" in sys.argv:
            gc.collect()
            gc.freeze()
        sys.stdout.write(f"http://127.0.0.1:{self.servers[0].sockets[0].getsockname()[1]}\n")
        sys.stdout.flush()


async def load(port: int, asked: bytes, status: int, count: int) -> list[float]:
    """The seconds of `count` requests, over connections that are all kept busy."""
    left, took_s = iter(range(count)), list[float]()

    async def one() -> None:
        line = Line(port)
        for _ in left:
            begun_s = time.perf_counter()
            assert (await line.ask(asked)).status == status
            took_s.append(time.perf_counter() - begun_s)
        line.close()

    await asyncio.gather(*(one() for _ in range(CONNECTIONS)))
    return sorted(took_s)


def measure(api: Api, kind: str, asked: bytes, status: int, count: int) -> dict[tuple[str, str], float]:
    uvloop.run(load(api.port, asked, status, 200))
    before_s, begun_s = api.cpu_s(), time.perf_counter()
    took_s = uvloop.run(load(api.port, asked, status, count))
    rate, cpu_s = count / (time.perf_counter() - begun_s), api.cpu_s() - before_s
    values = (rate, took_s[count // 2] * 1e3, took_s[count * 99 // 100] * 1e3, cpu_s / count * 1e3)
    return dict(zip(((kind, figure) for figure in FIGURES), values, strict=True))


def run(arm: str, redis_url: str) -> dict[tuple[str, str], float]:
    folder = arm.partition("=")[2] or str(Path.cwd())
    argv = ["-m", "service"] if "=" in arm else ["-m", "benchmarks.server_overhead", "serve", arm]
    own = {"DYNO_REDIS_URL": redis_url, "DYNO_NAMESPACE": uuid.uuid4().hex, "DYNO_PORT": "0", "PYTHONPATH": folder}
    argv = [sys.executable, "-P", *argv]
    with subprocess.Popen(argv, env=os.environ | own, cwd=folder, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            api = Api(process, int(process.stdout.readline().rpartition(":")[2]))
            job = json.loads(asyncio.run(Line(api.port).ask(SUBMIT)).body)["urls"]["self"]
            poll = measure(api, "poll", request("GET", job), 200, POLLS)
            return poll | measure(api, "submit", SUBMIT, 202, SUBMITS)
        finally:
            process.kill()


def main(arms: list[str]) -> None:
    with EmbeddedServer() as server:
        rounds = [{arm: run(arm, server.url) for arm in arms[:: 1 - 2 * (n % 2)]} for n in range(ROUNDS)]
    for kind, figure in rounds[0][arms[0]]:
        for arm in arms:
            values = [each[arm][kind, figure] for each in rounds]
            median, least, most = statistics.median(values), min(values), max(values)
            print(f"{kind:7} {figure:14} {arm[:24]:24} {median:9.3f}  {least:.3f} to {most:.3f}")


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        PlainServer(uvicorn.Config(create_app(Settings()), port=0, http="httptools", log_config=None)).run()
    else:
        main(sys.argv[1:])
