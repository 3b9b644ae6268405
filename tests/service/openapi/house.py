"""Three services that can repeat every example: one without keys, one with keys, and one without a store."""

import asyncio
import json
import re
from contextlib import contextmanager
from dataclasses import dataclass, field

import httpx
import redis

from dyno.models.api_key import Limits, NewKey, Scope
from dyno.models.device import Device, PeakFigure
from dyno.models.result import Artifact, Result, RunSamples
from dyno.settings import Settings
from dyno.store.api_keys import ApiKeys
from dyno.store.leases import Claim, Leases
from dyno.store.redis import Keys, async_client, sync_client
from service.app import create_app
from tests.comparisons import a_metric, of_metrics
from tests.service.workers import publish, take

TINY = {"workload": "matmul", "params": {"n": 64}, "device": "cpu", "expires_in_s": 3600}
IN_TURNS = {"specs": [TINY, TINY | {"params": {"n": 64, "repeats": 20}}], "pairs": 4}
SWEEP = {"spec": TINY, "grid": {"params.n": [64, 128]}, "base": {"params.n": 64}}
BENCH = Device(
    id="cpu:0-0",
    kind="cpu",
    model="Test CPU",
    host="bench-1",
    cores=[0],
    memory_bytes=8 * 2**30,
    peak={"float32": PeakFigure(value=1e11, provenance="measured here")},
    frameworks={"tensorflow": "2.21.0", "jax": "0.10.2"},
)
SAMPLES = RunSamples(run=0, warmup=[0.3], samples=[0.1], sample_cpu_s=[(0.1, 0.0)], executions_per_sample=4)
PLACES = {"artifacts": "/srv/dyno/artifacts", "redis.sock": "/run/redis/redis.sock"}  # as in the examples


@dataclass(frozen=True)
class House:
    """`http` needs no key; `admin`, `reader` and `poor` send theirs to another service, which queues two jobs at most,
    of `poor` one; `away` is a service whose store can't be reached."""

    http: httpx.Client
    admin: httpx.Client
    reader: httpx.Client
    poor: httpx.Client
    away: httpx.Client
    settings: Settings
    leases: Leases
    redis: redis.Redis
    running: list[Claim] = field(default_factory=list)

    @property
    def keys(self):
        return Keys(self.settings.namespace)

    def job(self, **spec):
        """Queue a job; returns its id."""
        answer = self.http.post("/v1/jobs", json=TINY | spec).raise_for_status()
        return str(answer.json()["id"])

    def claimed(self, **spec):
        """Claim a new job, and stop the one claimed before."""
        while self.running:
            self.leases.finish(self.running.pop(), "stop")
        job_id = self.job(**spec)
        while (claim := take(self.leases, BENCH)) is not None:
            if claim.job_id == job_id:
                self.running.append(claim)
                return claim
            self.leases.finish(claim, "stop")  # left by another test
        raise AssertionError(f"{job_id} wasn't there to be claimed")

    def finished(self, *names, metric=None, **spec):
        """Make a succeeded job with files of these names and this metric; returns its id."""
        claim = self.claimed(**spec)
        artifacts = [Artifact.model_validate(self.put(claim, name).raise_for_status().json()) for name in names]
        result = of_metrics([metric or a_metric()], artifacts=artifacts).model_copy(update={"job": claim.job_id})
        assert self.leases.finish(claim, "succeed", result=Result.model_validate(result), samples=[SAMPLES])
        return claim.job_id

    def put(self, claim, name, content=b"bytes"):
        url = f"/v1/jobs/{claim.job_id}/artifacts/{name}"
        return self.http.put(url, content=content, headers={"Authorization": f"Bearer {claim.token}"})


@contextmanager
def house(settings, folder, serve):
    """Run the services with the store of `settings` and files in `folder`."""
    open_ = settings.model_copy(
        update={"artifact_dir": folder / "artifacts", "artifact_max_bytes": 1000, "max_streams": 1}
    )
    closed = open_.model_copy(update={"namespace": f"{settings.namespace}-keys", "max_queued": 2})
    away = open_.model_copy(update={"redis_url": f"unix://{folder}/redis.sock"})
    admin, reader, poor = (_key(closed, scope, **limits) for scope, limits in _KEYS)
    with (
        serve(create_app(open_)) as http,
        serve(create_app(closed)) as needs_key,
        serve(create_app(away)) as without_store,
        _sending(without_store, admin) as to_none,
        _sending(needs_key, admin) as by_admin,
        _sending(needs_key, reader) as by_reader,
        _sending(needs_key, poor) as by_poor,
        sync_client(open_) as client,
    ):
        for each in (open_, closed):
            publish(client, each, BENCH)
        clients = (http, by_admin, by_reader, by_poor, to_none)
        yield House(*clients, open_, Leases(client, open_), client)


_KEYS = [
    (Scope.ADMIN, {}),
    (Scope.READ, {}),
    (Scope.SUBMIT, {"queued_jobs": 1}),
]


def _key(settings, scope, **limits):
    async def made():
        async with async_client(settings) as client:
            _, secret = await ApiKeys(client, settings).create(NewKey(name="ci", scope=scope, limits=Limits(**limits)))
            return secret

    return asyncio.run(made())


def _sending(http, secret):
    return httpx.Client(base_url=http.base_url, headers={"Authorization": f"Bearer {secret}"}, timeout=30)


def elsewhere(answer, folder):
    """The response with the paths of the recorded examples."""
    text = json.dumps(answer)
    for name, place in PLACES.items():
        text = text.replace(str(folder / name), place)
    return json.loads(text)


def plain(problem):
    """The problem without ids and numbers, which differ each time, and the list of workloads, which grows."""
    text = re.sub(r"\b(job|cmp|swp|key|req|msg)_\w+", r"\1_", json.dumps(problem))
    text = re.sub(r"workloads: [\w, ]+", "workloads:", text)
    return json.loads(re.sub(r"(?<![\w.])-?\d+(\.\d+)?(e[+-]?\d+)?", "0", text))
