"""A Dyno to be asked anything: a process that serves, a store, a receiver of webhooks, a stand-in for workers."""

import asyncio
import base64
import contextlib
from dataclasses import dataclass
from typing import Any

import httpx

from dyno.models.api_key import NewKey
from dyno.settings import Settings
from dyno.store.api_keys import ApiKeys
from dyno.store.embedded import EmbeddedServer
from dyno.store.redis import async_client, sync_client
from tests.fuzz.stand_in import FILES, Devices, at_work
from tests.inbox import Inbox
from tests.service.processes import running
from tests.waiting import eventually

HELD_S = "3600"  # a lease that nobody extends
AT_ONCE_S = "0.02"
TRIES = 20
JOB = {"workload": "matmul", "device": "cpu", "expires_in_s": 3600}


@dataclass(frozen=True)
class Known:
    """What is there from the start, and stays. `ids` are by the folder of a path that they are in; `jobs`, where only
    some are right, and `bodies` by operation. `token` holds the job that files are for."""

    ids: dict[str, str]
    jobs: dict[str, str]
    bodies: dict[str, list[Any]]
    kept: list[str]
    token: str


@dataclass(frozen=True)
class House:
    """Where it is, what it says of itself, and an admin's key where there are keys."""

    url: str
    document: dict[str, Any]
    key_id: str | None
    secret: str | None
    known: Known

    @property
    def operations(self):
        """Method and path of each."""
        return {f"{method.upper()} {path}" for path, methods in self.document["paths"].items() for method in methods}


@contextlib.contextmanager
def house(folder, *, keys):
    with EmbeddedServer() as server, Inbox() as inbox:
        values = {
            "redis_url": server.url,
            "device_ttl_s": HELD_S,
            "lease_s": HELD_S,
            "artifact_dir": str(folder / "artifacts"),
            "run_dir": str(folder / "run"),
            "spool_dir": str(folder / "spool"),
            "webhook_secret": f"whsec_{base64.b64encode(bytes(32)).decode()}",
            "webhook_allowed_hosts": f"127.0.0.1:{inbox.port}",
            "webhook_every_s": AT_ONCE_S,
        }
        settings = Settings.model_validate(values)
        key_id, secret = asyncio.run(_an_admin(settings)) if keys else (None, None)
        headers = {} if secret is None else {"Authorization": f"Bearer {secret}"}
        with (
            (folder / "log").open("w") as log,
            running(stderr=log, **values) as (_, url),
            httpx.Client(base_url=url, headers=headers, timeout=30) as http,
            sync_client(settings) as client,
        ):
            devices = Devices(client, settings)
            held = devices.held(http, JOB)
            with at_work(devices, http, JOB | {"webhook": inbox.url}):
                document = http.get("/openapi.json").json()
                known = _furnished(http, document, inbox.url, held, keys=keys)
                yield House(url, document, key_id, secret, known)


SCHEDULE = {"cron": "0 3 * * *", "spec": JOB}
SWEEP = {"spec": JOB, "grid": {"params.repeats": [1, 2]}}


async def _an_admin(settings):
    async with async_client(settings) as client:
        key, secret = await ApiKeys(client, settings).create(NewKey(name="fuzz", scope="admin"))
        return key.id, secret


def _furnished(http, document, hook, held, *, keys):
    jobs = [_succeeded(http, JOB | {"webhook": hook}) for _ in range(2)]
    comparison = http.post("/v1/comparisons", json={"jobs": jobs}).raise_for_status().json()["id"]
    http.put("/v1/baselines/main", json={"job": jobs[0]}).raise_for_status()
    http.put("/v1/schedules/nightly", json=SCHEDULE).raise_for_status()
    delivered = {"job": jobs[0], "status": "delivered"}
    deliveries = eventually(lambda: http.get("/v1/webhook-deliveries", params=delivered).json()["data"])
    spare = {"name": "spare", "scope": "read"}
    ids = {
        "jobs": jobs[0],
        "artifacts": next(iter(FILES)),
        "comparisons": comparison,
        "sweeps": http.post("/v1/sweeps", json=SWEEP).raise_for_status().json()["id"],
        "baselines": "main",
        "schedules": "nightly",
        "alarms": f"alm_{'0' * 26}",  # an alarm needs a year of results
        "webhook-deliveries": deliveries[0]["id"],
        "workloads": "matmul",
        "devices": "cpu:0-1",
        "keys": http.post("/v1/keys", json=spare).json()["id"] if keys else f"key_{'0' * 16}",
    }
    absent = JOB | {"device": "tpu", "queue_if_absent": True}
    canceled = http.post("/v1/jobs", json=absent).raise_for_status().json()["id"]
    http.post(f"/v1/jobs/{canceled}/cancel").raise_for_status()
    bodies = _examples(document)
    bodies["submitJob"] += [absent, JOB | {"webhook": hook}]
    bodies["createComparison"] = [each for each in bodies["createComparison"] if "specs" in each] + [{"jobs": jobs}]
    bodies["putSchedule"] = [SCHEDULE]
    bodies["putBaseline"] = [{"job": jobs[0]}, {"metric": "throughput", "at_least": 1.0}]
    bodies["importResults"] = [http.get("/v1/results", params={"format": "jsonl", "limit": 1}).text]
    only = {"putArtifact": held.job_id, "cancelJob": canceled}
    return Known(ids, only, bodies, [*jobs, *only.values()], held.token)


def _succeeded(http, spec):
    """The stand-in lets some fail."""
    for _ in range(TRIES):
        job = http.post("/v1/jobs", json=spec, headers={"Prefer": "wait=10"}).raise_for_status().json()
        if job["status"] == "succeeded":
            return str(job["id"])
    raise AssertionError("no job has succeeded")


def _examples(document):
    """The bodies that the document shows."""
    found = [operation for methods in document["paths"].values() for operation in methods.values()]
    shown = {each["operationId"]: each.get("requestBody", {}).get("content", {}) for each in found}
    return {
        name: [example["value"] for example in content["application/json"]["examples"].values()]
        for name, content in shown.items()
        if "examples" in content.get("application/json", {})
    }
