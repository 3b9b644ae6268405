"""Users of Redis that lack any of the rights in deploy/redis/users.acl: a step fails whole, and works later."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
import redis

from chaos.checks import state_violations
from chaos.snapshot import read
from dyno.models.api_key import Viewer
from dyno.models.job import WorkerRef, new_job_id
from dyno.models.result import RunSamples
from dyno.models.spec import Spec
from dyno.models.sweep import Stop, new_sweep_id
from dyno.store.embedded import EmbeddedServer
from dyno.store.jobs import Jobs
from dyno.store.leases import Claim, Leases
from dyno.store.maintenance import expire_leases
from dyno.store.redis import Keys, async_client, sync_client
from dyno.store.result_transfer import ResultImports
from dyno.store.schedules import Schedules
from dyno.store.sweeps import NewJob, Sweeps
from tests.results import a_result
from tests.servers import KINDS, server_binary
from tests.store.contents import contents
from tests.store.test_result_transfer import lines_of
from tests.store.test_schedules import daily, fired
from tests.store.test_sweeps import planned

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

ROOT = Path(__file__).parent.parent.parent
DEVICE, OWNER, SWEEP = "cpu:0-1@alpha", "key_aaaaaaaaaaaaaaaa", new_sweep_id()
VIEWER = Viewer(OWNER, sees_all=False)


def called(path):
    return {f"+{name.lower()}" for name in re.findall(r"redis\.p?call\(\s*'(\w+)'", path.read_text())}


OF_SCRIPTS = {path.stem: called(path) for path in (ROOT / "dyno" / "store").glob("*.lua")}
CALLED = set().union(*OF_SCRIPTS.values())
OF_BOTH = {"expire", "shorten", "audit"}
OF_WORKERS = {"claim", "index", "heartbeat", "finish", "requeue"}


def rules(user):
    """The user's keys and commands."""
    text = (ROOT / "deploy" / "redis" / "users.acl").read_text()
    found = re.search(rf"^user {user} on \S+ resetchannels\n((?:  .+\n)+)", text, re.MULTILINE)
    assert found is not None
    return found[1].split()


@pytest.fixture(scope="module", params=KINDS)
def redis_url(request):
    with EmbeddedServer(binary=server_binary(request.param)) as server:
        yield server.url


@pytest.mark.parametrize("script", sorted(OF_SCRIPTS.keys() - {"_ledger"}))
def test_users_may_call_the_commands_of_their_scripts(script):
    users = ["api", "worker"] if script in OF_BOTH else ["worker"] if script in OF_WORKERS else ["api"]
    assert [OF_SCRIPTS[script] - set(rules(user)) for user in users] == [set()] * len(users)


def test_each_key_is_a_key_of_the_api_or_of_workers():
    patterns = [rule.partition("~")[2] for user in ("api", "worker") for rule in rules(user) if "~" in rule]
    names = [f"dyno:{re.sub('<.+?>', 'x', row.name)}" for row in Keys.rows().values()]
    assert [name for name in names if not any(fnmatchcase(name, pattern) for pattern in patterns)] == []


class User:
    """A user of Redis with the given rules. `settings`: to connect as this user."""

    def __init__(self, admin, settings):
        self._admin, self._name, self._namespace = admin, settings.namespace, settings.namespace
        url = str(settings.redis_url).replace("unix://", f"unix://{self._name}:any@")
        self.settings = settings.model_copy(update={"redis_url": url})

    def may(self, allowed):
        own = [rule.replace("~dyno:", f"~{self._namespace}:") for rule in allowed if rule != "+client|setinfo"]
        self._admin.execute_command("ACL", "SETUSER", self._name, "reset", "on", "nopass", *own)

    def end(self):
        self._admin.execute_command("ACL", "DELUSER", self._name)


@pytest.fixture
def user(client, settings):
    user = User(client, settings)
    yield user
    user.end()


class Store:
    """The store as a user of Redis sees it."""

    def __init__(self, own, own_async, settings):
        self.jobs, self.leases = Jobs(own_async, settings).seen_by(VIEWER), Leases(own, settings)
        self.sweeps, self.schedules = Sweeps(own_async, settings, self.jobs), Schedules(own_async, settings, VIEWER)
        self.client, self.settings = own, settings

    async def submit(self):
        spec = Spec(workload="matmul", device="cpu", labels={"a": "b"}, webhook="https://hooks.example.org/x")
        return (await self.jobs.submit(spec, idempotency_key="one", body_sha256="x", fits={"p": True})).job.id

    def claim(self):
        claim = self.leases.claim(DEVICE, ["cpu"], WorkerRef(id="w", device="cpu:0-1", host="alpha"))
        assert claim is not None
        return claim


async def submit(own, done):
    await own.submit()


async def submit_a_sweep(own, done):
    record, new = planned(Spec(workload="matmul", device="cpu"), 2)
    await own.sweeps.submit(SWEEP, record, new, idempotency_key="two")


async def stop_a_point(own, done):
    stored = await own.sweeps.get(SWEEP)
    assert await own.sweeps.stop(stored, 0, Stop(reason="out_of_memory", by=0))


async def fire_a_schedule(own, done):
    stored = await own.schedules.read(OWNER, "nightly")
    assert stored is not None
    job = NewJob(new_job_id(), Spec(workload="matmul"), [], {})
    assert await own.schedules.fire(stored, fired(stored.document, job.id), job, own.jobs)


async def cancel(own, done):
    [job] = (await own.jobs.list()).data
    await own.jobs.cancel(job.id)


async def claim(own, done):
    own.claim()


async def finish(own, done):
    attempt = done["claim"]
    assert own.leases.finish(
        attempt,
        "succeed",
        result=a_result(attempt.job_id),
        samples=[RunSamples(run=0, warmup=[], samples=[1.0], sample_cpu_s=[(1.0, 0.0)], executions_per_sample=1)],
    )


async def requeue(own, done):
    assert own.leases.requeue(done["claim"], reason="tested", counts_attempt=True)


async def expire(own, done):
    keys = Keys(own.settings.namespace)
    own.client.hset(keys.lease(DEVICE), "expires_at_ms", 1)
    own.client.zadd(keys.leases, {DEVICE: 1})
    if not expire_leases(own.client, own.settings.model_copy(update={"lease_s": 0.0})):
        raise redis.exceptions.NoPermissionError("the lease can't be ended")  # it was logged


Step = Callable[[Store, Mapping[str, Claim]], Awaitable[None]]
# The step, its user, and the steps before it
STEPS: Sequence[tuple[Step, str, Sequence[str]]] = (
    (submit, "api", ()),
    (submit_a_sweep, "api", ()),
    (fire_a_schedule, "api", ("save",)),
    (cancel, "api", ("submit",)),
    (stop_a_point, "api", ("sweep",)),
    (claim, "worker", ("submit",)),
    (finish, "worker", ("submit", "claim")),
    (requeue, "worker", ("submit", "claim")),
    (expire, "worker", ("submit", "claim")),
)


@pytest.fixture
async def store(client, async_redis, settings):
    return Store(client, async_redis, settings)


async def before(store, steps):
    for name in store.client.scan_iter(f"{store.settings.namespace}:*"):
        store.client.delete(name)
    done = {}
    if "save" in steps:
        await store.schedules.put(daily(owner=OWNER))
    if "submit" in steps:
        await store.submit()
    if "sweep" in steps:
        await submit_a_sweep(store, {})
    if "claim" in steps:
        done["claim"] = store.claim()
    return done


@pytest.fixture
async def connect(user):
    with sync_client(user.settings) as own:
        async with async_client(user.settings) as own_async:

            def connected(allowed):
                user.may(allowed)
                return Store(own, own_async, user.settings)

            yield connected


@pytest.mark.parametrize(
    ("step", "role", "earlier"),
    [
        pytest.param(*row, id=row[0].__name__, marks=[] if row[0] in (submit, claim, finish) else pytest.mark.verify)
        for row in STEPS
    ],
)
async def test_a_step_that_lacks_any_right_changes_no_job(step, role, earlier, store, connect, client, keys):
    every, halves = rules(role), list[str]()
    for lacking in [each for each in every if each in CALLED or "~" in each]:
        done = await before(store, earlier)
        known = read(client, keys).jobs
        try:
            await step(connect([each for each in every if each != lacking]), done)
        except redis.exceptions.ResponseError:
            found = read(client, keys)
            if {job: stored.record for job, stored in found.jobs.items()} != {
                job: stored.record for job, stored in known.items()
            }:
                halves.append(f"{lacking} changed a record")
            halves += [f"{lacking}: {violation.what}" for violation in state_violations(found)]
            await step(store, done)
        halves += [f"{lacking}, at the end: {violation.what}" for violation in state_violations(read(client, keys))]
    assert "\n".join(halves) == ""


async def test_an_import_that_lacks_any_right_stores_nothing(store, connect, client, settings):
    done = await before(store, ("submit", "claim"))
    await finish(store, done)
    lines = await lines_of(store.jobs, settings)
    every, stored = rules("api"), list[str]()
    for lacking in [each for each in every if each in CALLED or "~" in each]:
        await before(store, ())
        poor = connect([each for each in every if each != lacking])
        try:
            await ResultImports(poor.jobs._client, settings, poor.jobs).store(lines)
        except redis.exceptions.ResponseError:
            stored += [f"{lacking}: {name}" for name in contents(client, settings.namespace)]
            assert (await ResultImports(store.jobs._client, settings, store.jobs).store(lines)).imported == 1
    assert stored == []
