"""Services that answer the requests of `benchmarks.http` in simpler ways: `python -P -m benchmarks.naive_http ARM URL`.

They import nothing of Dyno, so that each process holds only what it needs. The process prints its port.
"""

from __future__ import annotations

import gc
import json
import socket
import sys
import uuid
from typing import Any

import redis.asyncio
import uvicorn
from celery import Celery
from fastapi import FastAPI, Request, Response
from pydantic import BaseModel

LISTED = 20
CONSTANT = {"id": "job_01M80PT6VM78YWA14Q3XXHDWDJ", "status": "queued", "done": False}


class Measure(BaseModel):
    processes: int = 5
    target_rel_ci: float = 0.01
    min_samples: int = 20
    max_s: float = 60.0
    min_s: float = 2.0
    cold_start: bool = False


class Spec(BaseModel):
    workload: str
    params: dict[str, Any] = {}
    framework: str = "tensorflow"
    device: str = "any"
    replicas: int = 1
    measure: Measure = Measure()
    seed: int = 0
    timeout_s: float | None = None
    priority: str = "normal"
    labels: dict[str, str] = {}
    webhook: str | None = None
    expires_in_s: int = 30 * 86400
    queue_if_absent: bool = False


def celery(redis_url: str) -> FastAPI:
    """As Celery's and FastAPI's guides show it: plain functions, which FastAPI calls in threads."""
    url = redis_url.replace("unix://", "redis+socket://")
    api, tasks = FastAPI(), Celery("naive", broker=url, backend=url)

    @tasks.task  # type: ignore[untyped-decorator]
    def run(spec: dict[str, Any]) -> None:
        """No worker runs it."""

    @api.post("/v1/jobs", status_code=202)
    def submit(spec: Spec) -> dict[str, str]:
        return {"id": run.delay(spec.model_dump()).id}

    @api.get("/v1/jobs/{job_id}")
    def poll(job_id: str) -> dict[str, str]:
        return {"id": job_id, "status": run.AsyncResult(job_id).status}

    @api.get("/v1/jobs/{job_id}/result")
    def result(job_id: str) -> dict[str, Any]:
        return dict(run.AsyncResult(job_id).result)

    return api


def bare_redis(redis_url: str) -> FastAPI:
    """The minimum that stores a job: a list of bodies, and a record of each. Only the JSON is validated."""
    api, client = FastAPI(), redis.asyncio.from_url(redis_url)

    @api.post("/v1/jobs")
    async def submit(request: Request) -> Response:
        body, job_id = await request.body(), uuid.uuid4().hex
        json.loads(body)
        record = json.dumps({"id": job_id, "status": "queued"})
        async with client.pipeline(transaction=False) as pipeline:
            pipeline.rpush("bare:jobs", body)
            pipeline.set(f"bare:job:{job_id}", record)
            await pipeline.execute()
        return Response(record, 202, media_type="application/json")

    @api.get("/v1/jobs/{job_id}")
    async def poll(job_id: str) -> Response:
        return Response(await client.get(f"bare:job:{job_id}"), media_type="application/json")

    @api.get("/v1/jobs/{job_id}/result")
    async def result(job_id: str) -> Response:
        return Response(await client.get(f"bare:result:{job_id}"), media_type="application/json")

    @api.get("/v1/jobs")
    async def newest() -> Response:
        found: Any = await client.lrange("bare:jobs", -LISTED, -1)
        return Response(b"[%b]" % b",".join(found), media_type="application/json")

    return api


def bare_route(redis_url: str) -> FastAPI:
    """The cost of HTTP and FastAPI: one constant for every request."""
    api = FastAPI()

    @api.post("/v1/jobs", status_code=202)
    @api.get("/v1/jobs/{job_id}")
    @api.get("/v1/jobs/{job_id}/result")
    @api.get("/v1/jobs")
    async def constant() -> dict[str, Any]:
        return CONSTANT

    return api


def main(arm: str, redis_url: str) -> None:
    api = {"celery": celery, "bare redis": bare_redis, "bare route": bare_route}[arm](redis_url)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
        gc.collect()
        gc.freeze()  # as Dyno's API does: full collections would decide p99
        config = uvicorn.Config(api, loop="uvloop", http="httptools", log_level="warning", access_log=False)
        uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main(*sys.argv[1:])
