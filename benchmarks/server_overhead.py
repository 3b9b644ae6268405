"""The cost of Dyno's own server in each request, against plain uvicorn over the same application.

`python -P -m benchmarks.server_overhead plain dyno=$PWD` measures in alternating rounds. An arm is `plain` (httptools,
uvloop), `frozen` (plain, but the collector leaves alone what was there from the start), or a name and a checkout whose
`python -m service` is measured. docs/results/server.md has figures.
"""

from __future__ import annotations

import argparse
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

import httpx
import psutil
import uvicorn
import uvloop

from dyno.settings import Settings
from dyno.store.embedded import EmbeddedServer
from service.app import create_app

CONNECTIONS = 16
JOB = json.dumps({"workload": "matmul", "device": "tpu", "queue_if_absent": True})  # nobody takes it
FIGURES = ("requests_per_s", "p50_ms", "p99_ms", "server_cpu_ms")


class PlainServer(uvicorn.Server):
    async def startup(self, sockets: object = None) -> None:
        await super().startup()
        if "frozen" in sys.argv:
            gc.collect()
            gc.freeze()
        sys.stdout.write(f"http://127.0.0.1:{self.servers[0].sockets[0].getsockname()[1]}\n")
        sys.stdout.flush()


def serve_plain() -> None:
    app = create_app(Settings())
    plain = {"log_config": None, "access_log": False, "server_header": False}
    PlainServer(uvicorn.Config(app, port=0, http="httptools", loop="uvloop", **plain)).run()  # type: ignore[arg-type]


async def load(port: int, request: bytes, status: bytes, count: int) -> list[float]:
    """The seconds of `count` requests, over connections that are all kept busy."""
    took_s, left = [], count

    async def one() -> None:
        nonlocal left
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while left > 0:
            left -= 1
            begun_s = time.perf_counter()
            writer.write(request)
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            assert head.startswith(b"http/1.1 " + status), head
            await reader.readexactly(int(head.partition(b"content-length: ")[2].split(b"\r")[0]))
            took_s.append(time.perf_counter() - begun_s)
        writer.close()

    await asyncio.gather(*(one() for _ in range(CONNECTIONS)))
    return took_s


def measure(process: psutil.Process, port: int, request: bytes, status: bytes, count: int) -> dict[str, float]:
    uvloop.run(load(port, request, status, 200))
    before, begun_s = process.cpu_times(), time.perf_counter()
    took_s = sorted(uvloop.run(load(port, request, status, count)))
    wall_s, after = time.perf_counter() - begun_s, process.cpu_times()
    cpu_s = after.user + after.system - before.user - before.system
    values = (count / wall_s, took_s[count // 2] * 1e3, took_s[count * 99 // 100] * 1e3, cpu_s / count * 1e3)
    return dict(zip(FIGURES, values, strict=True))


def run(arm: str, redis_url: str, count: int) -> dict[str, dict[str, float]]:
    """Of a fresh process, over a namespace of its own."""
    folder, own = Path(arm.partition("=")[2] or Path.cwd()), ["-m", "service"]
    argv = own if "=" in arm else ["-m", __spec__.name if __spec__ else "benchmarks.server_overhead", "serve", arm]
    given = {"DYNO_REDIS_URL": redis_url, "DYNO_NAMESPACE": uuid.uuid4().hex, "DYNO_PORT": "0"}
    env = os.environ | given | {"PYTHONPATH": str(folder)}
    with subprocess.Popen([sys.executable, "-P", *argv], env=env, cwd=folder, stdout=subprocess.PIPE, text=True) as api:
        try:
            assert api.stdout is not None
            url = api.stdout.readline().split()[-1]
            path = httpx.post(f"{url}/v1/jobs", content=JOB, headers={"Content-Type": "application/json"}).json()[
                "urls"
            ]
            host, post = "Host: localhost\r\n", f"Content-Type: application/json\r\nContent-Length: {len(JOB)}\r\n"
            poll = f"GET {path['self']} HTTP/1.1\r\n{host}\r\n".encode()
            submit = f"POST /v1/jobs HTTP/1.1\r\n{host}{post}\r\n{JOB}".encode()
            process, port = psutil.Process(api.pid), int(url.rpartition(":")[2])
            return {
                "poll": measure(process, port, poll, b"200", count),
                "submit": measure(process, port, submit, b"202", count // 2),
            }
        finally:
            api.kill()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("arms", nargs="+")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--requests", type=int, default=4000)
    asked = parser.parse_args()
    found: dict[str, list[dict[str, dict[str, float]]]] = {arm: [] for arm in asked.arms}
    with EmbeddedServer() as server:
        for number in range(asked.rounds):
            for arm in asked.arms if number % 2 == 0 else asked.arms[::-1]:
                found[arm].append(run(arm, server.url, asked.requests))
                print(arm, json.dumps(found[arm][-1]), file=sys.stderr, flush=True)
    for kind in ("poll", "submit"):
        for figure in FIGURES:
            for arm, rounds in found.items():
                values = sorted(each[kind][figure] for each in rounds)
                median = statistics.median(values)
                print(f"{kind:7}{figure:15}{arm[:30]:31}{median:9.3f}  {values[0]:.3f} to {values[-1]:.3f}")


if __name__ == "__main__":
    serve_plain() if sys.argv[1] == "serve" else main()
